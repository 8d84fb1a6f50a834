on("submit", "form", () => {
  const text = find("#text").value.trim();
  if (!text) return tell("Please write something.");
  if (text !== data.text) return lose();
  find("#all").insertAdjacentHTML("beforeend", `<div class="item"><b>You</b><br>${text}</div>`);
  find("#text").value = "";
  win();
});
aim({ steps: () => [fill("#text", data.text), click("#submit")] });
