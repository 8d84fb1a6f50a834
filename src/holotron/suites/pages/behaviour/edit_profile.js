on("click", "#edit", () => view("form"));
aim({ steps: () => (now_at("show") ? [click("#edit")] : filling()) });
