const inside = [];
on("click", ".add", (button) => {
  inside.push(Number(button.dataset.index));
  find("#count").textContent = inside.length;
  find("#inside").innerHTML += `<div class="item">${button.closest(".tile").querySelector("h3").innerHTML}</div>`;
  if (inside[0] !== data.index || inside.length > 1) return lose();
  if (!data.to_cart) win();
});
on("click", "#cart", () => { view("cart"); if (inside.length) win(); });
on("click", "#back", () => view("shop"));
aim({ steps: () => {
  if (now_at("cart")) return [click("#back")];
  return [inside.length ? click("#cart") : click(`.add[data-index="${data.index}"]`)];
} });
