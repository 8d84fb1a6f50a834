// Takes away what a task names and what would be clicked first, so that the task cannot be done. Says whether it did.
(instruction) => {
  const step = window.__page.next();
  if (step?.kind !== "click") return false;
  const hit = document.elementFromPoint(step.x, step.y);
  const control = hit.closest("button, a, label, th, .head, .tile, .tabs > *, .list > *, [data-opens], [data-press]");
  const said = (element) => element.textContent.replace(/\s+/g, " ").trim().toLowerCase();
  const row = (control || hit).closest("tr, .item, .tile, li");
  const gone = row || control;
  if (!gone || gone.closest("[data-distractor]")) return false;
  const words = [control || hit, ...(row ? row.querySelectorAll("*") : [])].map(said);
  const named = words.some((word) => word.length > 2 && instruction.toLowerCase().includes(word));
  const others = [...document.querySelectorAll("body *")].filter((other) =>
    !gone.contains(other) && !other.contains(gone) && !other.children.length && other.checkVisibility());
  const alone = row || !others.some((other) => said(other) === said(control));
  if (!named || !alone) return false;
  gone.style.setProperty("display", "none", "important");
  return true;
}
