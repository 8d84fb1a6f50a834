let here = data.start;
const draw = () => {
  const year = Math.floor(here / 12), month = here % 12;
  find("#month").textContent = `${data.months[month]} ${year}`;
  const first = (new Date(year, month, 1).getDay() + 6) % 7, count = new Date(year, month + 1, 0).getDate();
  const cells = Array.from({ length: Math.ceil((first + count) / 7) * 7 }, (_, at) => at - first + 1)
    .map((day) => (day < 1 || day > count ? "<td></td>" : `<td class="day" style="cursor:pointer">${day}</td>`));
  const week = (_, at) => `<tr>${cells.slice(at * 7, at * 7 + 7).join("")}</tr>`;
  const head = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"].map((day) => `<th>${day}</th>`).join("");
  find("#days").innerHTML = `<tr>${head}</tr>` + Array.from({ length: cells.length / 7 }, week).join("");
};
on("click", "#back", () => { here -= 1; draw(); });
on("click", "#forth", () => { here += 1; draw(); });
on("click", ".day", (cell) => {
  if (here !== data.wanted || cell.textContent !== data.day) return lose();
  tell(`Chosen: ${data.day} ${find("#month").textContent}`, true);
  win();
});
draw();
aim({ steps: () => [
  here === data.wanted ? click(all(".day").find((cell) => cell.textContent === data.day))
    : click(here < data.wanted ? "#forth" : "#back"),
] });
