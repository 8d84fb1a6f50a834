"""Several tasks at the same time."""

import asyncio

from pages import endpoint, site

import holotron


async def main() -> None:
    with site() as address:
        tasks = [("When does the museum open?", "/"), ("Is there a log-in form?", "/login")]
        running = [holotron.arun(task, address + path, endpoint=endpoint()) for task, path in tasks]
        for (task, _), result in zip(tasks, await asyncio.gather(*running), strict=True):
            print(f"{task} {result.reason}: {result.answer}")


asyncio.run(main())
