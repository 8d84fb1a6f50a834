// One episode, step by step.

import { announce, byId, h, icon, setText } from "./dom.js";
import { duration, lasted, plural, policyName, reward } from "./format.js";
import { badge } from "./list.js";
import { drawMarks } from "./marks.js";
import { callout, episodePanel, stepPanel } from "./step.js";

const PLAY_MILLISECONDS = 1400;

export class EpisodeView {
  id = null;
  index = 0;
  #row = null;
  #data = null; // { episode, steps, views, damage }
  #source;
  #actions; // back, neighbour, place, moved: what only the application can do
  #parts = {};
  #playing = null;
  #loading = 0;
  #resized = new ResizeObserver(() => this.#drawMarks());

  constructor(source, actions) {
    this.#source = source;
    this.#actions = actions;
  }

  get root() {
    return byId("episode-view");
  }

  get steps() {
    return this.#data?.steps ?? [];
  }

  /** Show an episode at a step, counted from 0; without one, at the first, or at the last while it is running. */
  async open(row, index) {
    this.pause();
    this.id = row.id;
    this.#row = row;
    this.#data = null;
    const loading = ++this.#loading;
    this.#build();
    try {
      const data = await this.#source.episode(row.id);
      if (loading !== this.#loading) return;
      this.#data = data;
    } catch (error) {
      if (loading === this.#loading) this.#say("error", "It could not be loaded", error.message);
      return;
    }
    this.#fillStrip(0);
    this.show(index ?? (row.outcome === "running" ? this.steps.length - 1 : 0));
  }

  close() {
    this.pause();
    this.id = null;
    this.#loading += 1;
    this.#resized.disconnect();
    this.root.replaceChildren();
  }

  /** The row has changed: there are more steps, or there is an outcome. Who looks at the last step follows. */
  async refresh(row) {
    const again = this.#row.started !== row.started;
    this.#row = row;
    this.#fillHead();
    if (again) return this.open(row);
    if (!this.#data) return undefined;
    const loading = this.#loading, known = this.steps.length;
    const data = await this.#source.episode(row.id, known);
    if (loading !== this.#loading || known !== this.steps.length) return undefined;
    const following = this.index >= known - 1;
    this.#data = { ...data, steps: [...this.steps, ...data.steps], views: [...this.#data.views, ...data.views] };
    this.#fillStrip(known);
    this.show(following && data.steps.length ? this.steps.length - 1 : this.index, true);
    return undefined;
  }

  show(index, kept = false) {
    const last = Math.max(0, this.steps.length - 1);
    this.index = Math.max(0, Math.min(index, last));
    this.#fillStep(kept);
    this.#actions.moved(this.index);
    if (this.index === last && this.#row.outcome !== "running") this.pause();
  }

  step(by) {
    this.show(this.index + by);
  }

  // ---- playing ----

  togglePlay() {
    if (this.#playing) return this.pause();
    if (this.index >= this.steps.length - 1) this.show(0);
    this.#playing = setInterval(() => this.step(1), PLAY_MILLISECONDS);
    if (this.steps.length < 2) this.pause();
    this.#fillPlay();
    return undefined;
  }

  pause() {
    clearInterval(this.#playing);
    this.#playing = null;
    this.#fillPlay();
  }

  toggleSize() {
    const { stage, size } = this.#parts;
    const actual = stage.classList.toggle("actual-size");
    size.setAttribute("aria-pressed", String(actual));
  }

  copyAction() {
    this.root.querySelector("button.copy")?.click();
  }

  // ---- building ----

  #build() {
    const button = (name, label, key, act, kind = "icon-button") =>
      h("button", { class: kind, type: "button", "aria-label": label, title: key ? `${label} (${key})` : label, click: act }, icon(name));
    // Who goes from episode to episode with a button finds the focus on the same button of the next.
    const focused = this.root.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    const p = (this.#parts = {
      badge: h("span"),
      title: h("h1", { class: "episode-title", dir: "auto", tabindex: "-1" }),
      meta: h("p", { class: "episode-meta" }),
      before: button("up", "Episode before", "↑", () => this.#actions.neighbour(-1)),
      after: button("down", "Episode after", "↓", () => this.#actions.neighbour(1)),
      place: h("span", { class: "place" }),
      address: h("p", { class: "address" }),
      image: h("img", { class: "screenshot", alt: "" }),
      marks: h("div", { class: "marks" }),
      missing: h("p", { class: "missing", hidden: true }),
      play: button("play", "Play", "p", () => this.togglePlay(), "icon-button play"),
      size: button("fit", "Actual size", "z", () => this.toggleSize()),
      counter: h("span", { class: "counter" }),
      strip: h("ol", { class: "strip", "aria-label": "Steps" }),
      panel: h("div", { class: "panel-step" }),
      whole: h("div", { class: "panel-episode" }),
      problem: h("div"),
    });
    p.size.setAttribute("aria-pressed", "false");
    p.frame = h("div", { class: "frame" }, p.image, p.missing, p.marks);
    p.stage = h("div", { class: "stage" }, p.frame);
    p.image.addEventListener("error", () => this.#fillMissing("The screenshot is missing or damaged."));
    this.root.replaceChildren(
      h("header", { class: "episode-head" },
        button("back", "Back to the list", "Esc", () => this.#actions.back()),
        h("div", { class: "episode-words" }, p.title, h("div", { class: "episode-line" }, p.badge, p.meta)),
        h("div", { class: "episode-tools" }, p.place, p.before, p.after,
          button("download", "Download episode as JSON", "", () => this.#source.download(this.id)))),
      h("section", { class: "viewer", "aria-label": "Screenshot" }, p.address, p.stage,
        h("div", { class: "transport", role: "group", "aria-label": "Steps" },
          button("first", "First step", "Home", () => this.show(0)),
          button("previous", "Step back", "←", () => this.step(-1)),
          p.play,
          button("next", "Step on", "→", () => this.step(1)),
          button("last", "Last step", "End", () => this.show(this.steps.length - 1)),
          p.counter, p.size)),
      h("aside", { class: "panel", "aria-label": "Step and episode" }, p.problem, p.panel, p.whole),
      p.strip);
    this.#resized.disconnect();
    this.#resized.observe(p.frame);
    this.#fillHead();
    const same = [...this.root.querySelectorAll("button:enabled")].find((each) => each.ariaLabel === focused);
    (same ?? p.title).focus({ preventScroll: true });
  }

  #fillHead() {
    const row = this.#row, p = this.#parts;
    const title = row.task || row.name || row.id;
    setText(p.title, title);
    document.title = `${title.slice(0, 80)} · Holotron`;
    p.badge.replaceChildren(badge(row.outcome));
    p.meta.replaceChildren(...[
      row.reward !== null && `reward ${reward(row.reward)}`,
      row.reason && row.reason.replace("_", " "),
      row.steps !== null && plural(row.steps, "step"),
      row.started !== null && duration(lasted(row, Date.now() / 1000)),
      policyName(row),
    ].filter((part) => part && part !== "–").map((part) => h("span", {}, part)));
    const { index, total } = this.#actions.place(row.id);
    setText(p.place, index >= 0 ? `${index + 1} / ${total}` : "");
    p.before.disabled = index <= 0;
    p.after.disabled = index < 0 || index >= total - 1;
  }

  tick() {
    if (this.id !== null && this.#row.outcome === "running") this.#fillHead();
  }

  #fillStrip(from) {
    const { strip } = this.#parts;
    this.steps.slice(from).forEach((step, offset) => {
      const index = from + offset, view = this.#data.views[index];
      const url = this.#source.imageUrl(step.observation.image);
      const failed = !step.result.ok || step.result.error;
      strip.append(h("li", {}, h("button", { class: `thumb ${failed ? "thumb-failed" : ""}`, type: "button",
        "aria-label": `Step ${index + 1}: ${view.sentence}${failed ? " (failed)" : ""}`, click: () => this.show(index) },
      url ? h("img", { src: url, alt: "", loading: "lazy", decoding: "async" }) : h("span", { class: "no-thumb" }),
      h("span", { class: "thumb-words" }, h("b", {}, String(index + 1)), ` ${(view.action?.action ?? "none").replace("_", " ")}`))));
    });
  }

  #fillStep(kept) {
    const p = this.#parts, step = this.steps[this.index], total = this.steps.length;
    this.#fillProblem();
    if (this.#data.episode) p.whole.replaceChildren(episodePanel(this.#data.episode, this.#row));
    setText(p.counter, step ? `${this.index + 1} / ${total}` : "0 / 0");
    if (!step) return this.#fillMissing(this.#data.damage ? "Nothing of it can be shown." : "No steps yet.");
    const seen = step.observation, view = this.#data.views[this.index];
    if (!kept || p.panel.dataset.step !== String(this.index)) {
      p.panel.replaceChildren(...stepPanel(step, view, this.index + 1, total));
      announce(`Step ${this.index + 1}: ${view.sentence}`);
    } else {
      setText(p.panel.querySelector(".kicker").firstChild, `Step ${this.index + 1} of ${total}`);
    }
    p.panel.dataset.step = String(this.index);
    p.address.replaceChildren(h("b", { dir: "auto" }, seen.title), h("span", { dir: "auto" }, seen.url));
    p.frame.style.setProperty("--ratio", String(seen.width / seen.height));
    p.frame.style.setProperty("--image-width", `${seen.width}px`);
    const url = this.#source.imageUrl(seen.image);
    p.image.hidden = url === null;
    p.image.alt = `Screenshot of step ${this.index + 1}`;
    p.missing.hidden = url !== null;
    if (url === null) this.#fillMissing("There is no screenshot of this step.");
    else if (p.image.getAttribute("src") !== url) p.image.src = url;
    this.#drawMarks();
    this.#fillCurrent();
    return undefined;
  }

  #fillCurrent() {
    const { strip } = this.#parts;
    strip.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const item = strip.children[this.index];
    item.firstChild.setAttribute("aria-current", "step");
    // Not scrollIntoView: on a small screen that would scroll the page, too.
    strip.scrollLeft = item.offsetLeft - (strip.clientWidth - item.offsetWidth) / 2;
  }

  #fillProblem() {
    const { damage } = this.#data, { detail, outcome } = this.#row;
    if (damage) this.#say("error", "Damaged", damage);
    else if (detail && outcome !== "success") this.#say(outcome === "infrastructure" ? "notice" : "detail", "Outcome", detail);
    else this.#parts.problem.replaceChildren();
  }

  #say(kind, title, text) {
    this.#parts.problem.replaceChildren(callout(kind, title, text));
  }

  #fillMissing(text) {
    const { missing, image } = this.#parts;
    image.hidden = true;
    image.removeAttribute("src");
    missing.hidden = false;
    setText(missing, text);
  }

  #fillPlay() {
    const { play } = this.#parts;
    if (!play) return;
    play.replaceChildren(icon(this.#playing ? "pause" : "play"));
    play.setAttribute("aria-label", this.#playing ? "Pause" : "Play");
  }

  #drawMarks() {
    const { marks, frame } = this.#parts, view = this.#data?.views[this.index];
    if (view) drawMarks(marks, view.action, view.sentence, frame.clientWidth, frame.clientHeight);
  }
}
