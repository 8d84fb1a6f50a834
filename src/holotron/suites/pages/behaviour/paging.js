let here = data.start;
const last = Math.ceil(data.items.length / data.size);
const draw = () => {
  find("#items").innerHTML = data.items.slice((here - 1) * data.size, here * data.size).map((item) =>
    `<div class="item"><a href="#" class="open">${item}</a></div>`).join("");
  const step = (to, label) =>
    `<button type="button" class="small turn${to === here ? " now" : ""}" data-to="${to}">${label}</button>`;
  const numbers = Array.from({ length: last }, (_, index) => step(index + 1, index + 1));
  find("#pages").innerHTML = (here > 1 ? step(here - 1, data.labels[0]) : "")
    + (data.numbers ? numbers.join("") : `<span>Page ${here} of ${last}</span>`)
    + (here < last ? step(here + 1, data.labels[1]) : "");
};
on("click", ".turn", (button) => { here = Number(button.dataset.to); draw(); });
// By number where there is one, else a page at a time.
const turn = (to) => {
  const next = data.numbers && data.known ? to : here + Math.sign(to - here);
  return here === to ? null : click(`.turn[data-to="${next}"]`);
};
draw();
