"""What every family's format is: what is sent for a step, the form of an answer, and how it is read and written.

What is sent follows from the task and the recorded steps alone, so that training can write from stored episodes what a
session was sent (`conversation`).
"""

from __future__ import annotations

import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from holotron.agent.chat import ChatOptions, Message, trimmed

if TYPE_CHECKING:  # actions need pydantic, which training does without
    from holotron.actions.action import Action
    from holotron.actions.coordinates import Space, SpaceKind
    from holotron.agent.formats.image_size import ImageRule

Size = tuple[int, int]

BROWSER_KINDS = (
    "click", "double_click", "hover", "drag", "type", "press", "scroll", "select", "goto", "back", "forward", "refresh",
    "wait", "new_tab", "switch_tab", "close_tab", "answer", "infeasible",
)  # fmt: skip
# One page, no address bar: what the tasks of MiniWoB++ can be solved with.
WIDGET_KINDS = ("click", "double_click", "hover", "drag", "type", "press", "scroll", "select", "wait")
# A page, no address bar and no tabs: what small policies are taught.
PAGE_KINDS = (*WIDGET_KINDS, "answer")
# How an environment begins to tell of a secret (`holotron.env.safety.secrets`).
SECRET_NOTICE = re.compile(r"there is a secret named '([\w.-]+)'")
LAST_STEP = "This is the last step: give the answer now."


