// Which episodes are shown and in which order: plain functions of rows and the filters.

import { lasted } from "./format.js";

export const OUTCOMES = [
  ["success", "Success"],
  ["failed", "Failed"],
  ["unscored", "Unscored"],
  ["infrastructure", "Infrastructure"],
  ["running", "Running"],
  ["unfinished", "Broken off"],
  ["damaged", "Damaged"],
];
export const OUTCOME_WORDS = Object.fromEntries(OUTCOMES);
const RANK = Object.fromEntries(OUTCOMES.map(([name], index) => [name, index]));

/** What can be sorted by: its heading, the value of a row, and whether the largest comes first. */
export const COLUMNS = {
  outcome: { label: "Outcome", value: (row) => RANK[row.outcome], down: false },
  task: { label: "Task", value: (row) => (row.task || row.id).toLowerCase(), down: false },
  reward: { label: "Reward", value: (row) => row.reward, down: true },
  steps: { label: "Steps", value: (row) => row.steps, down: true },
  duration: { label: "Duration", value: (row, now) => lasted(row, now), down: true },
  policy: { label: "Policy", value: (row) => `${row.model} ${row.weights.padStart(12, "0")}`.toLowerCase(), down: false },
  started: { label: "Started", value: (row) => row.started, down: true },
};

export const DEFAULTS = { q: "", outcome: "", benchmark: "", task: "", group: "", sort: "started", order: "" };

/** The filters in the part of an address after #…?; unknown names and values that cannot be are left out. */
export function parseFilters(text) {
  const given = new URLSearchParams(text);
  const filters = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) filters[name] = given.get(name) ?? DEFAULTS[name];
  if (!Object.hasOwn(COLUMNS, filters.sort)) filters.sort = DEFAULTS.sort;
  if (!Object.hasOwn(RANK, filters.outcome)) filters.outcome = "";
  if (!["up", "down"].includes(filters.order)) filters.order = "";
  return filters;
}

/** The reverse: only what differs from the defaults. */
export function filtersText(filters) {
  const given = Object.entries(filters).filter(([name, value]) => value !== DEFAULTS[name]);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export const isDown = (filters) => (filters.order ? filters.order === "down" : COLUMNS[filters.sort].down);

/** What the search looks through, made once per row. */
export function prepare(row) {
  const words = [row.task, row.benchmark, row.name, row.id, row.model, row.weights && `v${row.weights}`,
    row.seed && `seed ${row.seed}`, row.group && `group ${row.group}`, row.reason, row.detail, row.url];
  row.haystack = words.join("\n").toLowerCase();
  return row;
}

/** Rows that pass everything but the outcome, how many there are of each outcome, and those shown, sorted. */
export function select(rows, filters, now) {
  const needles = filters.q.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = Object.fromEntries(OUTCOMES.map(([name]) => [name, 0]));
  let total = 0;
  const shown = [];
  for (const row of rows) {
    if (filters.benchmark && row.benchmark !== filters.benchmark) continue;
    if (filters.task && row.name !== filters.task) continue;
    if (filters.group && row.group !== filters.group) continue;
    if (!needles.every((needle) => row.haystack.includes(needle))) continue;
    counts[row.outcome] += 1;
    total += 1;
    if (!filters.outcome || row.outcome === filters.outcome) shown.push(row);
  }
  return { shown: sorted(shown, filters, now), counts, total };
}

function sorted(rows, filters, now) {
  const column = COLUMNS[filters.sort];
  const sign = isDown(filters) ? -1 : 1;
  const keyed = rows.map((row) => [column.value(row, now), row]);
  keyed.sort(([a, left], [b, right]) => {
    if (a !== b) {
      if (a === null) return 1; // what is not known comes last, whichever way round
      if (b === null) return -1;
      return a < b ? -sign : sign;
    }
    return (right.started ?? 0) - (left.started ?? 0) || (left.id < right.id ? -1 : 1);
  });
  return keyed.map(([, row]) => row);
}

/** The values there are of a field, and how many rows have each. */
export function choices(rows, field) {
  const found = new Map();
  for (const row of rows) if (row[field]) found.set(row[field], (found.get(row[field]) ?? 0) + 1);
  return [...found].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}
