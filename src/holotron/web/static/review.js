// Labels that wait for a person, one at a time: accepted, rejected or corrected with the keyboard.

import { byId, h, setText } from "./dom.js";

const state = { labels: [], counts: {}, at: 0, kind: "", drawn: null };
const SMALLEST = 3; // pixels of a box that was meant

const shown = () => state.labels.filter((label) => !state.kind || kindOf(label) === state.kind);
const kindOf = (label) => (label.level ? `${label.kind}, ${label.level}` : label.kind);
const current = () => shown()[state.at];

async function load() {
  const answer = await fetch("api/labels");
  Object.assign(state, await answer.json());
  const kinds = [...new Set(state.labels.map(kindOf))].sort();
  byId("kind").replaceChildren(h("option", { value: "" }, "all"), ...kinds.map((kind) => h("option", { value: kind }, kind)));
  const first = shown().findIndex((label) => label.state === "review");
  state.at = Math.max(0, first);
  show();
}

function show() {
  const label = current();
  const { accepted = 0, review = 0, rejected = 0 } = state.counts;
  setText(byId("counts"), `${review} to review, ${accepted} accepted, ${rejected} rejected`);
  for (const id of ["accept", "reject", "edit"]) byId(id).disabled = !label;
  state.drawn = null;
  if (!label) {
    for (const id of ["what", "place", "reason", "origin"]) setText(byId(id), "");
    setText(byId("what"), "Nothing waits for a decision.");
    byId("sources").replaceChildren();
    byId("text").value = "";
    byId("frame").hidden = true;
    return;
  }
  setText(byId("what"), [kindOf(label), label.element].filter(Boolean).join(" · "));
  setText(byId("place"), `${state.at + 1} of ${shown().length} · ${label.state}`);
  setText(byId("reason"), label.reason);
  setText(byId("origin"), [label.origin, label.episode && `episode ${label.episode}`, label.step !== null && `step ${label.step + 1}`]
    .filter(Boolean).join(" · "));
  byId("sources").replaceChildren(...label.sources.map((each) =>
    h("li", {}, `${each.source}${each.name ? ` ${each.name}` : ""}: ${each.agrees ? "for it" : "against it"}`)));
  byId("text").value = label.text;
  byId("frame").hidden = !label.screen;
  if (label.screen) byId("shot").src = `api/images/${label.screen}.png`;
  drawBox(label.box);
}

/** A box in pixels of the screen, over the picture as it is shown. */
function drawBox(box) {
  const mark = byId("box"), image = byId("shot"), label = current();
  mark.hidden = !box || !label?.size;
  if (mark.hidden) return;
  const scale = [image.clientWidth / label.size[0], image.clientHeight / label.size[1]];
  const [left, top, right, bottom] = box.map((side, index) => side * scale[index % 2]);
  Object.assign(mark.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
}

async function decide(verdict) {
  const label = current();
  if (!label) return;
  const text = byId("text").value.trim();
  const body = { label: label.id, state: verdict };
  if (verdict === "accepted") {
    if (!text) return say("The text is empty: reject the label, or write one.");
    if (text !== label.text) body.text = text;
    if (state.drawn) body.box = state.drawn;
  }
  const answer = await fetch("api/decisions", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const found = await answer.json();
  if (!answer.ok) return say(`Not kept: ${found.detail}`);
  state.counts[label.state] -= 1;
  state.counts[found.state] = (state.counts[found.state] ?? 0) + 1;
  state.labels[state.labels.indexOf(label)] = found;
  say(`${found.state}: ${found.text.slice(0, 60)}`);
  byId("text").blur();
  go(1);
}

function go(by) {
  const next = state.at + by;
  if (next >= 0 && next < shown().length) state.at = next;
  show();
}

const say = (text) => setText(byId("announce"), text);

const KEYS = {
  a: () => decide("accepted"),
  r: () => decide("rejected"),
  e: () => byId("text").focus(),
  ArrowRight: () => go(1),
  ArrowLeft: () => go(-1),
};

window.addEventListener("keydown", (event) => {
  if (event.target === byId("text")) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) decide("accepted");
    if (event.key === "Escape") byId("text").blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === byId("kind")) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

// ---- a new box, drawn with the mouse ----

let start = null;
const placeOf = (event) => {
  const image = byId("shot"), edge = image.getBoundingClientRect(), [width, height] = current().size;
  const clamp = (value, most) => Math.max(0, Math.min(value, most));
  return [clamp(((event.clientX - edge.left) / edge.width) * width, width),
    clamp(((event.clientY - edge.top) / edge.height) * height, height)];
};
byId("frame").addEventListener("pointerdown", (event) => {
  if (!current()?.box) return;
  event.preventDefault();
  byId("frame").setPointerCapture(event.pointerId);
  start = placeOf(event);
});
byId("frame").addEventListener("pointermove", (event) => {
  if (!start) return;
  const end = placeOf(event);
  const box = [Math.min(start[0], end[0]), Math.min(start[1], end[1]), Math.max(start[0], end[0]), Math.max(start[1], end[1])];
  if (box[2] - box[0] >= SMALLEST && box[3] - box[1] >= SMALLEST) {
    state.drawn = box.map((side) => Math.round(side * 10) / 10);
    drawBox(state.drawn);
  }
});
byId("frame").addEventListener("pointerup", () => { start = null; });

byId("shot").addEventListener("load", () => drawBox(state.drawn ?? current()?.box));
window.addEventListener("resize", () => drawBox(state.drawn ?? current()?.box));
byId("kind").addEventListener("change", (event) => {
  state.kind = event.target.value;
  state.at = Math.max(0, shown().findIndex((label) => label.state === "review"));
  event.target.blur();
  show();
});
byId("accept").addEventListener("click", () => decide("accepted"));
byId("reject").addEventListener("click", () => decide("rejected"));
byId("edit").addEventListener("click", () => byId("text").focus());
byId("back").addEventListener("click", () => go(-1));
byId("skip").addEventListener("click", () => go(1));
load();
