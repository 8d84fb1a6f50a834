"""A task, a page, an answer."""

from pages import endpoint, site

import holotron

with site() as address:
    result = holotron.run("When does the museum open?", url=address, endpoint=endpoint())
    print(result.reason, "after", len(result.steps), "steps:", result.answer)
