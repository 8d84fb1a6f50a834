"""The labels of one episode: whether it succeeded, what it did accomplish if not, and a thought for each step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holotron.actions.describe import describe
from holotron.episodes.images import ImageFolder
from holotron.episodes.labels import Label, Provenance, State, label_id
from holotron.episodes.record import EpisodeInfo, Step
from holotron.episodes.store import EpisodeStore
from holotron.eval.annotation import questions as q
from holotron.eval.annotation.asking import Annotators
from holotron.eval.annotation.screen_labels import screen_label
from holotron.eval.annotation.screens import AnnotatedScreen
from holotron.eval.judging import evidence_of

LAST_SCREENS = 4  # that hindsight is told from
EPISODE_KINDS = ("thoughts", "verdicts", "hindsight")


async def label_episode(
    annotators: Annotators, store: EpisodeStore, info: EpisodeInfo, kinds: Sequence[str], images: ImageFolder
) -> list[Label]:
    """images: where the screens of labels that a person may have to look at are kept."""
    steps = await asyncio.to_thread(lambda: list(store.steps(info.id)))
    known = info.outcome.success if info.outcome is not None else None
    labels: list[Label] = []
    if "verdicts" in kinds:
        labels += await _verdict(annotators, store, info, steps, known)
    judged = next((label.text == "success" for label in labels if label.state == "accepted"), None)
    if "hindsight" in kinds and (known is False or (known is None and judged is False)):
        labels += await _hindsight(annotators, store, info, steps, images)
    if "thoughts" in kinds:
        labels += await _thoughts(annotators, store, info, steps, images)
    return labels


async def _verdict(
    annotators: Annotators, store: EpisodeStore, info: EpisodeInfo, steps: Sequence[Step], known: bool | None
) -> list[Label]:
    """What the environment said counts; where the judge contradicts it a person decides."""
    opinion, _ = await annotators.opinion(f"{info.id} verdict", evidence_of(store, info, steps))
    if known is None and opinion == "undecided":
        return []
    told = opinion if known is None else "success" if known else "failure"
    sources = () if known is None else (Provenance(source="episode"),)
    if opinion != "undecided":
        sources = (*sources, annotators.judged(opinion == told))
    agrees = opinion in (told, "undecided")
    return [
        Label(
            id=label_id(info.id, "verdict"),
            kind="verdict",
            text=told,
            state="accepted" if agrees else "review",
            reason="" if agrees else f"the judge says {opinion}",
            episode=info.id,
            sources=sources,
            origin=str(store.folder),
        )
    ]


async def _hindsight(
    annotators: Annotators, store: EpisodeStore, info: EpisodeInfo, steps: Sequence[Step], images: ImageFolder
) -> list[Label]:
    seen = evidence_of(store, info, steps)
    if not seen.actions or not seen.screenshots:
        return []
    shown = [store.image(digest) for digest in seen.screenshots[-LAST_SCREENS:]]
    key = f"{info.id} hindsight"
    text = await annotators.ask(key, q.hindsight_question(info.task.text, seen.actions, shown), q.read_words)
    if text is None or text.strip(".").upper() == "NOTHING":
        return []
    opinion, cause = await annotators.opinion(key, evidence_of(store, info, steps, text))
    sources = (annotators.said(key), annotators.judged(opinion == "success"))[: 1 if opinion == "undecided" else 2]
    state: State = "accepted" if opinion == "success" else "review"
    images.put(shown[-1], False)
    last = next(step.observation for step in reversed(steps) if step.observation.image is not None)
    return [
        Label(
            id=label_id(info.id, "hindsight", text),
            kind="hindsight",
            text=text,
            state=state,
            reason="" if state == "accepted" else cause or f"the judge says {opinion}",
            screen=seen.screenshots[-1],
            size=(last.width, last.height),
            episode=info.id,
            sources=sources,
            origin=str(store.folder),
        )
    ]


async def _thoughts(
    annotators: Annotators, store: EpisodeStore, info: EpisodeInfo, steps: Sequence[Step], images: ImageFolder
) -> list[Label]:
    labels, before = [], list[str]()
    for step in steps:
        seen = step.observation
        if step.action is None or seen.image is None:
            continue
        done, key = describe(step.action.parse()), f"{info.id} {step.index} thought"
        png = store.image(seen.image)
        text = await annotators.ask(key, q.thought_question(png, info.task.text, before, done), q.read_words)
        if text is not None:
            asked = f"Task: {info.task.text}\nThought: {text}\nAction: {done}"
            found = await annotators.check(key, q.check_question("thought", png, asked))
            images.put(png, False)
            screen = AnnotatedScreen(key, seen.image, (seen.width, seen.height), info.id, step.index)
            found = found._replace(sources=(annotators.said(key), *found.sources))
            labels.append(screen_label(screen, "thought", text, found, origin=str(store.folder)))
        before.append(done)
    return labels
