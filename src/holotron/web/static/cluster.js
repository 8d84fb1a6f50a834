// A cluster as `holotron status` tells of it, asked again every two seconds. All that is shown is set as text.

import { byId, h, setText } from "./dom.js";
import { count, plural } from "./format.js";

const PAUSE = 2000;
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

const rate = (value) => (value === undefined || value === null ? "–" : value < 10 ? value.toFixed(1) : count(Math.round(value)));
const whole = (value) => (value === undefined || value === null ? "" : count(value));
const share = (value) => (value === undefined ? "" : `${Math.round(100 * value)}%`);
const names = (value = []) => value.join(", ");

// Of each table: what stands above a column, and what a row shows there; the third says what kind of cell it is.
const REPLICAS = [
  ["Replica", (row) => row.name],
  ["State", (row) => row.state, "state"],
  ["Machine", (row) => row.host],
  ["Process", (row) => row.pid ?? "", "number"],
  ["Sessions", (row) => whole(row.sessions), "number"],
  ["Turns now", (row) => whole(row.turns), "number"],
  ["Tokens/s", (row) => rate(row.tokens_per_second), "number"],
  ["Memory used", (row) => share(row.engine?.page_share), "number"],
  ["Restarts", (row) => whole(row.restarts), "number"],
];
const HOSTS = [
  ["Host", (row) => row.name],
  ["State", (row) => row.state, "state"],
  ["Machine", (row) => row.machine ?? ""],
  ["Finished", (row) => whole(row.finished), "number"],
  ["Lost", (row) => whole(row.lost), "number"],
  ["Steps/s", (row) => (row.steps === undefined ? "" : rate(row.steps_per_second)), "number"],
  ["Plays", (row) => [row.suite, names(row.playing)].filter(Boolean).join(": "), "long"],
];
const MACHINES = [
  ["Machine", (row) => row.address],
  ["State", (row) => (row.alive ? "up" : "gone"), "state"],
  ["CPUs", (row) => whole(row.cpus), "number"],
  ["GPUs", (row) => whole(row.gpus), "number"],
];
const TABLES = { replicas: REPLICAS, hosts: HOSTS, machines: MACHINES };

function figures(status) {
  const { replicas, hosts, machines } = status;
  const up = (rows) => rows.filter((row) => row.state === "up").length;
  const found = [];
  if (replicas) found.push(["Replicas up", `${up(replicas)} of ${replicas.length}`, up(replicas) < replicas.length]);
  if (replicas) found.push(["Open sessions", count(status.open_sessions)]);
  if (replicas) found.push(["Moved", count(status.moved)], ["Rebuilt", count(status.rebuilt)]);
  if (replicas) found.push(["Lost", count(status.lost), status.lost > 0]);
  if (replicas) found.push(["Tokens/s", rate(status.tokens_per_second)]);
  if (hosts) found.push(["Hosts up", `${up(hosts)} of ${hosts.length}`, up(hosts) < hosts.length]);
  if (hosts) found.push(["Steps/s", rate(status.steps_per_second)]);
  if (machines) found.push(["Machines", count(machines.filter((row) => row.alive).length)]);
  return found;
}

const kindOf = (state) => (state === "up" ? "up" : state === "down" || state === "gone" ? "down" : "");

function cell(title, kind, value) {
  const text = String(value), shown = kind === "state" ? h("span", { class: `state ${kindOf(text)}` }, text) : text;
  return h("td", { class: kind === "state" ? null : kind ?? null, "data-title": title, title: text.length > 24 ? text : null }, shown === "" ? null : shown);
}

function fill(part, rows) {
  const section = byId(part), columns = TABLES[part];
  section.hidden = rows === undefined;
  if (rows === undefined) return;
  const head = h("tr", {}, columns.map(([title, , kind]) => h("th", { class: kind === "number" ? kind : null, scope: "col" }, title)));
  const body = rows.map((row) => h("tr", {}, columns.map(([title, show, kind]) => cell(title, kind, show(row)))));
  section.querySelector("table").replaceChildren(h("thead", {}, head), h("tbody", {}, body));
}

function show(status) {
  byId("problems").replaceChildren(...status.problems.map((text) => h("li", {}, text)));
  byId("figures").replaceChildren(
    ...figures(status).map(([name, value, bad]) => h("div", { class: bad ? "bad" : null }, h("dt", {}, name), h("dd", {}, value))),
  );
  for (const part of Object.keys(TABLES)) fill(part, status[part]);
  const time = (seconds) => CLOCK.format(new Date(seconds * 1000));
  const events = status.events.map((event) => h("li", {}, h("time", {}, time(event.at)), h("span", {}, event.text)));
  byId("events").querySelector("ol").replaceChildren(...(events.length ? events : [h("p", {}, "Nothing since this page was begun.")]));
  say(`as of ${time(status.now)}${status.events.length ? `, ${plural(status.events.length, "event")}` : ""}`, false);
}

function say(text, late) {
  setText(byId("seen"), text);
  byId("seen").classList.toggle("late", late);
}

async function follow() {
  try {
    const answer = await fetch("api/status", { cache: "no-store" });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    show(await answer.json());
    document.body.dataset.ready = "";
  } catch {
    say("holotron status --page does not answer any more; what is shown is old", true);
  }
  setTimeout(follow, PAUSE);
}

follow();
