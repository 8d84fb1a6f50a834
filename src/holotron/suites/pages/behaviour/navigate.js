on("click", ".go", (link) => view(link.dataset.to));
on("click", ".deed", (button) => {
  if (!now_at(data.place)) return lose();
  tell(`${data.deed}: done.`, true);
  win();
});
const inside = (name) => `[data-view="${name}"] `;
aim({
  solved: () => (data.deed ? task.won : now_at(data.place)),
  steps: () => {
    if (now_at(data.place)) return [data.deed ? click(inside(data.place) + ".deed") : null];
    if (now_at(data.section)) return [click(inside(data.section) + `[data-to="${data.place}"]`)];
    if (now_at("home")) return [click(inside("home") + `[data-to="${data.section}"]`)];
    return [click(all('[data-to="home"]').find(shown))];
  },
});
