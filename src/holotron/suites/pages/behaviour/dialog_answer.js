on("click", ".dialog button", (button) => {
  find(".veil").hidden = true;
  if (button.id === "b" + data.wanted) win(); else lose();
});
aim({ steps: () => [click("#b" + data.wanted)] });
