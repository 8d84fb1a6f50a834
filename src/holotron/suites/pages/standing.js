// Where the task of a generated page stands: whether something was done that cannot be undone; whether all is done, null
// where the task is a question; and a text that differs once anything but the view was changed.
() => {
  const { solved, answer } = window.__page.judge();
  const copy = document.body.cloneNode(true);
  for (const part of copy.querySelectorAll("script, style, #notice, [data-distractor]")) part.remove();
  const values = [...document.querySelectorAll("input, textarea, select")]
    .filter((part) => !part.closest("[data-distractor]"))
    .map((part) => (["checkbox", "radio"].includes(part.type) ? part.checked : part.value));
  return [window.__task.done, answer === null ? solved : null, JSON.stringify([copy.textContent, values])];
}
