// Where episodes come from: the server that sent this page, or the page itself if it is a report.

import { byId, h } from "./dom.js";

const DIGEST = /^[0-9a-f]{64}$/;
const ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export const isId = (text) => ID.test(text);

/** The source of this page. `changes` gives rows, `training` the lines of a run after a step, `episode` one with
 * its steps from `first` on. */
export function openSource() {
  const block = byId("holotron-data");
  return block ? new ReportSource(JSON.parse(block.textContent)) : new ServerSource();
}

class ServerSource {
  live = true;
  #cursor = "";

  async changes() {
    const answer = await this.#get(`api/episodes?since=${encodeURIComponent(this.#cursor)}`);
    this.#cursor = answer.head.cursor;
    return answer;
  }

  training(after) {
    return this.#get(`api/training?after=${after}`);
  }

  episode(id, first = 0) {
    return this.#get(`api/episodes/${id}?first=${first}`);
  }

  imageUrl(digest) {
    return DIGEST.test(digest ?? "") ? `api/images/${digest}.png` : null;
  }

  download(id) {
    save(`api/episodes/${id}/download`, id);
  }

  async #get(path) {
    const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(20_000) });
    if (!response.ok) throw new Error(response.status === 404 ? "There is no such episode." : `HTTP ${response.status}`);
    return response.json();
  }
}

class ReportSource {
  live = false;
  #data;

  constructor(data) {
    this.#data = data;
  }

  async changes() {
    return { head: { whole: true, ...this.#data.head }, removed: [], rows: this.#data.rows };
  }

  async training() {
    return { lines: this.#data.lines };
  }

  async episode(id, first = 0) {
    const row = this.#data.rows.find((each) => each.id === id);
    if (!row) throw new Error("There is no such episode in this report.");
    if (row.outcome === "damaged") return { episode: null, steps: [], views: [], damage: row.detail };
    const { steps, ...episode } = JSON.parse(byId(`episode-${id}`).textContent);
    const { views, damage } = JSON.parse(byId(`views-${id}`).textContent);
    return { episode, steps: steps.slice(first), views: views.slice(first), damage };
  }

  imageUrl(digest) {
    if (!DIGEST.test(digest ?? "")) return null;
    if (this.#data.head.images === "files") return `images/${digest}.png`;
    const block = byId(`image-${digest}`);
    return block && `data:image/png;base64,${block.textContent}`;
  }

  download(id) {
    // The text as it was stored: parsed and written again, large whole numbers would be rounded.
    const url = URL.createObjectURL(new Blob([byId(`episode-${id}`).textContent], { type: "application/json" }));
    save(url, id);
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

function save(url, id) {
  const link = h("a", { href: url, download: `${id}.json`, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
