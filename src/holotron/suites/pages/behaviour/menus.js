on("click", "body", (_, { target }) => {
  const opener = target.closest("[data-opens]");
  const keep = opener ? find("#" + opener.dataset.opens) : null;
  const was = keep && !keep.hidden;
  for (const list of all(".list")) if (!keep || !list.contains(keep) || list === keep) list.hidden = true;
  if (keep) keep.hidden = was;
});
on("click", "[data-entry]", (entry) => {
  if (entry.dataset.entry !== data.entry) return lose();
  tell(data.done, true);
  win();
});
const entry = `[data-entry="${data.entry}"]`;
const opened = (name) => (shown("#" + name) ? null : click(`[data-opens="${name}"]`));
aim({ steps: () => [...data.path.map(opened), click(entry)] });
