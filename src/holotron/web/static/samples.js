// A page of samples: each action drawn on its screenshot, as the viewer draws it, and the box that was labelled.

import { svg } from "./dom.js";
import { drawMarks } from "./marks.js";

function drawSample(sample) {
  const { action, sentence, box } = sample.dataset;
  const image = sample.querySelector("img"), layer = sample.querySelector(".marks");
  if (!image) return;
  const [width, height] = [image.clientWidth, image.clientHeight];
  drawMarks(layer, JSON.parse(action), sentence, width, height);
  if (!box || !width) return;
  const [left, top, right, bottom] = box.split(",").map(Number); // shares of the sides
  const place = { x: left * width, y: top * height, width: (right - left) * width, height: (bottom - top) * height };
  const drawing = layer.querySelector("svg");
  if (drawing) drawing.prepend(svg("rect", { class: "box-casing", ...place }), svg("rect", { class: "box", ...place }));
}

function drawAll() {
  document.querySelectorAll(".sample").forEach(drawSample);
}

window.addEventListener("load", drawAll);
window.addEventListener("resize", drawAll);