class Seen(Protocol):
    """An observation, live or stored."""

    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def url(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def tabs(self) -> Sequence[object]: ...
    @property
    def notices(self) -> Sequence[str]: ...


class Taken(Protocol):
    """A step that was taken, live or stored. feedback: why its answer was not accepted. forced: it had to answer."""

    @property
    def observation(self) -> Any: ...
    @property
    def action(self) -> Any: ...
    @property
    def error(self) -> str: ...
    @property
    def feedback(self) -> str | None: ...
    @property
    def forced(self) -> bool: ...


@dataclass(frozen=True)
class ParsedAnswer:
    action: Action
    note: str = ""
    thought: str = ""


@dataclass(frozen=True)
class PolicyFormat(ABC):
    """kinds: the actions it may choose. size: the view it is best at. keep_images: screenshots shown, None for all.

    A subclass is a family of models; `name` is what it is called in `policy.json` and on the command line. date: the
    day of the task, for families that are told it; it is part of `spec`, so that a stored episode keeps it.
    """

    name: ClassVar[str]
    space: ClassVar[SpaceKind] = "relative"  # in which it gives points
    image_rule: ClassVar[ImageRule | None] = None  # the size in which it sees an image, where points are its pixels
    sends_resized: ClassVar[bool] = False  # in that size
    vocabulary: ClassVar[tuple[str, ...]] = BROWSER_KINDS  # the actions that it has words for
    dated: ClassVar[bool] = False
    windowed: ClassVar[bool] = False  # trained on prompts that `history` wrote anew for every step
    template: ClassVar[Mapping[str, Any]] = {}  # variables of the chat template

    kinds: tuple[str, ...] = BROWSER_KINDS
    size: Size | None = None
    keep_images: int | None = None
    date: str = ""

    def __post_init__(self) -> None:
        if unknown := set(self.kinds) - set(BROWSER_KINDS):
            raise ValueError(f"there is no kind of action {min(unknown)!r}; known are {', '.join(BROWSER_KINDS)}")

    @abstractmethod
    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        """What the conversation of the steps so far goes on with; forced: only an answer is of use now."""

    def instruction(self, task: str, past: Sequence[Taken], seen: Seen) -> str:
        """The task as `messages` gets it: with the secrets that the first observation told of."""
        return "\n".join([task, *_secret_notices(past, seen)])

    @abstractmethod
    def schema(self, forced: bool = False) -> dict[str, Any]:
        """The form of an answer: a JSON schema, or {"lark": …} for a family that does not write JSON."""

    @abstractmethod
    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        """The answer that `parse` reads as this action; Inexpressible if the family has no single answer for it."""

    @abstractmethod
    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        """What the policy asks for; ActionError if that cannot be understood.

        size: the screenshot's, for pixels. past: the steps before, for what continues them.
        """

    def history(self, messages: Sequence[Message]) -> list[Message]:
        """A conversation as it is sent whole, without sessions: with all but the last screenshots gone."""
        return trimmed(messages, self.keep_images)

    def fitted(self, options: ChatOptions) -> ChatOptions:
        """The options with which a model of this family is talked to."""
        template = {**self.template, **options.template}
        return replace(
            options, keep_images=self.keep_images, windowed=self.windowed, template=template, history=self.history
        )

    def options(self, max_tokens: int, temperature: float = 0.0) -> ChatOptions:
        return self.fitted(ChatOptions(max_tokens, temperature))

    def with_kinds(self, kinds: Sequence[str]) -> Self:
        """With these kinds of actions, as far as the family has words for them."""
        found = replace(self, kinds=tuple(kinds))  # unknown ones are an error
        known = tuple(kind for kind in kinds if kind in self.vocabulary)
        if not known:
            raise ValueError(f"{self.name} has no words for {', '.join(kinds)}; it has {', '.join(self.vocabulary)}")
        return found if known == found.kinds else replace(self, kinds=known)

    def on(self, date: str) -> Self:
        """As it is asked on that day; the same for families that are not told the day."""
        return replace(self, date=date) if self.dated else self

    @property
    def spec(self) -> str:
        """The format as one word, from which `find_format` makes it again: `nano`, or `nano:click,type`."""
        name = f"{self.name}@{self.date}" if self.date else self.name
        return name if self.kinds == type(self).kinds else f"{name}:{','.join(self.kinds)}"

    # ---- what families share ----

    def points(self, size: Size | None) -> Space:
        """The space of points in a screenshot of this size; without one, thousandths."""
        from holotron.actions.coordinates import Space

        if size is None:
            return Space(self.space, 1000, 1000)
        return Space(self.space, *(self.image_rule.resized(size) if self.image_rule else size))

    def shown(self, image: bytes | None) -> bytes | None:
        """The picture that is sent for a screenshot."""
        if image is None or self.image_rule is None or not self.sends_resized:
            return image
        from PIL import Image

        with Image.open(io.BytesIO(image)) as picture:
            size = self.image_rule.resized(picture.size)
            if size == picture.size:
                return image
            out = io.BytesIO()
            picture.convert("RGB").resize(size, Image.Resampling.BICUBIC).save(out, "png", compress_level=1)
            return out.getvalue()

    def to_screen(self, action: Action, image: bytes | None) -> Action:
        """An action on the picture that is sent as one on the screenshot."""
        return action

    def from_screen(self, action: Action, image: bytes | None) -> Action:
        """An action on the screenshot as one on the picture that is sent."""
        return action

    @property
    def _can_answer(self) -> bool:
        return "answer" in self.kinds

    def _allowed(self, forced: bool) -> tuple[str, ...]:
        """The kinds of actions that are of use now."""
        if not (forced and self._can_answer):
            return self.kinds
        return tuple(kind for kind in ("answer", "infeasible") if kind in self.kinds)

    def _remarks(self, past: Sequence[Taken], forced: bool) -> list[str]:
        """What the policy must know beside the picture: that something failed, or that time is up."""
        failed = [outcome(past[-1])] if past and (past[-1].error or past[-1].feedback is not None) else []
        return [*failed, LAST_STEP] if forced and self._can_answer else failed


def with_points(policy_format: PolicyFormat, change: Callable[[Space], Space]) -> PolicyFormat:
    """The same format, whose points are read in another space than its own."""

    def points(self: PolicyFormat, size: Size | None) -> Space:
        return change(super(kind, self).points(size))  # type: ignore[arg-type]

    kind: Callable[..., Any] = type(policy_format.name, (type(policy_format),), {"points": points})
    return kind(**{each.name: getattr(policy_format, each.name) for each in fields(policy_format)})


def _secret_notices(past: Sequence[Taken], seen: Seen) -> list[str]:
    first: Seen = past[0].observation if past else seen
    return [notice for notice in first.notices if SECRET_NOTICE.match(notice)]


def secret_names(past: Sequence[Taken], seen: Seen) -> list[str]:
    """The names of the secrets that the first observation told of."""
    return [found[1] for notice in _secret_notices(past, seen) if (found := SECRET_NOTICE.match(notice))]


def outcome(step: Taken) -> str:
    """What came of a step, in words."""
    if step.feedback is not None:
        return f"Your answer was checked and is not accepted: {step.feedback}"
    if step.action is None:
        return f"Your last answer could not be used: {step.error}"
    return f"The last action failed: {step.error}" if step.error else "The last action was carried out."


def written_by(step: Taken) -> str:
    """What the model wrote at a step, live or stored; empty where it was not asked."""
    output = getattr(step, "reply", None) or getattr(step, "output", None)
    return str(output.text) if output is not None else ""


def pointer_after(past: Sequence[Taken]) -> tuple[int, int] | None:
    """Where the last action left the pointer."""
    action = past[-1].action if past else None
    if action is None:
        return None
    action = action.parse() if hasattr(action, "parse") else action  # as an episode stores it
    x, y = getattr(action, "to_x", getattr(action, "x", None)), getattr(action, "to_y", getattr(action, "y", None))
    return None if x is None or y is None else (x, y)


def without_thinking(text: str) -> str:
    """An answer without the reasoning before it, which no history keeps."""
    return text.rpartition("</think>")[2].strip()


def with_answers(messages: Sequence[Message], change: Callable[[str], str]) -> list[Message]:
    """The conversation with its answers changed."""
    return [Message(said.role, change(said.text)) if said.role == "assistant" else said for said in messages]


def load_object(text: str) -> dict[str, Any]:
    """The JSON object of an answer, which may stand in fences and words; ActionError if there is none."""
    from holotron.actions.action import ActionError, load_json

    value = load_json(json_part(text))
    if not isinstance(value, dict):
        raise ActionError(f"an answer is a JSON object, not {text[:80]!r}")
    return value


def json_part(text: str) -> str:
    """The text from its first brace to its last: models wrap JSON in fences and words."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def only(actions: Sequence[Action], name: str) -> Action:
    """The one action of a step."""
    from holotron.actions.action import ActionError

    if len(actions) != 1:
        kinds = ", ".join(action.action for action in actions)
        raise ActionError(f"{name}: a step is one action, not {len(actions)} ({kinds}); the rest comes after a look")
    return actions[0]


def conversation(
    policy_format: PolicyFormat,
    task: str,
    steps: Sequence[Taken],
    image_of: Callable[[Any], bytes | None] = lambda seen: seen.image,
) -> Iterator[list[Message]]:
    """For each step of an episode, the messages that were sent. image_of: the picture of a stored observation."""
    for index, step in enumerate(steps):
        seen = step.observation
        past = steps[:index]
        told = policy_format.instruction(task, past, seen)
        yield policy_format.messages(told, past, seen, image_of(seen), step.forced)
