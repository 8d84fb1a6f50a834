let by = "", down = false;
const draw = () => {
  find("#head").innerHTML = data.columns.map((name) =>
    `<th data-sort="${name}">${name}${name === by ? (down ? " ▼" : " ▲") : ""}</th>`).join("");
  const rows = [...data.rows];
  if (by) rows.sort((a, b) => (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) * (down ? -1 : 1));
  const cells = (row) => data.columns.map((name) => `<td>${row[name]}</td>`).join("");
  find("tbody").innerHTML = rows.map((row) => `<tr>${cells(row)}</tr>`).join("");
};
on("click", "[data-sort]", (head) => {
  down = by === head.dataset.sort && !down;
  by = head.dataset.sort;
  draw();
});
draw();
const sorted = () => by === data.column && down === data.down;
aim({ solved: sorted, steps: () => [sorted() ? null : click(`[data-sort="${data.column}"]`)] });
