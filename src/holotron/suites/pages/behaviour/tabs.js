const turn = (name) => {
  for (const tab of all(".tabs > div")) tab.classList.toggle("now", tab.textContent === name);
  for (const panel of all("[data-panel]")) panel.hidden = panel.dataset.panel !== name;
};
on("click", ".tabs > div", (tab) => turn(tab.textContent));
turn(data.first);
const opened = (name) =>
  shown(`[data-panel="${name}"]`) ? null : click(all(".tabs > div").find((tab) => tab.textContent === name));
