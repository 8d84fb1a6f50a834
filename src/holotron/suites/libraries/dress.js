// Dresses a generated page in a library's look: adds the classes that the library gives to the parts of a page, once
// and whenever the page changes itself, and says in ARIA's words what the parts are.
// (look) => …; look: rules by part. A rule has classes and attributes (name=value) with blanks between.
(look) => {
  // Pages for tasks and pages for questions call their parts differently.
  const PARTS = {
    root: "body",
    heading: "h1",
    subheading: "h2, h3",
    main: "button.main, .btn.main",
    button: "button:not(.main, .link, .small, .ghost, .tab, .chips > *), .btn:not(.main, .on, .pages *)",
    small: "button.small:not(.main, .chips > *, .pages > *)",
    link: "button.link, button.ghost",
    field: ".field:has(input, textarea, select)",
    label: ".field > label, .label-above > label, .label-left > label",
    input: "input:not([type=checkbox], [type=radio], [type=range])",
    area: "textarea",
    select: "select",
    check: ".check:has(> [type=checkbox]:not(.switch))",
    radio_row: ".check:has(> [type=radio])",
    switch_row: ".check:has(> .switch)",
    box: "[type=checkbox]:not(.switch)",
    radio: "[type=radio]",
    switch: ".check > input.switch",
    box_label: ".check > label, label:has(> [type=checkbox], > [type=radio])",
    card: ".tile, .card:not(body, .side), body.card main",
    tabs: ".tabs",
    tab: ".tabs > *",
    tab_now: ".tabs > .now, .tabs > [aria-selected=true]",
    fold: ".fold",
    fold_head: ".fold > .head",
    fold_body: ".fold > .inside",
    dialog: ".dialog, .offer",
    menu: ".menu > .list, .list > div > .list",
    menu_item: ".list > div",
    items: ".items",
    item: ".item",
    table: "table",
    header: "header, .bar",
    brand: "header > b, .bar strong",
    nav_link: "header nav a, .bar a:not(.btn)",
    aside: "aside, .side",
    aside_link: "aside a, .side a",
    footer: "footer",
    good: ".notice.good",
    bad: ".notice.bad",
    chips: ".chips:not(.stars)",
    chip: ".chips > button",
    chip_now: ".chips > button.now",
    pages: ".pages",
    page: ".pages > *",
    page_now: ".pages > .now, .btn.on",
    soft: ".soft, .muted",
    badge: ".chip",
  };
  const ROLES = [
    [".tabs", "tablist"], [".tabs > *", "tab"], [".menu > .list", "menu"], [".list > div", "menuitem"],
    ["input.switch", "switch"], [".dialog", "dialog"], [".fold > .head, .tile[data-opens], .chips.stars > *", "button"],
  ];
  const parse = (rule) => {
    const classes = [], attributes = [];
    for (const word of rule.split(" ").filter(Boolean))
      word.includes("=") ? attributes.push(word.split("=")) : classes.push(`x-${word}`);
    return { classes, attributes };
  };
  const rules = Object.entries(look.parts || {}).map(([part, rule]) => ({ selector: PARTS[part], ...parse(rule) }));
  const worn = rules.map(() => new Set());
  const shared = (element, name, but) =>
    rules.some((rule, at) => at !== but && worn[at].has(element) && rule.classes.includes(name));
  const dress = () => {
    for (const [selector, role] of ROLES)
      for (const element of document.querySelectorAll(selector))
        if (!element.hasAttribute("role")) element.setAttribute("role", role);
    for (const tab of document.querySelectorAll(".tabs > div")) {
      const now = String(tab.classList.contains("now"));
      if (tab.getAttribute("aria-selected") !== now) tab.setAttribute("aria-selected", now);
    }
    rules.forEach(({ selector, classes, attributes }, at) => {
      for (const element of worn[at]) {
        if (element.matches(selector)) continue;
        worn[at].delete(element);
        element.classList.remove(...classes.filter((name) => !shared(element, name, at)));
      }
      for (const element of document.querySelectorAll(selector)) {
        if (worn[at].has(element) && classes.every((name) => element.classList.contains(name))) continue;
        worn[at].add(element);
        element.classList.add(...classes);
        for (const [name, value] of attributes) element.setAttribute(name, value);
      }
    });
  };
  // Boxes that a library draws by other means than themselves are drawn as the browser does.
  const show_boxes = () => {
    for (const box of document.querySelectorAll("[type=checkbox]:not([data-plain]), [type=radio]:not([data-plain])")) {
      const away = box.offsetWidth < 8 || box.offsetHeight < 8 || parseFloat(getComputedStyle(box).opacity) < 0.1;
      if (away && box.parentElement.offsetHeight) box.dataset.plain = "";
    }
  };
  // Screens have switches made of buttons; libraries have them made of boxes.
  for (const button of document.querySelectorAll("button[role=switch]")) {
    const box = Object.assign(document.createElement("input"), { type: "checkbox", className: "switch", id: button.id });
    box.checked = button.getAttribute("aria-checked") === "true";
    box.setAttribute("role", "switch");
    button.replaceWith(box);
  }
  for (const [part, rule] of Object.entries(look.around || {}))
    for (const element of document.querySelectorAll(PARTS[part])) {
      const wrap = document.createElement("div");
      wrap.className = rule.split(" ").map((name) => `x-${name}`).join(" ");
      element.replaceWith(wrap);
      wrap.append(element);
    }
  // Some looks draw a box on what follows it in its label.
  for (const [part, rule] of Object.entries(look.after || {}))
    for (const element of document.querySelectorAll(PARTS[part])) {
      const drawn = document.createElement("i");
      drawn.className = rule.split(" ").map((name) => `x-${name}`).join(" ");
      element.after(drawn);
    }
  for (const [name, value] of Object.entries(look.on || {})) document.documentElement.setAttribute(name, value);
  const both = () => { dress(); show_boxes(); };
  both();
  new MutationObserver(both).observe(document.body, {
    subtree: true, childList: true, attributes: true, attributeFilter: ["class", "aria-selected", "hidden"],
  });
}
