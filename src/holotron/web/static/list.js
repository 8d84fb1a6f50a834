// The list of episodes: only the rows in sight are in the document, however many there are.

import { byId, h, icon, setText } from "./dom.js";
import { count, duration, lasted, moment, percent, plural, policyName, reward, when } from "./format.js";
import { COLUMNS, DEFAULTS, OUTCOMES, OUTCOME_WORDS, choices, filtersText, isDown, select } from "./filter.js";

const OVERSCAN = 8;
const AT_TOP = 4;

export class EpisodeList {
  filters = { ...DEFAULTS };
  shown = [];
  active = null; // the id of the row that ↑ and ↓ move from
  #rows = new Map();
  #elements = new Map();
  #unseen = 0;
  #changed; // told when the user changes a filter

  constructor(changed) {
    this.#changed = changed;
    this.#makeControls();
    addEventListener("scroll", () => this.#draw(), { passive: true });
    addEventListener("resize", () => this.#draw());
  }

  /** Take new rows in without moving those the user looks at. */
  update(rows, added) {
    this.#rows = rows;
    const anchor = scrollY > AT_TOP && !this.hidden ? this.#anchor() : null;
    this.#select();
    if (!anchor) return;
    const index = this.shown.findIndex((row) => row.id === anchor.id);
    if (index >= 0) scrollBy(0, this.#rowTop(index) - anchor.top);
    this.#unseen += this.shown.filter((row) => added.has(row.id)).length;
    this.#draw();
  }

  setFilters(filters) {
    this.filters = filters;
    this.#select();
  }

  get hidden() {
    return byId("list-view").hidden;
  }

  neighbour(id, by) {
    const index = this.shown.findIndex((row) => row.id === id);
    return index < 0 ? undefined : this.shown[index + by];
  }

  /** ↑ and ↓ in the list: the focus goes from row to row. */
  move(by) {
    const index = this.shown.findIndex((row) => row.id === this.active);
    const next = this.shown[index < 0 ? 0 : Math.max(0, Math.min(index + by, this.shown.length - 1))];
    if (next) this.focus(next.id);
  }

  /** Bring a row into sight and the focus to it. */
  focus(id) {
    const index = this.shown.findIndex((row) => row.id === id);
    if (index < 0) return;
    const height = this.#rowHeight(), top = this.#rowTop(index), above = byId("columns").offsetHeight + 8;
    if (top < above || top + height > innerHeight - 8) scrollBy(0, top - innerHeight / 2);
    this.active = id;
    this.#draw();
    this.#elements.get(id)?.querySelector("a").focus({ preventScroll: true });
  }

  tick() {
    if (this.hidden) return;
    for (const [id, element] of this.#elements) fillRow(element, this.#rows.get(id));
  }

  // ---- controls ----

  #makeControls() {
    byId("search").addEventListener("input", (event) => this.#set({ q: event.target.value }));
    byId("benchmark").addEventListener("change", (event) => this.#set({ benchmark: event.target.value, task: "", group: "" }));
    byId("task").addEventListener("change", (event) => this.#set({ task: event.target.value, group: "" }));
    byId("group").addEventListener("change", (event) => this.#set({ group: event.target.value }));
    byId("sort").addEventListener("change", (event) => this.#set({ sort: event.target.value, order: "" }));
    byId("order").addEventListener("click", () => this.#set({ order: isDown(this.filters) ? "up" : "down" }));
    byId("clear").addEventListener("click", () => {
      this.#set({ ...DEFAULTS, sort: this.filters.sort, order: this.filters.order });
      byId("search").focus();
    });
    byId("newer").addEventListener("click", () => scrollTo({ top: 0 }));
    for (const [name, word] of [["", "All"], ...OUTCOMES]) {
      byId("chips").append(
        h("button", { class: `chip outcome-${name || "all"}`, type: "button", "data-outcome": name,
          click: () => this.#set({ outcome: this.filters.outcome === name ? "" : name }) },
        name && h("span", { class: "swatch" }), word, h("span", { class: "chip-count" })));
    }
    for (const [name] of OUTCOMES) byId("share").append(h("span", { class: `share-${name}` }));
    for (const [name, column] of Object.entries(COLUMNS)) {
      byId("sort").append(h("option", { value: name }, column.label));
      byId("columns").append(
        h("div", { class: `cell cell-${name}`, role: "columnheader" },
          h("button", { class: "column", type: "button", "data-column": name,
            click: () => this.#set(this.filters.sort === name ? { order: isDown(this.filters) ? "up" : "down" } : { sort: name, order: "" }) },
          column.label, h("span", { class: "arrow", "aria-hidden": "true" }))));
    }
  }

  /** Have other filters, as if the user had set them. */
  choose(change) {
    this.#set(change);
  }

  #set(change) {
    this.filters = { ...this.filters, ...change };
    scrollTo({ top: 0 });
    this.#select();
    this.#changed();
  }

  #showControls({ counts, total }) {
    const { filters } = this;
    if (byId("search").value !== filters.q) byId("search").value = filters.q;
    const all = [...this.#rows.values()];
    offer(byId("benchmark"), choices(all, "benchmark"), filters.benchmark, "All benchmarks");
    const there = filters.benchmark ? all.filter((row) => row.benchmark === filters.benchmark) : all;
    offer(byId("task"), choices(there, "name"), filters.task, "All tasks");
    const groups = choices(filters.task ? there.filter((row) => row.name === filters.task) : there, "group");
    byId("group").parentElement.hidden = !groups.length && !filters.group;
    offer(byId("group"), groups, filters.group, "All groups");
    byId("sort").value = filters.sort;
    const down = isDown(filters);
    byId("order").replaceChildren(icon(down ? "descending" : "ascending"));
    byId("order").setAttribute("aria-label", down ? "Sorted downwards; turn round" : "Sorted upwards; turn round");
    byId("clear").hidden = filtersText({ ...filters, sort: DEFAULTS.sort, order: "" }) === "";
    for (const chip of byId("chips").children) {
      const name = chip.dataset.outcome;
      const number = name ? counts[name] : total;
      chip.setAttribute("aria-pressed", String(filters.outcome === name));
      chip.hidden = name !== "" && number === 0 && filters.outcome !== name;
      setText(chip.querySelector(".chip-count"), count(number));
    }
    for (const button of byId("columns").querySelectorAll("button")) {
      const sorted = button.dataset.column === filters.sort;
      button.parentElement.setAttribute("aria-sort", sorted ? (down ? "descending" : "ascending") : "none");
      setText(button.querySelector(".arrow"), sorted ? (down ? "↓" : "↑") : "");
    }
  }

  #showSummary({ counts }) {
    const { outcome } = this.filters;
    const of = (name) => (outcome && outcome !== name ? 0 : counts[name]);
    const scored = of("success") + of("failed");
    setText(byId("rate"), percent(of("success"), scored));
    setText(byId("rate-words"), scored ? `success · ${count(of("success"))} of ${count(scored)} scored` : "success · nothing scored");
    OUTCOMES.forEach(([name], index) => {
      const piece = byId("share").children[index];
      piece.hidden = of(name) === 0;
      piece.style.flexGrow = String(of(name));
    });
  }

  // ---- rows ----

  #select() {
    const found = select(this.#rows.values(), this.filters, Date.now() / 1000);
    this.shown = found.shown;
    this.#showControls(found);
    this.#showSummary(found);
    const empty = byId("empty");
    empty.hidden = this.shown.length > 0;
    setText(empty, this.#rows.size ? "No episode matches these filters." : "There are no episodes yet.");
    byId("table").setAttribute("aria-rowcount", String(this.shown.length + 1));
    this.#draw();
  }

  #draw() {
    if (this.hidden) return;
    const height = this.#rowHeight(), box = byId("rows");
    box.style.height = `${height * this.shown.length}px`;
    const first = Math.max(0, Math.floor(-box.getBoundingClientRect().top / height) - OVERSCAN);
    const last = Math.min(this.shown.length, first + Math.ceil(innerHeight / height) + 2 * OVERSCAN);
    const wanted = this.shown.slice(first, last);
    const ids = new Set(wanted.map((row) => row.id));
    for (const [id, element] of this.#elements) {
      if (ids.has(id)) continue;
      element.remove();
      this.#elements.delete(id);
    }
    // Rows that stay are not taken out and put back, because that would take the focus from them.
    let place = box.firstElementChild;
    wanted.forEach((row, index) => {
      let element = this.#elements.get(row.id);
      if (!element) this.#elements.set(row.id, (element = makeRow(row, (id) => (this.active = id))));
      if (element === place) place = place.nextElementSibling;
      else box.insertBefore(element, place);
      element.style.transform = `translateY(${(first + index) * height}px)`;
      element.setAttribute("aria-rowindex", String(first + index + 2));
      fillRow(element, row, filtersText(this.filters));
    });
    if (scrollY <= AT_TOP) this.#unseen = 0;
    const newer = byId("newer");
    newer.hidden = this.#unseen === 0;
    setText(newer, `↑ ${plural(this.#unseen, "new episode")}`);
  }

  #rowHeight() {
    return parseFloat(getComputedStyle(byId("rows")).getPropertyValue("--row-height"));
  }

  #rowTop(index) {
    return byId("rows").getBoundingClientRect().top + index * this.#rowHeight();
  }

  #anchor() {
    const height = this.#rowHeight();
    const index = Math.max(0, Math.ceil(-byId("rows").getBoundingClientRect().top / height));
    const row = this.shown[index];
    return row && { id: row.id, top: this.#rowTop(index) };
  }
}

function makeRow(row, activated) {
  const cell = (name, ...children) => h("div", { class: `cell cell-${name}`, role: "cell" }, ...children);
  return h("div", { class: "row", role: "row", focusin: () => activated(row.id) },
    cell("outcome"),
    cell("task", h("a", { class: "row-link", dir: "auto" }), h("span", { class: "row-where" })),
    ...["reward", "steps", "duration", "policy", "started"].map((name) => cell(name, h("span"))));
}

function fillRow(element, row, filters) {
  if (!row) return;
  const now = Date.now() / 1000;
  const [outcome, task, ...others] = element.children;
  if (outcome.dataset.outcome !== row.outcome) {
    outcome.dataset.outcome = row.outcome;
    outcome.replaceChildren(badge(row.outcome));
  }
  setText(task.firstChild, row.task || row.name || row.id);
  if (filters !== undefined) task.firstChild.setAttribute("href", `#${row.id}${filters}`);
  setText(task.lastChild, row.outcome === "damaged" ? row.detail : origin(row));
  const texts = [reward(row.reward), row.steps === null ? "–" : count(row.steps), duration(lasted(row, now)), policyName(row) || "–", when(row.started, now)];
  texts.forEach((text, index) => setText(others[index].firstChild, text));
  others[1].dataset.unit = row.steps === 1 ? " step" : " steps"; // seen where there are no headings
  others[4].title = moment(row.started);
}

function origin(row) {
  const name = [row.benchmark, row.name].filter(Boolean).join(" / ") || row.url || row.id;
  return name + (row.seed === "" ? "" : ` · seed ${row.seed}`) + (row.sample ? ` · sample ${row.sample}` : "")
    + (row.group === "" ? "" : ` · group ${row.group}`);
}

/** An outcome as a coloured word. */
export function badge(outcome) {
  return h("span", { class: `badge outcome-${outcome}` }, icon(outcome), OUTCOME_WORDS[outcome]);
}

function offer(select, found, value, all) {
  const wanted = [["", all], ...found.map(([name, number]) => [name, `${name} (${count(number)})`])];
  if (value && !found.some(([name]) => name === value)) wanted.push([value, `${value} (0)`]);
  const key = JSON.stringify(wanted);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...wanted.map(([name, label]) => h("option", { value: name }, label)));
  }
  select.value = value;
}
