// What can be seen on a page, element by element, from the DOM, and where each character stands.
// (width, height, smallest[, document]) => { elements, words, unread }
(width, height, smallest, document = window.document) => {
  const LONGEST = 60, MOST_WORDS = 2500, LARGEST = 0.3, SLACK = 1.5;
  const UNREAD = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "SELECT", "TEXTAREA", "CANVAS", "IFRAME",
    "OBJECT"]);
  const INPUTS = {
    checkbox: "check box", radio: "radio button", range: "slider", submit: "button", button: "button", reset: "button",
    image: "icon", color: "colour field", file: "file field", hidden: "", text: "text field",
  };
  const ROLES = {
    button: "button", link: "link", checkbox: "check box", radio: "radio button", switch: "switch", tab: "tab",
    menuitem: "menu item", menuitemcheckbox: "menu item", menuitemradio: "menu item", slider: "slider",
    textbox: "text field", searchbox: "text field", combobox: "drop-down", option: "option", treeitem: "option",
  };
  const SHAPES = { rect: "rectangle", circle: "circle", ellipse: "ellipse", polygon: "polygon" };
  const FIELDS = new Set(["text field", "text area", "drop-down", "slider", "file field", "colour field", "list box"]);
  const STATES = {
    "check box": ["checked", "not checked"], "radio button": ["selected", "not selected"], switch: ["on", "off"],
  };
  const TICKS = new Set(Object.keys(STATES));

  const styles = new Map(), clips = new Map();
  const styleOf = (element) => {
    if (!styles.has(element)) styles.set(element, getComputedStyle(element));
    return styles.get(element);
  };
  const clean = (text) => (text || "").replace(/[\u00ad\u200b-\u200d\ufeff]/g, "").replace(/\s+/g, " ").trim();
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const screen = { left: 0, top: 0, right: width, bottom: height };
  // The part of the screen in which an element's content is not cut off.
  const clipOf = (element) => {
    if (!element) return screen;
    if (clips.has(element)) return clips.get(element);
    const style = styleOf(element);
    let clip = style.position === "fixed" ? screen : clipOf(element.parentElement);
    const cuts = style.overflowX !== "visible" || style.overflowY !== "visible" || style.clip !== "auto";
    if (cuts && element !== document.body && element !== document.documentElement && style.display !== "inline") {
      const box = element.getBoundingClientRect();
      clip = {
        left: Math.max(clip.left, box.left), top: Math.max(clip.top, box.top),
        right: Math.min(clip.right, box.right), bottom: Math.min(clip.bottom, box.bottom),
      };
    }
    clips.set(element, clip);
    return clip;
  };
  const within = (box, clip) =>
    box.left >= clip.left - SLACK && box.top >= clip.top - SLACK && box.right <= clip.right + SLACK &&
      box.bottom <= clip.bottom + SLACK;
  // Text in nearly the colour of what is behind it cannot be read.
  const rgb = (paint) => (paint.match(/[\d.]+/g) || []).map(Number);
  const linear = (c) => (c <= 10 ? c / 3295 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const faint_ink = new Map();
  const faint = (element) => {
    if (faint_ink.has(element)) return faint_ink.get(element);
    const ink = rgb(styleOf(element).color);
    let behind = [255, 255, 255];
    for (let holder = element; holder; holder = holder.parentElement) {
      const style = styleOf(holder), paint = rgb(style.backgroundColor);
      if (style.backgroundImage !== "none") { behind = null; break; }
      if ((paint[3] ?? 1) > 0.6 && paint.length >= 3) { behind = paint; break; }
    }
    const [a, b] = behind ? [light(ink), light(behind)] : [1, 0];
    const answer = (ink[3] ?? 1) < 0.2 || parseFloat(styleOf(element).fontSize) < 6 ||
      (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 1.5;
    faint_ink.set(element, answer);
    return answer;
  };
  const hit = (x, y) => (x >= 0 && y >= 0 && x < width && y < height ? document.elementFromPoint(x, y) : null);
  const union = (boxes) => ({
    left: Math.min(...boxes.map((b) => b.left)), top: Math.min(...boxes.map((b) => b.top)),
    right: Math.max(...boxes.map((b) => b.right)), bottom: Math.max(...boxes.map((b) => b.bottom)),
  });

  // Words as they are drawn, in the order of the document.
  const words = [], by_element = new Map();
  const range = document.createRange();
  const transformed = (text, style) => {
    if (style.textTransform === "uppercase") return text.toUpperCase();
    if (style.textTransform === "lowercase") return text.toLowerCase();
    if (style.textTransform === "capitalize") return text.replace(/(^|[^\p{L}\p{N}'’])(\p{L})/gu, (_, a, b) =>
      a + b.toUpperCase());
    return text;
  };
  // The middle of each character, from left to right.
  const middles = (node, start, length) => Array.from({ length }, (_, index) => {
    range.setStart(node, start + index);
    range.setEnd(node, start + index + 1);
    const box = range.getBoundingClientRect();
    return Math.round((box.left + box.right) / 2);
  });
  const see_word = (node, element, start, text) => {
    range.setStart(node, start);
    range.setEnd(node, start + text.length);
    const boxes = range.getClientRects();
    if (!boxes.length) return;
    const box = boxes[0];
    const whole = boxes.length === 1 && box.width > 0 && within(box, clipOf(element)) && !faint(element);
    const above = whole && hit((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    const seen = Boolean(above) && (above === element || element.contains(above) || above.contains(element));
    const gone = !box.width || box.bottom < 0 || box.top > height;
    const word = { text: transformed(clean(text), styleOf(element)), box, element, seen, gone };
    if (seen && word.text.length === text.length) word.middles = middles(node, start, text.length);
    words.push(word);
    for (let holder = element; holder; holder = holder.parentElement) {
      if (!by_element.has(holder)) by_element.set(holder, []);
      by_element.get(holder).push(word);
    }
  };
  const visit = (element) => {
    if (UNREAD.has(element.tagName) || words.length > MOST_WORDS || !shown(element)) return;
    const box = element.getBoundingClientRect();
    const far = box.top > height || box.bottom < 0 || box.left > width || box.right < 0;
    if (far && box.height && styleOf(element).display !== "inline" &&
      !element.querySelector("[style*=absolute], [style*=fixed]")) return;
    for (const node of element.childNodes) {
      if (node.nodeType === Node.ELEMENT_NODE) visit(node);
      else if (node.nodeType === Node.TEXT_NODE)
        for (const match of node.data.matchAll(/\S+/g)) see_word(node, element, match.index, match[0]);
    }
  };
  if (document.body) visit(document.body);
  // What is unread would look nameless.
  if (words.length > MOST_WORDS) return { elements: [], words: [], unread: [[0, 0, width, height]] };

  const same_line = (a, b) => {
    const overlap = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return overlap > 0.5 * Math.min(a.bottom - a.top, b.bottom - b.top);
  };
  const joined = (list) => {
    let text = "", last = null;
    for (const { text: word, box } of list) {
      const touching = last && same_line(last, box) && Math.abs(box.left - last.right) < 0.12 * (box.bottom - box.top);
      text += (last && !touching ? " " : "") + word;
      last = box;
    }
    return text;
  };
  const tight = (list) => union(list.map((word) => word.box));
  // What an element says: null where part of it cannot be seen.
  const said = (element) => {
    const list = (by_element.get(element) || []).filter((word) => !word.gone);
    return list.length && list.every((word) => word.seen) ? { text: joined(list), box: tight(list) } : null;
  };
  const says_something = (element) => by_element.has(element);

  const boxed = (element) => {
    const style = styleOf(element);
    const framed = parseFloat(style.borderTopWidth) > 0 && parseFloat(style.borderLeftWidth) > 0;
    const filled = !/ 0\)$|transparent/.test(style.backgroundColor) || style.backgroundImage !== "none";
    return framed || filled || ["INPUT", "OPTION"].includes(element.tagName);
  };
  const buttonlike = (element) =>
    boxed(element) && parseFloat(styleOf(element).paddingLeft) >= 4 && styleOf(element).display !== "inline";
  const kind_of = (element) => {
    const tag = element.tagName.toUpperCase(), role = element.getAttribute("role");
    if (element.matches(".ui-accordion-header")) return "section";
    if (element.matches(".ui-slider-handle")) return "slider handle";
    if (element.matches(".ui-tabs-anchor") && element.closest("[role=tab]")) return "";
    if (tag === "INPUT") return ROLES[role] === "switch" ? "switch" : INPUTS[element.type] ?? "text field";
    if (tag === "TEXTAREA") return "text area";
    if (tag === "SELECT") return element.multiple || element.size > 1 ? "list box" : "drop-down";
    if (tag === "OPTION") return element.closest("select")?.size > 1 || element.closest("select")?.multiple ?
      "option" : "";
    if (ROLES[role]) return ROLES[role];
    if (tag === "BUTTON") return "button";
    if (tag === "SUMMARY") return "section";
    if (tag === "A" && element.hasAttribute("href")) return buttonlike(element) ? "button" : "link";
    if (tag === "IMG") return "image";
    if (tag === "TD" || tag === "TH") return "cell";
    if (element.ownerSVGElement) return SHAPES[element.tagName] || (tag === "TEXT" ? "letter" : "");
    if (role === "img" && tag !== "SVG") return says_something(element) ? "" : "icon";
    if (tag === "SVG") return element.hasAttribute("aria-label") ? "icon" : "";
    if (/underline/.test(styleOf(element).textDecorationLine) && styleOf(element).cursor === "pointer") return "link";
    return "";
  };
  const whole_image = (element) => element.querySelector("svg") ||
    [...element.querySelectorAll("img")].some((image) => image.naturalWidth > 0);
  const meaning = (element) => {
    if (element.querySelector("img") && !whole_image(element)) return "";
    const drawing = element.querySelector("[aria-label], img[alt], [title]");
    const told = (holder, name) => clean(holder?.getAttribute(name));
    return told(element, "aria-label") || told(element, "alt") || told(drawing, "aria-label") || told(drawing, "alt") ||
      told(element, "title") || told(drawing, "title");
  };

  // Texts: whole blocks where they are short, else line by line.
  const block_of = (element) => {
    while (element.parentElement && styleOf(element).display.startsWith("inline") &&
      styleOf(element).display !== "inline-block") element = element.parentElement;
    return element;
  };
  const CONTROL =
    "button, a[href], select, textarea, summary, option, [role=button], [role=tab], [role=menuitem], [role=option], " +
    "[role=link], [role=switch], .ui-accordion-header, .alink, svg";
  const texts = [], blocks = new Map();
  for (const word of words) {
    if (word.gone) continue;
    const block = block_of(word.element);
    if (!blocks.has(block)) blocks.set(block, []);
    blocks.get(block).push(word);
  }
  for (const [block, list] of blocks) {
    const control = block.closest(CONTROL);
    const lines = [];
    const label_of = (word) => word.element.closest("label");
    for (const word of list) {
      const line = lines.at(-1), last = line?.at(-1).box;
      const near = last && same_line(last, word.box) && word.box.left - last.right < 0.9 * (last.bottom - last.top) &&
        word.box.left >= last.left && label_of(line.at(-1)) === label_of(word);
      if (near) line.push(word); else lines.push([word]);
    }
    const tall = tight(list).bottom - tight(list).top, line_height = list[0].box.bottom - list[0].box.top;
    const one_label = list.every((word) => label_of(word) === label_of(list[0]));
    const stacked = lines.every((line, i) => !i || !same_line(line[0].box, lines[i - 1][0].box));
    const dense = tall <= lines.length * line_height * 1.9 + 2;
    const compact = lines.length === 1 || (one_label && stacked && dense && joined(list).length <= LONGEST);
    for (const part of compact ? [list] : lines) {
      const text = joined(part);
      if (!part.every((word) => word.seen)) continue;
      const linked = part.every((word) => word.element.closest("a[href], .alink"));
      const query = Boolean(block.closest("#query"));
      const element = part[0].element, label = Boolean(label_of(part[0]));
      const whole = part.length === list.length || label;
      texts.push({ text, box: tight(part), block, element, control: Boolean(control) || linked, query, label, whole });
    }
  }

  // The visible text beside or above a control that people take for its name.
  const beside = (box, kind) => {
    const middle = (box.top + box.bottom) / 2;
    const free = texts.filter((text) => !text.control && !text.query && text.text.length <= 40);
    const in_row = free.filter((text) => text.box.top - 2 <= middle && text.box.bottom + 2 >= middle);
    const nearest = (list, gap, limit) => {
      const measured = list.map((text) => [gap(text.box), text]).filter(([away]) => away >= -2 && away <= limit);
      return measured.sort((a, b) => a[0] - b[0])[0]?.[1];
    };
    const right = () => nearest(in_row, (b) => b.left - box.right, 16);
    const left = () => nearest(in_row, (b) => box.left - b.right, TICKS.has(kind) ? 16 : 48);
    const aligned = free.filter((text) => text.whole && Math.abs(text.box.left - box.left) < 14);
    const above = () => nearest(aligned, (b) => box.top - b.bottom, 14);
    if (TICKS.has(kind)) return [["right", right()], ["left", left()]].find(([, text]) => text);
    if (FIELDS.has(kind)) return [["left", left()], ["above", above()]].find(([, text]) => text);
    return undefined;
  };

  const measure = document.createElement("canvas").getContext("2d");
  const fits = (text, element, reserve) => {
    const style = styleOf(element);
    measure.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const room = element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - reserve;
    return measure.measureText(text).width <= room + 1;
  };
  const spots = (box, owns) => {
    const w = box.right - box.left, h = box.bottom - box.top, found = [];
    for (const [dx, dy] of [[0.5, 0.5], [0.3, 0.5], [0.7, 0.5], [0.4, 0.35], [0.6, 0.65]]) {
      const x = Math.floor(box.left + w * dx), y = Math.floor(box.top + h * dy);
      const element = hit(x + 0.5, y + 0.5);
      if (element && owns(element)) found.push([x, y]);
      else if (!found.length) return []; // the middle must be its own
    }
    return found;
  };
  const rounded = (box) => [box.left, box.top, box.right, box.bottom].map((side) => Math.round(side * 10) / 10);
  const found = [];
  const add = (element, box, owns, rest) => {
    const w = box.right - box.left, h = box.bottom - box.top;
    if (w < 1 || h < 1) return;
    const at = within(box, clipOf(element.parentElement || element)) && within(box, screen) ? spots(box, owns) : [];
    // A cut-off or covered element is no use, but it is there to be confused with.
    const usable = at.length > 0 && Math.min(w, h) >= smallest && w * h <= LARGEST * width * height;
    const partly = box.right > 0 && box.bottom > 0 && box.left < width && box.top < height;
    if (partly) found.push({ name: "", text: "", value: null, states: [], side: "", color: "", row: "", column: "",
      ...rest, box: rounded(box), spots: at, usable });
  };

  const table_place = (element) => {
    const cell = element.closest("td, th"), row = cell?.closest("tr"), table = row?.closest("table");
    if (!table || table.rows.length < 2 || row.cells.length < 2) return {};
    const head = [...row.cells].find((each) => said(each)), top = table.rows[0];
    const name = head && head !== cell && said(head).text || "";
    const column = row !== top && top.cells.length === row.cells.length && top.querySelector("th") &&
      said(top.cells[cell.cellIndex])?.text || "";
    return { row: name.length <= 30 ? name : "", column: column.length <= 30 ? column : "" };
  };

  const used_labels = new Set(), cells = new Set();
  const candidates = document.querySelectorAll(
    "a[href], button, input, textarea, select, option, summary, img, svg, svg *, td, th, [role], .alink, " +
      ".ui-accordion-header, .ui-slider-handle, [style*=underline]",
  );
  let count = 0;
  for (const element of candidates) {
    const rectangle = element.getBoundingClientRect();
    if (rectangle.bottom < 0 || rectangle.top > height || rectangle.right < 0 || rectangle.left > width) continue;
    const kind = kind_of(element);
    if (!kind || !shown(element)) continue;
    if (++count > 400) break;
    const style = styleOf(element), own = (other) => other === element || element.contains(other);
    const holders = "button, a[href], [role=button], [role=tab], [role=menuitem], [role=link]";
    const parent = element.parentElement?.closest(holders);
    if (parent && kind !== "cell" && kind_of(parent)) continue; // part of a larger control
    const states = [];
    if (element.disabled || element.getAttribute("aria-disabled") === "true") states.push("disabled");
    const rest = { kind, states, ...table_place(element) };
    if (kind === "cell") {
      const inner = said(element);
      if (inner && inner.text.length <= 40 &&
        !element.querySelector("a, button, input, select, textarea, table, img")) {
        add(element, inner.box, own, { ...rest, name: inner.text, text: inner.text });
        cells.add(element);
      }
    } else if (SHAPES[element.tagName] || kind === "letter") {
      if (element.closest("defs, clipPath, button, a, [role=button], [aria-label], [aria-hidden]")) continue;
      const points = element.points?.length;
      const square = Math.abs(rectangle.width - rectangle.height) < 1.5;
      const shape = kind === "polygon" ? (points === 3 ? "triangle" : "polygon") : kind === "rectangle" && square ?
        "square" : kind;
      const text = kind === "letter" ? clean(element.textContent) : "";
      const paint = style.fill === "none" ? style.stroke : style.fill;
      const solid = parseFloat(style.fillOpacity) > 0.3 && parseFloat(style.opacity) > 0.3;
      if (kind === "letter" && (!text || text.length > 20)) continue;
      if (solid) add(element, rectangle, own, { ...rest, kind: shape, name: text, text, color: paint, states });
    } else if (TICKS.has(kind) || FIELDS.has(kind)) {
      const label = element.labels && [...element.labels].map((each) => [each, said(each)]).find(([, text]) => text);
      let name = label?.[1].text || "", side = "";
      if (label) {
        used_labels.add(label[0]);
        side = label[1].box.left >= rectangle.right - 2 ? "right" : label[1].box.right <= rectangle.left + 2 ? "left" :
          label[1].box.bottom <= rectangle.top + 4 ? "above" : "";
        if (label[1].box.left - rectangle.right > 60 || rectangle.left - label[1].box.right > 400) side = "";
      } else {
        const found_text = beside(rectangle, kind);
        if (found_text) { [side, name] = [found_text[0], found_text[1].text]; found_text[1].used = true; }
      }
      let value = null;
      if (TICKS.has(kind)) {
        const on = element.checked ?? element.getAttribute("aria-checked") === "true";
        const [yes, no] = STATES[kind];
        states.unshift(on ? yes : no);
      } else if (kind === "drop-down" && element.selectedOptions) {
        value = clean(element.selectedOptions[0]?.text);
        if (!fits(value, element, 20)) states.push("cut");
      } else if (kind === "text field" || kind === "text area") {
        const typed = element.value ?? element.textContent;
        value = clean(typed);
        if (element.type === "password") value = value ? "dots" : "";
        if (kind === "text area" ? element.scrollHeight > element.clientHeight + 4 :
          !fits(typed, element, element.type === "number" ? 16 : 0)) states.push("cut");
        const hint = clean(element.placeholder);
        if (!value && hint && fits(hint, element, 0)) { rest.text = hint; if (!name) { name = hint; side = "inside"; } }
        if (["date", "time", "month", "week", "datetime-local"].includes(element.type)) states.push("cut");
      }
      const legible = value && value !== "dots" && !states.includes("cut");
      add(element, rectangle, own, { ...rest, name, side, value, text: legible ? value : rest.text || "" });
    } else if (kind === "image" || kind === "icon") {
      if (element.tagName === "IMG" && !element.naturalWidth) continue;
      const name = kind === "icon" || Math.max(rectangle.width, rectangle.height) <= 40 ? meaning(element) : "";
      add(element, rectangle, own, { ...rest, kind: name ? "icon" : "image", name });
    } else {
      const inner = element.tagName === "INPUT" ? { text: clean(element.value), box: rectangle } :
        element.tagName === "OPTION" ? { text: clean(element.text), box: rectangle } : said(element);
      const bare = !inner && Math.max(rectangle.width, rectangle.height) <= 96 &&
        !(by_element.get(element) || []).some((word) => word.seen);
      const pieces = element.getClientRects().length;
      if (kind === "link" && pieces > 1 && style.display === "inline") { // its middle may lie between its lines
        add(element, rectangle, () => false, { ...rest, name: inner?.text || "" });
        continue;
      }
      const active = element.getAttribute("aria-selected") === "true" ||
        element.matches(".ui-tabs-active, .ui-state-active.ui-accordion-header");
      if ((kind === "tab" || kind === "option") && (active || element.selected)) states.unshift("selected");
      if (kind === "section") states.unshift(active || element.parentElement.open ? "open" : "closed");
      // A box that is not drawn has no middle that can be seen.
      const drawn = kind !== "link" && (boxed(element) || inner?.box.right - inner?.box.left > 0.6 * rectangle.width);
      if (inner?.text) add(element, drawn ? rectangle : inner.box, own,
        { ...rest, name: inner.text, text: inner.text });
      else if (bare && meaning(element)) add(element, rectangle, own,
        { ...rest, kind: "icon", name: meaning(element) });
      else {
        const unclear = says_something(element) || (kind === "link" && !whole_image(element));
        add(element, rectangle, unclear ? () => false : own, rest);
      }
    }
  }
  for (const text of texts) {
    if (text.control || cells.has(text.block.closest("td, th")) || text.block.closest("svg")) continue;
    const labels = text.label || text.used || [...used_labels].some((label) => label.contains(text.element));
    const kind = text.block.closest("h1, h2, h3, h4, h5, h6") ? "heading" : "text";
    add(text.element, text.box, (other) => (other.contains(text.element) || text.block.contains(other)) &&
      !other.closest(CONTROL), { kind: labels ? "label" : kind, name: text.text, text: text.text });
  }
  // Where something is written that is not among the words, or may be.
  const others = [...document.querySelectorAll("input, textarea, select, canvas, iframe, object, img, video")]
    .filter((element) => !["checkbox", "radio", "range", "hidden"].includes(element.type) && shown(element))
    .map((element) => element.getBoundingClientRect());
  const unknown = words.filter((word) => !word.gone && !word.middles).map((word) => word.box);
  return {
    elements: found,
    words: words.filter((word) => word.middles).map(({ text, box, middles }) =>
      [text, Math.round((box.top + box.bottom) / 2), middles]),
    unread: [...others, ...unknown].filter((box) => box.width && box.bottom > 0 && box.top < height).map(rounded),
  };
}
