on("submit", "form", () => {
  if (find("#user").value !== data.user || find("#password").value !== data.password)
    return tell("Wrong user name or password.");
  hush();
  view("inside");
});
on("click", ".section", (part) => {
  find("#title").textContent = part.textContent;
  view("section");
  if (part.textContent === data.section) win();
  else lose();
});
aim({ steps: () => (now_at("form")
  ? [fill("#user", data.user), fill("#password", data.password, data.by_key), click("#submit")]
  : [click(all(".section").find((part) => part.textContent === data.section))]) });
