// How a training run goes, where the episodes are one's: a small curve per figure, and the success of each task.

import { byId, h, setText, svg } from "./dom.js";
import { count, percent } from "./format.js";

const share = (value) => percent(value, 1);
const number = (value) => String(+value.toPrecision(3));
const FIGURES = [
  ["even_success", "Success, all tasks alike", share],
  ["success", "Success", share],
  ["reward", "Reward", number],
  ["steps_per_second", "Steps/s", number],
  ["episode_steps", "Steps of an episode", number],
  ["answer_tokens", "Tokens of an answer", number],
  ["staleness", "Staleness", number],
  ["entropy", "Entropy", number],
  ["ratio", "Ratio", number],
  ["clipped", "Clipped", share],
  ["kl", "KL", number],
  ["logprob_difference", "Engine − trainer", number],
  ["kept", "Groups kept", count],
  ["flat", "Groups flat", count],
];
const WIDTH = 120, HEIGHT = 32;

export class TrainingPanel {
  #lines = [];
  #choose; // told the task that was clicked

  constructor(choose) {
    this.#choose = choose;
  }

  /** Ask for what is new, if the run has gone on, or begun anew from an earlier state. */
  async follow(source, last) {
    const known = this.#lines.at(-1)?.step ?? 0;
    if (last === known) return;
    const { lines } = await source.training(last < known ? 0 : known);
    this.#lines = last < known ? lines : [...this.#lines, ...lines];
    this.#draw();
  }

  #draw() {
    byId("training").hidden = this.#lines.length === 0;
    if (!this.#lines.length) return;
    const last = this.#lines.at(-1);
    setText(byId("training-step"), `iteration ${count(last.step)}`);
    const parts = Object.keys(last).filter((name) => name.startsWith("seconds of "));
    const figures = [...FIGURES, ...parts.map((name) => [name, name[0].toUpperCase() + name.slice(1), number])];
    byId("figures").replaceChildren(...figures.map((figure) => this.#card(...figure)).filter(Boolean));
    const tasks = new Map();
    for (const line of this.#lines) for (const [name, value] of Object.entries(line.tasks)) tasks.set(name, value);
    const sorted = [...tasks].sort(([a, x], [b, y]) => x - y || a.localeCompare(b, "en"));
    byId("training-tasks").replaceChildren(...sorted.map(([name, value]) =>
      h("button", { class: "task-share", type: "button", title: `Episodes of ${name}`, click: () => this.#choose(name) },
        h("span", {}, name), h("meter", { min: 0, max: 1, value, "aria-label": name }), h("span", {}, share(value)))));
  }

  #card(field, label, told) {
    const points = this.#lines.filter((line) => line[field] !== undefined).map((line) => [line.step, line[field]]);
    if (!points.length) return null;
    return h("div", { class: "figure", "data-figure": field },
      h("span", { class: "figure-name" }, label), h("span", { class: "figure-value" }, told(points.at(-1)[1])), curve(points));
  }
}

function curve(points) {
  const values = points.map(([, value]) => value), low = Math.min(...values), high = Math.max(...values);
  const [first] = points[0], [last] = points.at(-1);
  const place = ([step, value]) => [
    ((step - first) / Math.max(1, last - first)) * WIDTH,
    HEIGHT - 2 - ((value - low) / (high - low || 1)) * (HEIGHT - 4),
  ].map((each) => each.toFixed(1)).join(",");
  return svg("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("polyline", { points: points.map(place).join(" ") }));
}
