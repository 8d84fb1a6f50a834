// Elements from plain values. Whatever comes from an episode goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes; functions listen, null and false leave an attribute out, strings become text. */
export function h(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Set a text only where it differs: a selection inside it then survives. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const ICONS = {
  back: "M12 4 6 10l6 6",
  up: "m4 12 6-6 6 6",
  down: "m4 8 6 6 6-6",
  previous: "m12.5 4.5-6 5.5 6 5.5z",
  next: "m7.5 4.5 6 5.5-6 5.5z",
  first: "M5.5 4.5v11M15 4.5 8.5 10l6.5 5.5z",
  last: "M14.5 4.5v11M5 4.5l6.5 5.5L5 15.5z",
  play: "m6 4 10 6-10 6z",
  pause: "M7 4.5v11M13 4.5v11",
  copy: "M7 7V4h9v9h-3M4 7h9v9H4z",
  download: "M10 3v9m-4-4 4 4 4-4M4 16h12",
  fit: "M8 3H3v5M12 3h5v5M8 17H3v-5M12 17h5v-5",
  ascending: "M10 16V4m-4 4 4-4 4 4",
  descending: "M10 4v12m-4-4 4 4 4-4",
  success: "m4.5 10.5 3.5 3.5 7.5-8",
  failed: "m5.5 5.5 9 9m0-9-9 9",
  infrastructure: "M10 4v7.5M10 15.2v.3",
  unscored: "M5 10h10",
  unfinished: "M5 10h2m2 0h2m2 0h2",
  damaged: "M11 3 6 11h4l-1 6 5-8h-4z",
};

/** A small drawing that is only there to be seen; a screen reader says the label of the button. */
export function icon(name) {
  const path = ICONS[name];
  return svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 20 20", "aria-hidden": "true" },
    path ? svg("path", { d: path }) : svg("circle", { cx: 10, cy: 10, r: 4.5 }));
}

/** Copy a text, also where the clipboard interface is kept from the page. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "hidden-label", readonly: true, "aria-hidden": "true" });
    area.value = text;
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return copied;
  }
}

/** Say something to those who listen to the page. */
export function announce(text) {
  byId("announce").textContent = text;
}
