// A page of samples: each action drawn on its screenshot, as the viewer draws it, and the outline that was labelled.

import { svg } from "./dom.js";
import { drawMarks } from "./marks.js";

function drawSample(sample) {
  const { action, sentence, outline } = sample.dataset;
  const image = sample.querySelector("img"), layer = sample.querySelector(".marks");
  if (!image) return;
  const [width, height] = [image.clientWidth, image.clientHeight];
  drawMarks(layer, JSON.parse(action), sentence, width, height);
  if (!outline || !width) return;
  const corners = outline.split(" ").map((corner) => corner.split(",").map(Number)); // shares of the sides
  const points = corners.map(([x, y]) => `${x * width},${y * height}`).join(" ");
  const drawing = layer.querySelector("svg");
  for (const name of ["box", "box-casing"]) drawing?.prepend(svg("polygon", { class: name, points }));
}

function drawAll() {
  document.querySelectorAll(".sample").forEach(drawSample);
}

window.addEventListener("load", drawAll);
window.addEventListener("resize", drawAll);
