on("click", ".edit", (button) => {
  const row = button.closest("tr"), cell = row.querySelector(".value");
  if (row.querySelector("input")) {
    const value = row.querySelector("input").value.trim();
    cell.textContent = value;
    button.textContent = data.word;
    if (row.dataset.name !== data.label && value !== data.old[row.dataset.name]) lose();
  } else {
    const input = document.createElement("input");
    input.value = cell.textContent;
    cell.replaceChildren(input);
    button.textContent = data.save;
  }
});
const cell = `tr[data-name="${data.label}"] `;
const open = () => find(cell + "input");
aim({
  solved: () => !open() && find(cell + ".value").textContent === data.new,
  steps: () => [
    open() ? fill(cell + "input", data.new) : null,
    !open() && find(cell + ".value").textContent === data.new ? null : click(cell + ".edit"),
  ],
});
