"""One page of samples of a store, for a person to judge: is every point where the instruction says?"""

from __future__ import annotations

import base64
import io
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from holotron.actions.action import ActionError
from holotron.actions.describe import describe
from holotron.agent.policy_format import PolicyFormat
from holotron.episodes.datasets.importer import read_report
from holotron.episodes.errors import EpisodeError
from holotron.episodes.files import write_whole
from holotron.episodes.record import EpisodeInfo, Step
from holotron.episodes.store import EpisodeStore
from holotron.web.page import STATIC, STYLE, inline_policy, joined_scripts

LOOKED_AT = 1000  # episodes whose actions are counted
WIDEST = 1280  # pixels of a picture on the page
SCRIPTS = ("dom.js", "marks.js", "samples.js")
Rows = Iterable[tuple[str, object]]


@dataclass
class _Look:
    """What was counted over the episodes looked at."""

    episodes: int = 0
    steps: int = 0
    names: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    points: list[tuple[int, int]] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


def write_samples(store: EpisodeStore, path: Path, policy_format: PolicyFormat, count: int, seed: int = 0) -> int:
    """Write a page of `count` steps of a store's episodes, drawn by the seed; how many there are on it."""
    infos = store.list_episodes(finished=True, on_damage=lambda _: None)
    chance = random.Random(f"samples/{seed}")
    chance.shuffle(infos)
    look, samples = _Look(), list[str]()
    for info in infos[: max(LOOKED_AT, count)]:
        try:
            steps = list(store.steps(info.id))
        except EpisodeError as error:
            look.damage.append(str(error))
            continue
        _count(look, info, steps)
        acted = [step for step in steps if step.action is not None]
        if acted and len(samples) < count:
            samples.append(_sample(store, info, chance.choice(acted), len(steps), policy_format))
    _write(path, store.folder.name, "".join(_page(store, look, len(infos), samples, policy_format)))
    return len(samples)


def _write(path: Path, title: str, body: str) -> None:
    style = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in (STYLE, "samples.css"))
    script = joined_scripts(SCRIPTS)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{inline_policy(script, style)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · Holotron</title><style>{style}</style></head>"
        f'<body>{body}<script type="module">{script}</script></body></html>'
    )
    write_whole(path, page.encode(), sync=False)


@dataclass(frozen=True)
class Miss:
    """An answer that was not right: point and outline as shares of the picture's sides.

    No point: the answer was none, or said that the element is not there. outline: corners; none: it is not there.
    """

    png: bytes
    instruction: str
    answer: str
    point: tuple[float, float] | None
    outline: Sequence[tuple[float, float]]
    where: str


def write_misses(path: Path, title: str, report: Mapping[str, Any], misses: Iterable[Miss]) -> None:
    """Write a page of the misses of a grounding benchmark."""
    cards = "".join(
        _card(
            key.replace("_", " ").capitalize(),
            [(name, f"{100 * part['accuracy']:.1f}% of {part['of']}") for name, part in parts.items()],
        )
        for key, parts in report.items()
        if key.startswith("by_")
    )
    own = (f"{report['policy']} (this run)", report["accuracy"] * 100, "")
    known = [(each["model"], each["score"], f" · {each['source']}") for each in report["published"]]
    ranked = sorted([own, *known], key=lambda row: -row[1])
    cards += _card("Published scores", [(model, f"{score:.1f}{source}") for model, score, source in ranked])
    lead = (
        f"{100 * report['accuracy']:.1f}% of {report['of']} right ({100 * report['interval'][0]:.1f} to "
        f"{100 * report['interval'][1]:.1f}, 95%); {report['wrong_format']} answers were no point."
    )
    if report["items"] != report["published_items"] is not None:
        lead += f" {report['published_items']} items were published: this is not the whole benchmark."
    body = f'<main class="page"><header><h1>{escape(title)}</h1><p>{escape(lead)}</p></header>'
    body += f'<section class="cards">{cards}</section><section class="samples">{"".join(map(_miss, misses))}</section>'
    _write(path, title, body + "</main>")


