const numbers = all(".number"), at = (index) => Number(numbers[index].textContent);
on("click", ".step", ({ dataset }) => {
  numbers[dataset.at].textContent = Math.max(0, at(dataset.at) + Number(dataset.by));
});
const step = (wanted, index) => wanted === at(index) ? null
  : click(`.step[data-at="${index}"][data-by="${Math.sign(wanted - at(index))}"]`);
aim({ solved: () => data.after.every((wanted, index) => wanted === at(index)), steps: () => data.after.map(step) });
