"""Structured output: the result as an object of a class."""

from pages import endpoint, site
from pydantic import BaseModel

import holotron


class Hours(BaseModel):
    opens: str
    closes: str


with site() as address:
    result = holotron.run("Find the opening hours.", url=address, endpoint=endpoint(), extract=Hours)
    print(result.data if result.data is not None else f"nothing: {result.detail}")
