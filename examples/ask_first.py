"""A person agrees before anything is deleted. Here nobody does: the policy is told so, and goes on without."""

from pages import endpoint, site

import holotron


def agree(question: holotron.Question) -> bool:
    print(f"{question.action} at {question.text!r} ({question.rule}): no")
    return False


with site() as address:
    result = holotron.run(
        "Delete all notes.", url=address + "/notes", endpoint=endpoint(), ask=["delete|remove"], on_question=agree
    )
    print([step.result.error or "done" for step in result.steps])
