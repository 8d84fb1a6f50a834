const boxes = all(".item input");
on("click", "#cancel", () => boxes.forEach((box, index) => { box.checked = data.before[index]; }));
on("click", "#save", () => {
  if (!boxes.every((box, index) => box.checked === data.after[index])) return lose();
  tell("Your settings were saved.", true);
  win();
});
aim({ steps: () => [...boxes.map((box, index) => tick(box, data.after[index])), click("#save")] });