def _miss(miss: Miss) -> str:
    action: dict[str, Any] = {"action": "none"}
    sentence = "no point" if miss.point is None else "said to be not there"
    if miss.point is not None and min(miss.point) >= 0:
        x, y = (1000 * max(0.0, min(share, 1.0)) for share in miss.point)
        action = {"action": "click", "button": "left", "x": x, "y": y}
    place = " ".join(f"{x:.5f},{y:.5f}" for x, y in miss.outline)
    return (
        f'<article class="sample" data-action="{escape(json.dumps(action))}" data-sentence="{sentence}" '
        f'data-outline="{place}">{_picture(miss.png)}<div><p class="kicker"><span>{escape(miss.where)}</span></p>'
        f'<p class="sentence">{escape(miss.instruction)}</p>'
        + _block("Answer", f"<pre>{escape(miss.answer[:1000])}</pre>")
        + "</div></article>"
    )


def _count(look: _Look, info: EpisodeInfo, steps: list[Step]) -> None:
    look.episodes += 1
    look.steps += len(steps)
    look.names[info.task.name or info.task.benchmark or "–"] += 1
    for step in steps:
        if step.action is None:
            look.actions["none"] += 1
            continue
        value = json.loads(step.action.text)
        look.actions[value["action"] + (" (not learned)" if step.actor == "disturbance" else "")] += 1
        look.sizes[f"{step.observation.width}×{step.observation.height}"] += 1
        if "x" in value:
            look.points.append((value["x"], value["y"]))


def _page(
    store: EpisodeStore, look: _Look, episodes: int, samples: list[str], policy_format: PolicyFormat
) -> Iterator[str]:
    report = read_report(store.folder) or {}
    yield f'<main class="page"><header><h1>{escape(store.folder.name)}</h1><p>'
    part = "" if look.episodes == episodes else f"; counts are of {look.episodes} drawn at random"
    yield f"{episodes} episodes{part}. {len(samples)} samples, answers as {escape(policy_format.name)} writes them.</p>"
    yield '</header><section class="cards">'
    yield from _import_cards(report)
    yield _card("Steps by action", look.actions.most_common(12))
    yield _card("Episodes by task", look.names.most_common(8), "Sizes of screenshots", look.sizes.most_common(6))
    dots = "".join(f'<circle cx="{x}" cy="{y * 0.6:g}" r="9"/>' for x, y in look.points[:2000])
    grid = '<path d="M0 0H1000V600H0ZM500 0V600M0 300H1000"/>'
    scatter = f'<svg class="scatter" viewBox="0 0 1000 600" role="img" aria-label="points">{grid}{dots}</svg>'
    yield f'<div class="card"><h2>Where points lie</h2>{scatter}</div>'
    yield from _problem_card(report, look)
    yield f'</section><section class="samples">{"".join(samples)}</section></main>'


def _import_cards(report: Mapping[str, Any]) -> Iterator[str]:
    settings = report.get("settings") or {}
    detected = report.get("detected") or []
    if not settings:
        return
    told = {name: f"{value}{' (detected)' if name in detected else ''}" for name, value in settings.items() if value}
    told["source"] = Path(told.get("source", "")).name
    yield _card("Import", told.items())
    left = {name: sum((report.get(name) or {}).values()) for name in ("bad", "unsupported")}
    rows = {
        "episodes": report.get("episodes", 0),
        "steps": report.get("steps", 0),
        "cut short": report.get("cut", 0),
        "duplicates": report.get("duplicates", 0),
        "no words for it": left["unsupported"],
        "bad": f"{left['bad']} ({100 * report.get('bad_share', 0):.2g}%)",
    }
    if not report.get("finished"):
        rows["finished"] = "no: run it again"
    yield _card("Records", rows.items())


