const boxes = () => all(".item input");
aim({
  solved: () => boxes().every((box, index) => box.checked === data.wanted[index]),
  steps: () => boxes().map((box, index) => tick(box, data.wanted[index])),
});
