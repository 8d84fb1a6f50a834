"""Hear of every step, and end the run when it has gone on long enough."""

from pages import endpoint, site

import holotron


def told(step: holotron.StepRecord) -> None:
    print(f"step {step.index + 1}: {step.action} on {step.observation.title!r}, {step.timings.total:.1f} s")


with site() as address:
    result = holotron.run(
        "Read every page of the site.",
        url=address,
        endpoint=endpoint(),
        on_step=told,
        should_stop=lambda step: "two steps are enough" if step.index == 1 else None,
    )
    print(result.reason, result.detail)
