const wrong = () =>
  data.fields.some(([id, value]) => find("#" + id).value.trim() !== value) ||
  (data.lists || []).some(([id, value]) => find("#" + id).selectedOptions[0].label !== value) ||
  (data.boxes || []).some(([id, value]) => find("#" + id).checked !== value);
const filling = () => [
  ...data.fields.map(([id, value], at) => fill("#" + id, value, !!data.by_key && at === data.fields.length - 1)),
  ...(data.lists || []).map(([id, value]) => choose("#" + id, value)),
  ...(data.boxes || []).map(([id, value]) => tick("#" + id, value)),
  click("#submit"),
];
on("submit", "form", () => {
  if (data.fields.some(([id]) => !find("#" + id).value.trim())) return tell("Please fill in all fields.");
  if (wrong()) return lose();
  hush();
  view("thanks");
  win();
});
