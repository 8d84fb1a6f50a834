// Numbers and times for people.

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const WHOLE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const count = (value) => value.toLocaleString("en-US");

export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

/** 0.042 → "42 ms", 1.234 → "1.2 s", 83 → "1:23 min", 4000 → "1:06 h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || seconds < 0) return "–";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const [large, unit] = seconds < 3600 ? [seconds, "min"] : [seconds / 60, "h"];
  const rounded = Math.floor(large);
  return `${Math.floor(rounded / 60)}:${String(rounded % 60).padStart(2, "0")} ${unit}`;
}

/** How long an episode took, or has been taking; of an unfinished one that is not known. */
export function lasted(row, now) {
  if (row.started === null) return null;
  if (row.ended !== null) return Math.max(0, row.ended - row.started);
  return row.outcome === "running" ? Math.max(0, now - row.started) : null;
}

/** When, as short as it stays clear. */
export function when(seconds, now) {
  if (seconds === null) return "–";
  const ago = now - seconds;
  if (ago >= -5 && ago < 60) return "just now";
  if (ago >= 60 && ago < 3600) return `${Math.floor(ago / 60)} min ago`;
  const date = new Date(seconds * 1000);
  const today = new Date(now * 1000).toDateString() === date.toDateString();
  return today ? CLOCK.format(date) : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}

export const moment = (seconds) => (seconds === null ? "" : WHOLE.format(new Date(seconds * 1000)));

export const reward = (value) => (value === null || value === undefined ? "–" : String(+value.toFixed(3)));

/** A share of a whole in percent, "–" of nothing. */
export function percent(part, whole) {
  if (!whole) return "–";
  const value = (100 * part) / whole;
  return `${value === 100 || value === 0 ? value : value.toFixed(1)}%`;
}

/** Weight versions are mostly counted; only those need a letter before them. */
export const version = (value) => (/^\d+$/.test(value) ? `v${value}` : String(value));

export const policyName = (row) => row.model + (row.weights === "" ? "" : ` · ${version(row.weights)}`);
