on("click", ".head", (head) => {
  const inside = head.nextElementSibling;
  inside.hidden = !inside.hidden;
  head.firstChild.textContent = inside.hidden ? data.signs[0] : data.signs[1];
});
const inside = () => all(".fold > .inside")[data.index];
const unfolded = () => (shown(inside()) ? null : click(all(".head")[data.index]));
