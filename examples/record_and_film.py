"""An episode on disk, a GIF of it, and what it cost."""

import tempfile
from pathlib import Path

from pages import endpoint, site

import holotron
from holotron.agent.cost import Price
from holotron.web.film import write_film

with site() as address, tempfile.TemporaryDirectory() as folder:
    result = holotron.run("When does the museum open?", url=address, endpoint=endpoint(), record=folder)
    film = Path(folder) / "episode.gif"
    write_film(holotron.EpisodeStore(folder), result.episode.id, film)
    usage = result.usage
    print(f"{film.stat().st_size:,} bytes of film; {usage.prompt:,} tokens read, {usage.output:,} written,")
    print(f"{usage.money(Price(input=0.5, cached=0.05, output=2)):.6f} USD at prices of your own")
