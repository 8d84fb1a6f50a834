const boxes = all(".kind");
on("change", ".kind", () => {
  const any = boxes.some((box) => box.checked);
  for (const tile of all("[data-kind]")) tile.hidden = any && !boxes[tile.dataset.kind].checked;
});
aim({
  solved: () => boxes.every((box, index) => box.checked === (index === data.wanted)),
  steps: () => boxes.map((box, index) => tick(box, index === data.wanted)),
});
