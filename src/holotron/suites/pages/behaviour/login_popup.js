on("click", "#open", () => { find("#popup").hidden = false; });
on("click", "#close", () => { find("#popup").hidden = true; });
on("submit", "form", () => { if (task.won) find("#popup").hidden = true; });
aim({ steps: () => (shown("#popup") ? entering() : [click("#open")]) });
