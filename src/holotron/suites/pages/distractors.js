// What has nothing to do with the task goes when it is clicked away; a form that nobody asked for must not be sent.
{
  const near = (happened, selector) => happened.target.closest?.(selector);
  document.addEventListener("click", (happened) => {
    const button = near(happened, ".banner[data-distractor] button, .cover[data-distractor] button");
    if (!button) return;
    happened.stopImmediatePropagation();
    button.closest("[data-distractor]").remove();
  }, true);
  const sent = (happened) => {
    if (!near(happened, "[data-distractor=form]")) return;
    happened.preventDefault();
    happened.stopImmediatePropagation();
    lose();
  };
  document.addEventListener("submit", sent, true);
  document.addEventListener("click", (happened) => {
    if (near(happened, "[data-distractor=form] button")) sent(happened);
  }, true);
  const next = window.__page.next;
  const away = (cover) => {
    const [x, y] = middle(cover.querySelector("button:last-of-type"));
    return { kind: "click", x, y };
  };
  // What covers the page goes first, what covers a part of it where the next step is behind it.
  window.__page.next = () => {
    const cover = document.querySelector(".cover[data-distractor], .banner[data-distractor]");
    if (!cover) return next();
    if (cover.matches(".cover")) return away(cover);
    cover.style.display = "none";
    const step = next();
    cover.style.display = "";
    const box = cover.getBoundingClientRect();
    const behind = step && "x" in step && step.x > box.left - 2 && step.x < box.right + 2 && step.y > box.top - 2 &&
      step.y < box.bottom + 2;
    return behind ? away(cover) : step;
  };
}
