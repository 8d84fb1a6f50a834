on("click", ".deed", (button) => {
  find("#question").textContent = `${button.dataset.deed}: this cannot be undone.`;
  find(".veil").dataset.deed = button.dataset.deed;
  find(".veil").hidden = false;
});
on("click", "#no", () => { find(".veil").hidden = true; });
on("click", "#yes", () => {
  find(".veil").hidden = true;
  if (find(".veil").dataset.deed !== data.deed) return lose();
  tell(`${data.deed}: done.`, true);
  win();
});
aim({ steps: () =>
  !shown(".veil") ? [click(`.deed[data-deed="${data.deed}"]`)]
    : [click(find(".veil").dataset.deed === data.deed ? "#yes" : "#no")] });
