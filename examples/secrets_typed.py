"""A password that is typed into the page, and is in no prompt, log or episode."""

from pages import endpoint, site

import holotron

with site() as address:
    result = holotron.run(
        "Log in as ada; the password is {{secret:password}}.",
        url=address + "/login",
        endpoint=endpoint(),
        secrets={"password": "tide-table-9"},
    )
    episode = result.episode.model_dump_json()
    print(result.reason, "- the episode holds the password:", "tide-table-9" in episode)
