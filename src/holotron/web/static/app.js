// The page as a whole: which view is shown, what the address says, what keys do, and news from the server.

import { byId, setText } from "./dom.js";
import { plural } from "./format.js";
import { filtersText, parseFilters, prepare } from "./filter.js";
import { isId, openSource } from "./source.js";
import { EpisodeList } from "./list.js";
import { TrainingPanel } from "./training.js";
import { EpisodeView } from "./episode.js";

const POLL_MILLISECONDS = 1000;
const source = openSource();
const rows = new Map();
const list = new EpisodeList(() => keepAddress(`#${filtersText(list.filters)}`));
const training = new TrainingPanel((task) => list.choose({ task, group: "" }));
let place = 0; // how far down the list was when an episode was opened
let storeName = "";

const view = new EpisodeView(source, {
  back: goBack,
  neighbour: (by) => {
    const row = list.neighbour(view.id, by);
    if (row) keepAddress(address(row.id), true);
  },
  place: (id) => ({ index: list.shown.findIndex((row) => row.id === id), total: list.shown.length }),
  moved: (index) => keepAddress(address(view.id, index)),
});

// ---- addresses: #id/step?filters, and #?filters for the list ----

const address = (id, index) => `#${id}${index === undefined ? "" : `/${index + 1}`}${filtersText(list.filters)}`;

function goBack() {
  history.pushState(null, "", `#${filtersText(list.filters)}`);
  route();
}

/** Steps and filters change the address without filling the history with it. */
function keepAddress(hash, routed = false) {
  history.replaceState(null, "", hash);
  if (routed) route();
}

function route() {
  const [path, query] = location.hash.slice(1).split(/\?(.*)/s);
  const filters = parseFilters(query ?? "");
  if (filtersText(filters) !== filtersText(list.filters)) list.setFilters(filters);
  const [id, number] = path.split("/");
  const row = isId(id) ? rows.get(id) : undefined;
  if (!row) return showList();
  const index = /^[1-9]\d{0,8}$/.test(number ?? "") ? Number(number) - 1 : undefined;
  if (view.id === id) {
    if (index !== undefined && index !== view.index) view.show(index);
    return undefined;
  }
  if (view.id === null) place = scrollY;
  byId("list-view").hidden = true;
  view.root.hidden = false;
  scrollTo(0, 0);
  return view.open(row, index);
}

function showList() {
  const before = view.id;
  view.close();
  view.root.hidden = true;
  document.title = storeName ? `${storeName} · Holotron` : "Holotron";
  if (!byId("list-view").hidden && before === null) return;
  byId("list-view").hidden = false;
  list.setFilters(list.filters);
  scrollTo(0, place);
  if (before !== null) list.focus(before);
}

// ---- keys ----

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const { target } = event;
  const typing = target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (target.id === "search" && target.value) return; // the browser empties the field
    if (typing) target.blur();
    else if (view.id !== null) goBack();
    return;
  }
  if (typing) {
    if (target.id === "search" && ["ArrowDown", "Enter"].includes(event.key) && list.shown.length) {
      event.preventDefault();
      list.focus(list.shown[0].id);
    }
    return;
  }
  const act = (view.id === null ? LIST_KEYS : EPISODE_KEYS)[event.key];
  // In a text that can be scrolled, the arrows scroll it.
  if (!act || (target.matches("pre") && event.key.startsWith("Arrow"))) return;
  event.preventDefault();
  act();
}

function search() {
  if (view.id !== null) goBack();
  byId("search").focus();
  byId("search").select();
}

const help = () => byId("help").showModal();
const LIST_KEYS = { "/": search, "?": help, ArrowUp: () => list.move(-1), ArrowDown: () => list.move(1) };
const EPISODE_KEYS = {
  "/": search,
  "?": help,
  ArrowLeft: () => view.step(-1),
  ArrowRight: () => view.step(1),
  Home: () => view.show(0),
  End: () => view.show(view.steps.length - 1),
  ArrowUp: () => view.root.querySelector('[title$="(↑)"]').click(),
  ArrowDown: () => view.root.querySelector('[title$="(↓)"]').click(),
  p: () => view.togglePlay(),
  z: () => view.toggleSize(),
  c: () => view.copyAction(),
};

// ---- news ----

async function update() {
  const news = await source.changes();
  const known = new Set(rows.keys());
  if (news.head.whole) rows.clear();
  for (const id of news.removed) rows.delete(id);
  for (const row of news.rows) rows.set(row.id, prepare(row));
  const added = new Set(news.rows.map((row) => row.id).filter((id) => !known.has(id)));
  storeName = news.head.store;
  setText(byId("store-name"), storeName);
  if (news.rows.length || news.removed.length || news.head.whole) list.update(rows, added);
  await training.follow(source, news.head.trained ?? 0);
  const open = view.id !== null && news.rows.find((row) => row.id === view.id);
  if (open) await view.refresh(open);
  else view.tick();
  list.tick();
  return news;
}

function showConnection(state, text) {
  byId("connection").dataset.state = state;
  setText(byId("connection"), text);
}

async function poll() {
  // A page in the background need not ask; it catches up when it is looked at.
  if (!document.hidden) {
    try {
      await update();
      showConnection("live", "Live");
    } catch {
      showConnection("lost", "No connection");
    }
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

async function start() {
  try {
    const { head } = await update();
    if (source.live) showConnection("live", "Live");
    else showConnection("report", `Report of ${new Date(head.written * 1000).toLocaleDateString("en-GB", { dateStyle: "medium" })}`);
  } catch {
    showConnection("lost", "No connection");
  }
  addEventListener("hashchange", route);
  addEventListener("keydown", onKey);
  byId("help-button").addEventListener("click", help);
  await route();
  document.body.dataset.ready = plural(rows.size, "episode");
  if (source.live) setTimeout(poll, POLL_MILLISECONDS);
}

start();
