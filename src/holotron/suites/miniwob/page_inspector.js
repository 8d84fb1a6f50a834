// Elements that match a selector and, where given, a text: their boxes, what they hold, and a point that touches them.
(selector, text) => {
  const WIDTH = 160, HEIGHT = 210;
  const words = (element) => (element.innerText ?? element.textContent ?? "").trim();
  // The point nearest the middle at which the mouse meets the element and nothing that lies over it.
  const touch = (element) => {
    let best = null, distance = Infinity;
    for (const box of element.getClientRects()) {
      const middle_x = box.left + box.width / 2, middle_y = box.top + box.height / 2;
      for (let i = 0; i <= 8; i++) for (let j = 0; j <= 8; j++) {
        const x = Math.round(box.left + 1 + (box.width - 2) * i / 8), y = Math.round(box.top + 1 + (box.height - 2) * j / 8);
        if (x < 0 || y < 0 || x >= WIDTH || y >= HEIGHT) continue;
        const away = Math.hypot(x - middle_x, y - middle_y);
        if (away < distance && element.contains(document.elementFromPoint(x, y))) [best, distance] = [[x, y], away];
      }
    }
    return best;
  };
  const found = [];
  for (const element of document.querySelectorAll(selector)) {
    if (text !== null && words(element) !== text) continue;
    const box = element.getBoundingClientRect();
    const attributes = {};
    for (const { name, value } of element.attributes) attributes[name] = value;
    found.push({
      point: touch(element),
      left: box.left, top: box.top, width: box.width, height: box.height,
      text: words(element), value: element.value ?? null, checked: element.checked === true, attributes,
    });
  }
  return found;
}
