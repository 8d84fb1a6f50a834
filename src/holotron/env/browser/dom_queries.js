// Questions about one document, and what is done in it where pointer and keys do not reach. Calls the function of this
// name with the arguments after it. Where a frame is in the way the answer is {framed: true}; where the element may have a
// closed shadow root, in which the thing itself would be, it has {host: true}.
(name, ...given) => {
  const framed = element => Boolean(element) && /^I?FRAME$/.test(element.tagName);
  // Closed ones, too, where `keep_root` was given them.
  const rootOf = element => element.shadowRoot || (globalThis.closedRoots && closedRoots.get(element));
  const HOSTS = /-|^(article|aside|blockquote|body|div|footer|h[1-6]|header|main|nav|p|section|span)$/;
  let reached = null;
  const find = (x, y) => {
    let element = document.elementFromPoint(x, y);
    while (element && rootOf(element)) {
      const inner = rootOf(element).elementFromPoint(x, y);
      if (!inner || inner === element) break;
      element = inner;
    }
    return reached = element;
  };
  const focus = () => {
    let element = document.activeElement;
    while (element && rootOf(element) && rootOf(element).activeElement) element = rootOf(element).activeElement;
    return reached = element;
  };
  const ACTIONABLE = "button, a[href], area[href], input, select, textarea, label, summary, option, [role], [onclick]";
  // The nearest thing around an element that a click sets off, also out of a shadow tree.
  const actionable = element => {
    for (let at = element; at; at = at.getRootNode().host) {
      const found = at.closest(ACTIONABLE);
      if (found) return found;
    }
    return element;
  };
  const drawn = (element, which) => {
    const content = getComputedStyle(element, which).content;
    if (!content || content === "none" || content === "normal") return "";
    const texts = content.match(/"(?:[^"\\]|\\.)*"|attr\([^)]*\)/g) || [];
    return texts.map(text => text.startsWith("attr(")
      ? element.getAttribute(text.slice(5, -1).split(/[\s,]/)[0]) || ""
      : text.slice(1, -1).replace(/\\(.)/g, "$1")).join("");
  };
  // Everything that tells what an element is: its words, however they are cut up or drawn, and those of its pictures.
  const words = element => {
    const within = [element, ...[...element.querySelectorAll("*")].slice(0, 200)];
    const parts = [element.innerText, element.textContent];
    const styled = within.map(one => drawn(one, "::before") + (one.children.length ? "" : one.textContent)
      + drawn(one, "::after"));
    if (within.some(one => drawn(one, "::before") || drawn(one, "::after"))) parts.push(styled.join(""));
    for (const one of within) {
      parts.push(one.getAttribute("aria-label"), one.getAttribute("title"), one.getAttribute("alt"));
      for (const id of (one.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean)) {
        const named = one.getRootNode().getElementById(id);
        parts.push(named && named.textContent);
      }
    }
    if (/^(submit|button|reset|image)$/.test(element.type)) parts.push(element.value);
    return parts;
  };
  const read = address => {
    try { return decodeURIComponent(String(address).replace(/\+/g, " ")); } catch { return String(address); }
  };
  const submits = element => /^(submit|image)$/.test(element.type) && /^(BUTTON|INPUT)$/.test(element.tagName);
  const label = element => {
    if (!element) return [];
    const control = actionable(element);
    const parts = words(control);
    if (control !== element) parts.push(...words(element).slice(2));
    if (control.tagName === "LABEL" && control.control) parts.push(...label(control.control));
    for (const named of control.labels || []) parts.push(...words(named));
    if (control.href) parts.push(read(control.href.baseVal || control.href));
    if (submits(control) && control.form) {
      parts.push(read(control.getAttribute("formaction") || control.form.getAttribute("action") || ""));
      parts.push(control.form.getAttribute("aria-label"), control.form.getAttribute("name"));
    }
    return parts;
  };
  const joined = parts => {
    const texts = parts.map(part => (part || "").trim().replace(/\s+/g, " ")).filter(Boolean);
    return [...new Set(texts)].join(" ").slice(0, 2000);
  };
  const functions = {
    // Keep the closed shadow root of an element.
    keep_root: (host, root) => { (globalThis.closedRoots ||= new WeakMap()).set(host, root); },
    // The element at a point, or without one the one with the focus.
    reach: (...point) => point.length ? find(...point) : focus(),
    // What is written on the thing under a point.
    label_at: (x, y) => {
      const drawn = globalThis.picker && picker.label_at(x, y);
      if (drawn) return {label: drawn};
      const element = find(x, y);
      return framed(element) ? {framed: true} : {label: joined(label(element))};
    },
    // What Enter would set off: the element with the focus, and the button of its form.
    label_of_focus: () => {
      const element = focus();
      if (framed(element)) return {framed: true};
      const button = element && element.form && element.form.querySelector("button:not([type=button]), [type=submit]");
      const address = element && element.form && read(element.form.getAttribute("action") || "");
      const editable = Boolean(element) && (element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName));
      return {label: joined([...label(element), ...label(button), address]), editable};
    },
    // Whether a frame is at a point.
    frame_at: (x, y) => ({framed: framed(find(x, y))}),
    // Choose options of the <select> at a point.
    select: (x, y, choices) => {
      const element = find(x, y);
      if (framed(element)) return {framed: true};
      const near = element && element.closest("select, label");
      const select = near && near.tagName === "LABEL" ? near.control : near;
      if (!select || select.tagName !== "SELECT") return {problem: "there is no <select> at this point"};
      if (select.disabled) return {problem: "the <select> is disabled"};
      const text = option => option.label.trim().replace(/\s+/g, " ");
      const options = [...select.options];
      const chosen = [];
      for (const choice of choices) {
        const wanted = choice.trim().replace(/\s+/g, " ");
        const option = options.find(o => text(o) === wanted) || options.find(o => o.value === wanted)
          || options.find(o => text(o).toLowerCase() === wanted.toLowerCase());
        const named = JSON.stringify(choice);
        if (!option) return {problem: `there is no option ${named}`, options: options.slice(0, 50).map(text)};
        if (option.disabled) return {problem: `the option ${named} is disabled`};
        chosen.push(option);
      }
      if (chosen.length > 1 && !select.multiple) return {problem: "only one option can be chosen here"};
      if (globalThis.picker) picker.close();
      select.focus();
      if (select.multiple) for (const option of options) option.selected = chosen.includes(option);
      else select.selectedIndex = options.indexOf(chosen[0]);
      select.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
      select.dispatchEvent(new Event("change", {bubbles: true}));
      return {};
    },
    // Give the field with the focus a value in the one form that its type knows, whatever it shows; whether it takes it.
    fill: text => {
      const element = focus();
      if (framed(element)) return {framed: true};
      const kinds = /^(date|time|month|week|datetime-local|color)$/;
      if (!element || element.tagName !== "INPUT" || !kinds.test(element.type) || element.readOnly) return {filled: false};
      const before = element.value;
      element.value = text;
      if (!element.value) { element.value = before; return {filled: false}; }
      element.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
      element.dispatchEvent(new Event("change", {bubbles: true}));
      return {filled: true};
    },
    // The origin of this document if it is the one that would receive a key.
    focus_origin: () => framed(focus()) ? {framed: true} : {origin: window.origin},
    // Whether the focus is in this document, and not in a frame of it.
    has_focus: () => ({focused: document.hasFocus() && !framed(focus())}),
    // Type into this document if it has the focus still: one turn, in which the page cannot move it.
    insert: text => {
      const element = focus();
      if (framed(element)) return {framed: true};
      const editable = element && (element.isContentEditable || /^(INPUT|TEXTAREA)$/.test(element.tagName));
      if (!editable || !document.execCommand("insertText", false, text)) return {problem: true};
      return {};
    },
  };
  const answer = functions[name](...given);
  if (name !== "reach" && reached && !rootOf(reached) && HOSTS.test(reached.localName)) answer.host = true;
  return answer;
}
