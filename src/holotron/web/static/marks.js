// The action, drawn on the screenshot it was chosen from.

import { h, svg } from "./dom.js";

const SCALE = 1000; // points are 0–1000 of each side of an image of any size
const LARGEST_RING = 15, SMALLEST_RING = 8; // on a small picture a large ring would hide what it is about
const MOST_SHOWN = 80;

/** Draw an action over an image that is shown at this size. Nothing is drawn twice; call again when the size changes. */
export function drawMarks(layer, action, sentence, width, height) {
  layer.replaceChildren();
  if (!action || !width || !height) return;
  const drawing = svg("svg", { class: "marks-drawing", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  layer.append(drawing);
  const at = (x, y) => [(x / SCALE) * width, (y / SCALE) * height];
  const point = Number.isFinite(action.x) && Number.isFinite(action.y) ? at(action.x, action.y) : null;
  const draw = DRAWINGS[action.action];
  if (draw && (point || action.action === "scroll")) {
    const ring = Math.max(SMALLEST_RING, Math.min(width / 50, LARGEST_RING));
    draw({ drawing, layer, action, point: point ?? [width / 2, height / 2], ring, at, width, height });
  } else {
    layer.append(h("p", { class: "marks-banner" }, banner(action, sentence)));
  }
}

const DRAWINGS = {
  click({ drawing, layer, action, point, ring }) {
    target(drawing, point, ring);
    if (action.button !== "left") label(layer, `${action.button} button`, point);
  },
  double_click({ drawing, layer, point, ring }) {
    target(drawing, point, ring);
    strokes(drawing, circle(point, ring * 1.5));
    label(layer, "2×", point);
  },
  hover({ drawing, point: [x, y], ring }) {
    strokes(drawing, circle([x, y], ring), "dashed");
    const pointer = `M${x} ${y}v15l3.8-3.4 2.6 5.6 2.8-1.3-2.6-5.5 5-.4z`;
    drawing.append(svg("path", { class: "pointer", d: pointer }));
  },
  drag({ drawing, action, point: [x, y], at, ring }) {
    const end = at(action.to_x, action.to_y);
    const length = Math.hypot(end[0] - x, end[1] - y);
    const short = length > ring ? (length - ring) / length : 1; // the head touches the ring from outside
    strokes(drawing, circle([x, y], ring / 2));
    strokes(drawing, circle(end, ring));
    drawing.append(svg("circle", { class: "dot", cx: end[0], cy: end[1], r: 2.5 }));
    arrow(drawing, [x, y], [x + (end[0] - x) * short, y + (end[1] - y) * short]);
  },
  scroll({ drawing, layer, action, point: [x, y], width, height }) {
    const [dx, dy] = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0] }[action.direction];
    const side = dx ? width : height;
    const length = Math.min(Math.max((action.amount / 100) * side * 0.6, 44), side * 0.6);
    const half = length / 2;
    const middle = [clamp(x, half * Math.abs(dx), width), clamp(y, half * Math.abs(dy), height)];
    arrow(drawing, [middle[0] - dx * half, middle[1] - dy * half], [middle[0] + dx * half, middle[1] + dy * half]);
    label(layer, `scroll ${action.direction} ${action.amount}%`, middle);
  },
  type({ drawing, layer, action, point: [x, y] }) {
    strokes(drawing, `M${x} ${y - 12}v24M${x - 4} ${y - 12}h8M${x - 4} ${y + 12}h8`, "caret");
    label(layer, `${shortened(action.text)}${action.enter ? " ⏎" : ""}`, [x, y], "typed");
  },
  select({ drawing, layer, action, point, ring }) {
    target(drawing, point, ring);
    label(layer, `▾ ${shortened(action.option)}`, point);
  },
};

/** What has no place on the screen is said at its lower edge. */
function banner(action, sentence) {
  if (action.action === "press") {
    const keys = action.keys.split("+").map((key) => h("kbd", {}, key || "+"));
    return [...keys, action.repeat > 1 && ` ×${action.repeat}`];
  }
  if (action.action === "type") return `⌨ ${shortened(action.text)}${action.enter ? " ⏎" : ""}`;
  return shortened(sentence, 160);
}

function target(drawing, [x, y], ring) {
  drawing.append(svg("circle", { class: "pulse", cx: x, cy: y, r: ring }));
  strokes(drawing, circle([x, y], ring));
  const inner = ring * 0.6, outer = ring * 1.6;
  strokes(drawing, [[1, 0], [-1, 0], [0, 1], [0, -1]].map(([dx, dy]) =>
    `M${x + dx * inner} ${y + dy * inner}L${x + dx * outer} ${y + dy * outer}`).join(""));
  drawing.append(svg("circle", { class: "dot", cx: x, cy: y, r: 2.5 }));
}

function arrow(drawing, [x, y], [toX, toY]) {
  const angle = Math.atan2(toY - y, toX - x);
  const wing = (turn) => `M${toX} ${toY}L${toX - 13 * Math.cos(angle + turn)} ${toY - 13 * Math.sin(angle + turn)}`;
  strokes(drawing, `M${x} ${y}L${toX} ${toY}${wing(0.5)}${wing(-0.5)}`, "arrow");
}

/** A line with a light border, so that it is seen on light and dark pages. */
function strokes(drawing, path, kind = "") {
  for (const role of ["casing", "line"]) drawing.append(svg("path", { class: `${role} ${kind}`, d: path }));
}

const circle = ([x, y], r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;

function label(layer, text, [x, y], kind = "") {
  const element = h("p", { class: `marks-label ${kind}` }, text);
  layer.append(element);
  const { offsetWidth: width, offsetHeight: height } = element;
  const gap = LARGEST_RING + 12;
  const left = x + gap + width <= layer.clientWidth ? x + gap : Math.max(0, x - gap - width);
  element.style.left = `${left}px`;
  element.style.top = `${clamp(y, height / 2, layer.clientHeight) - height / 2}px`;
}

const clamp = (value, margin, side) => Math.max(margin, Math.min(value, side - margin));

function shortened(text, most = MOST_SHOWN) {
  const line = text.replace(/\s*\n\s*/g, " ⏎ ");
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
