on("click", ".result", (link) => {
  if (!found() || Number(link.dataset.index) !== data.wanted) return lose();
  find("#title").textContent = link.textContent;
  view("result");
  win();
});
if (data.wanted < 0) aim({ solved: found, steps: () => (found() ? [] : searching()) });
else aim({ steps: () => (found() ? [click(`.result[data-index="${data.wanted}"]`)] : searching()) });
