on("submit", "form", () => {
  if (find("#user").value !== data.user || find("#password").value !== data.password)
    return tell("Wrong user name or password.");
  if (data.remember && !find("#remember").checked) return lose();
  hush();
  view("inside");
  win();
});
const entering = () => [
  fill("#user", data.user),
  fill("#password", data.password, data.by_key),
  data.remember && tick("#remember"),
  click("#submit"),
];
