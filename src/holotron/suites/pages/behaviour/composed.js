// What pages put together from blocks share. data.blocks: those in which something is to be done, in order, each with its
// parts and how they are wanted, the openers that lead to it from the outermost on, and its button, if it has one.
const by_id = (id) => document.getElementById(id);
const number_in = (id) => Number(by_id(id).textContent);
const PARTS = {
  field: {
    is: (part) => by_id(part.id).value.trim() === part.wanted,
    step: (part, enter) => fill(by_id(part.id), part.wanted, enter),
    missing: (part) => part.wanted && !by_id(part.id).value.trim(),
  },
  box: {
    is: (part) => by_id(part.id).checked === part.wanted,
    step: (part) => tick(by_id(part.id), part.wanted),
  },
  radios: {
    is: (part) => by_id(`${part.id}-${part.wanted}`).checked,
    step: (part) => tick(by_id(`${part.id}-${part.wanted}`)),
    missing: (part) => !all(`[name="${part.id}"]`).some((button) => button.checked),
  },
  list: {
    is: (part) => by_id(part.id).selectedOptions[0].label === part.wanted,
    step: (part) => choose(by_id(part.id), part.wanted),
  },
  count: {
    is: (part) => number_in(part.id) === part.wanted,
    step: (part) =>
      PARTS.count.is(part) ? null : click(by_id(part.id + (number_in(part.id) < part.wanted ? "-more" : "-less"))),
  },
  chips: {
    is: (part) => by_id(part.id).dataset.now === String(part.wanted),
    step: (part) => (PARTS.chips.is(part) ? null : click(by_id(part.id).children[part.wanted])),
    missing: (part) => by_id(part.id).dataset.now === undefined,
  },
  press: {
    is: (part) => !!part.pressed,
    step: (part) => (part.pressed ? null : click(by_id(part.id))),
  },
  fact: { is: () => true, step: (part) => read(by_id(part.id)) },
};

// ---- what the parts do by themselves ----

on("click", ".more, .less", (button) => {
  const [id, way] = button.id.split("-");
  by_id(id).textContent = Math.max(0, number_in(id) + (way === "more" ? 1 : -1));
});
on("click", ".chips > *", (chip) => {
  const chips = [...chip.parentElement.children], now = chips.indexOf(chip), rising = chip.parentElement.matches(".stars");
  chip.parentElement.dataset.now = now;
  for (const [index, other] of chips.entries()) other.classList.toggle("now", rising ? index <= now : index === now);
});
on("click", "[data-opens]", (opener) => {
  const part = by_id(opener.dataset.opens);
  if (part.matches(".list, .inside")) part.hidden = !part.hidden;
  else if (part.matches(".panel")) {
    for (const panel of all(".panel")) panel.hidden = panel !== part;
    for (const tab of all(".tabs > div")) tab.classList.toggle("now", tab === opener);
  } else if (part.matches("[data-view]")) view(part.id);
  else part.hidden = false;
});
// A menu goes when anything else is clicked.
document.addEventListener("click", (happened) => {
  const opener = happened.target.closest("[data-opens]");
  for (const list of all(".menu > .list")) if (opener?.dataset.opens !== list.id) list.hidden = true;
});
on("click", ".close", (button) => { button.closest(".veil").hidden = true; });
on("click", ".back", () => view("start"));
on("click", "[data-press]", (button) => {
  const parts = data.blocks.filter((block) => !block.done).flatMap((block) => block.parts);
  const wanted = parts.find((part) => part.kind === "press" && part.id === button.id && !part.pressed);
  if (!wanted) return lose();
  wanted.pressed = true;
  if (button.dataset.press === "gone") button.closest(".item, tr, .tile").remove();
  tell(wanted.says, true);
});

// ---- what is to be done ----

const is_right = (block) => block.parts.every((part) => PARTS[part.kind].is(part));
const is_done = (block) => (block.button ? !!block.done : is_right(block));
const send = (id) => {
  const block = data.blocks.find((known) => known.id === id), veil = by_id(id).closest(".veil");
  if (block && !block.done) {
    if (block.parts.some((part) => PARTS[part.kind].missing?.(part))) return tell(data.missing);
    if (!is_right(block)) return lose();
    block.done = true;
  }
  if (veil) veil.hidden = true;
  for (const field of by_id(id).querySelectorAll("input.new, textarea.new")) field.value = "";
  tell(block?.says || data.says, true);
};
on("submit", "form", (form) => send(form.id));
// What stands in the way goes first, then every opener on the way in.
const toward = (block) => {
  const home = by_id(block.id), veil = all(".veil").find(shown), list = all(".menu > .list").find(shown);
  if (list && !block.path.some((id) => list.contains(by_id(id))) && !list.contains(home))
    return click(list.parentElement.querySelector("[data-opens]"));
  if (veil && !veil.contains(home)) return click(veil.querySelector(".close"));
  if (shown(home)) return null;
  return click(block.path.map(by_id).reverse().find(shown) || all(".back").find(shown));
};
const steps_of = (block) => {
  if (is_done(block) && !("answer" in data)) return [];
  const last = block.parts.length - 1;
  const parts = block.parts.map((part, at) => PARTS[part.kind].step(part, block.by_key && at === last));
  return [toward(block), ...parts, block.button && click(by_id(block.button))];
};
aim({
  solved: () => data.blocks.every(is_done),
  steps: () => data.blocks.flatMap(steps_of),
  ...("answer" in data ? { answer: data.answer } : {}),
});