def _problem_card(report: Mapping[str, Any], look: _Look) -> Iterator[str]:
    counts = {**(report.get("unsupported") or {}), **(report.get("bad") or {})}
    counts |= {"duplicate": report["duplicates"]} if report.get("duplicates") else {}
    cases = report.get("examples") or {}
    if look.damage:
        counts["damaged episode"], cases = len(look.damage), {**cases, "damaged episode": look.damage[:5]}
    if not counts:
        return
    rows = "".join(
        f'<tr><td>{escape(kind)} <span class="count">{count}</span></td><td class="cases">'
        + "<br>".join(escape(case[:300]) for case in cases.get(kind, []))
        + "</td></tr>"
        for kind, count in sorted(counts.items(), key=lambda pair: -pair[1])
    )
    yield f'<div class="card wide"><h2>Left out</h2><table>{rows}</table></div>'


def _card(title: str, rows: Rows, second: str = "", more: Rows = ()) -> str:
    """A card with one table, or with two."""

    def table(title: str, rows: Rows) -> str:
        cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in rows)
        return f"<h2>{escape(title)}</h2><table>{cells}</table>"

    return f'<div class="card">{table(title, rows)}{table(second, more) if second else ""}</div>'


def _sample(store: EpisodeStore, info: EpisodeInfo, step: Step, steps: int, policy_format: PolicyFormat) -> str:
    assert step.action is not None
    action, size = step.action.parse(), (step.observation.width, step.observation.height)
    image, shot = _shot(store, step)
    try:
        shown = policy_format.from_screen(action, image)
        written, kind = policy_format.write(shown, step.note, step.thought, size), "answer"
    except ActionError as error:
        written, kind = str(error), "no-words"
    box = info.task.extra.get("box")
    shares = (
        [float(side) / size[index % 2] for index, side in enumerate(box.split(","))] if isinstance(box, str) else []
    )
    place = f' data-outline="{_box_outline(shares)}"' if shares else ""
    words = (
        _block("Thought", f'<p class="prose">{escape(step.thought)}</p>' if step.thought else "")
        + _block("Note", f'<p class="prose">{escape(step.note)}</p>' if step.note else "")
        + _block(f"Answer ({policy_format.name})", f'<pre class="{kind}">{escape(written)}</pre>')
        + _block("From", f"<p>{escape(str(info.policy.extra.get('from', info.id)))}</p>")
    )
    learned = "" if step.actor != "disturbance" else " · not learned"
    return (
        f'<article class="sample" data-action="{escape(action.model_dump_json())}" '
        f'data-sentence="{escape(describe(action))}"{place}>{shot}<div>'
        f'<p class="kicker"><span>{escape(info.task.name or "")}{learned}</span>'
        f"<span>step {step.index + 1} of {steps}</span></p>"
        f'<p class="sentence">{escape(info.task.text)}</p>{words}</div></article>'
    )


def _box_outline(box: list[float]) -> str:
    left, top, right, bottom = (f"{share:.5f}" for share in box)
    return f"{left},{top} {right},{top} {right},{bottom} {left},{bottom}"


def _block(title: str, content: str) -> str:
    return f'<div class="block"><h3>{escape(title)}</h3>{content}</div>' if content else ""


def _shot(store: EpisodeStore, step: Step) -> tuple[bytes | None, str]:
    """A screenshot and how the page shows it, or None and what is said in its place."""
    if step.observation.image is None:
        return None, '<div class="shot"><p class="no-words">no screenshot</p></div>'
    try:
        image = store.image(step.observation.image)
        return image, _picture(image)
    except (EpisodeError, OSError) as error:
        return None, f'<div class="shot"><p class="no-words">{escape(str(error))}</p></div>'


def _picture(png: bytes) -> str:
    """A screenshot, small enough for a page of many."""
    with Image.open(io.BytesIO(png)) as image:
        shown = image.convert("RGB")
    shown.thumbnail((WIDEST, WIDEST))
    buffer = io.BytesIO()
    shown.save(buffer, "WEBP", quality=80, method=2)
    data = base64.b64encode(buffer.getvalue()).decode()
    tall = " tall" if shown.height > shown.width else ""
    return f'<div class="shot{tall}"><img src="data:image/webp;base64,{data}" alt=""><div class="marks"></div></div>'
