const row = (index) => find(`tr[data-index="${index}"]`);
const right = () => data.amounts.every((amount, index) => {
  if (data.remove && index === data.index) return !row(index);
  const wanted = index === data.index ? data.new : amount;
  return !!row(index) && row(index).querySelector("select").selectedOptions[0].label === wanted;
});
on("click", ".remove", (button) => {
  const gone = button.closest("tr");
  if (!data.remove || Number(gone.dataset.index) !== data.index) lose();
  gone.remove();
});
on("click", "#pay", () => {
  if (!right() || !data.pay) return lose();
  view("pay");
  win();
});
aim({
  solved: () => (data.pay ? task.won : right()),
  steps: () => [
    ...data.amounts.map((amount, index) => {
      if (data.remove && index === data.index)
        return row(index) ? click(row(index).querySelector(".remove")) : null;
      return choose(row(index).querySelector("select"), index === data.index ? data.new : amount);
    }),
    data.pay ? click("#pay") : null,
  ],
});
