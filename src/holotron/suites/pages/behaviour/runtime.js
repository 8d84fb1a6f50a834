// What every generated page shares: a few words to write its behaviour in, and its task as seen from outside
// (window.__task, window.__page). A page's own script follows in the same scope and calls `aim` once.
const find = (what) => (typeof what === "string" ? document.querySelector(what) : what);
const all = (selector) => [...document.querySelectorAll(selector)];
const shown = (what) => !!find(what) && find(what).getClientRects().length > 0;
const on = (event, selector, act) =>
  document.addEventListener(event, (happened) => {
    const target = happened.target.closest?.(selector);
    if (target) act(target, happened);
  });
const view = (name) => {
  for (const part of all("[data-view]")) part.hidden = part.dataset.view !== name;
  scrollTo(0, 0);
};
const now_at = (name) => shown(`[data-view="${name}"]`);
const tell = (text, good = false) => {
  const notice = find("#notice");
  notice.textContent = text;
  notice.className = good ? "notice good" : "notice bad";
  notice.hidden = false;
  scrollTo(0, 0);
};
const hush = () => { find("#notice").hidden = true; };

// ---- the task ----

// won: it was solved by an act, such as sending a form. done: something was done that cannot be undone.
const task = (window.__task = { won: false, done: false, reward: 0 });
const win = () => { task.won = true; };
const lose = () => { task.done = true; };
// steps(): what is left to do, in order, where null is done already; solved(): for tasks decided by what the page
// shows; answer: the text that is asked for.
let goal = { steps: () => [] };
const aim = (given) => { goal = given; };
const solved = () => (goal.solved ? goal.solved() : task.won || "answer" in goal);

const click = (what) => ({ kind: "click", at: find(what) });
const tick = (what, wanted = true) => (find(what).checked === wanted ? null : click(what));
const choose = (what, option) =>
  find(what).selectedOptions[0]?.label === option ? null : { kind: "select", at: find(what), option };
const fill = (what, text, enter = false) => {
  const field = find(what);
  if (field.value === text && (!enter || data.deaf)) return null;
  if (field.value === text && document.activeElement === field) return { kind: "press", keys: "Enter" };
  return { kind: "type", at: field, text, clear: field.value !== "", enter };
};
// Only has to be seen.
const read = (what) => (scroll_to(find(what)) ? { kind: "read", at: find(what) } : null);

// ---- where things are ----

const box_of = (part) => {
  if (part === document.scrollingElement) return { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
  return part.getClientRects()[0] || part.getBoundingClientRect();
};
const middle = (part) => {
  const box = box_of(part);
  const left = Math.max(box.left, 0), right = Math.min(box.right, innerWidth);
  return [(left + right) / 2, (box.top + box.bottom) / 2];
};
const scrollers = (part) => {
  const found = [];
  for (let above = part.parentElement; above && above !== document.body; above = above.parentElement)
    if (/auto|scroll/.test(getComputedStyle(above).overflowY) && above.scrollHeight > above.clientHeight)
      found.unshift(above);
  return [document.scrollingElement, ...found];
};
// The scroll that brings an element nearer, or null if its middle is in sight. What scrolls within the page comes into
// sight first, and is turned in smaller steps that leave nothing out.
const scroll_to = (part) => {
  const chain = [...scrollers(part), part];
  for (const [index, scroller] of chain.slice(0, -1).entries()) {
    const box = box_of(chain[index + 1]), room = box_of(scroller), half = Math.min((box.bottom - box.top) / 2, 12);
    const y = (box.top + box.bottom) / 2;
    const direction = y - half < room.top ? "up" : y + half > room.bottom ? "down" : null;
    if (!direction) continue;
    if (scroller === document.scrollingElement) return { kind: "scroll", direction, amount: 50 };
    const [at_x, at_y] = middle(scroller);
    return { kind: "scroll", direction, amount: 20, x: at_x, y: at_y };
  }
  return null;
};
const reached = (part, x, y) => {
  const hit = document.elementFromPoint(x, y);
  return !!hit && (part.contains(hit) || hit.contains(part) && hit.tagName === "LABEL");
};

let scrolled = null;
window.__page = {
  // The next right step, null where none leads to success any more.
  next() {
    const { at, ...step } = (!task.won && goal.steps().find(Boolean)) || {};
    if (!step.kind) return solved() ? { kind: "answer", text: goal.answer ?? "" } : null;
    if (!at) return step.kind === "press" ? step : null;
    const scroll = scroll_to(at);
    if (scroll) return scroll;
    const [x, y] = middle(at);
    return reached(at, x, y) ? { ...step, x, y } : null;
  },
  judge: () => ({ solved: !task.done && solved(), answer: goal.answer ?? null }),
  // Where those of these elements are that are in sight, for whoever wants to do something wrong.
  spots: (selector) => all(selector).filter((part) => shown(part) && reached(part, ...middle(part))).map(middle),
  // Whether a wheel turned there will move something; `scrolled` then waits until it has.
  will_scroll(x, y, dy) {
    scrolled = new Promise((resolve) => document.addEventListener("scroll", resolve, { capture: true, once: true }));
    const under = document.elementFromPoint(x, y);
    const parts = under ? [...scrollers(under), ...(under.tagName === "TEXTAREA" ? [under] : [])] : [];
    return parts.some((part) => (dy > 0 ? part.scrollTop + part.clientHeight < part.scrollHeight - 1 : part.scrollTop > 0));
  },
  scrolled: () => Promise.race([scrolled, new Promise((resolve) => setTimeout(resolve, 300))]),
};

// Links lead nowhere by themselves, forms send nothing, and lists drawn outside of the page would swallow the next
// click.
document.addEventListener("click", (happened) => { if (happened.target.closest("a")) happened.preventDefault(); });
document.addEventListener("submit", (happened) => happened.preventDefault());
// Where somebody wrote a button and no form, Enter sends nothing.
document.addEventListener("keydown", (happened) => {
  if (data.deaf && happened.key === "Enter" && happened.target.tagName === "INPUT") happened.preventDefault();
});
document.addEventListener("mousedown", (happened) => {
  const list = happened.target.closest("select");
  if (list) { happened.preventDefault(); list.focus(); }
});
