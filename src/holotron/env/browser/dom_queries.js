// Questions about one document, and what is done in it where pointer and keys do not reach. Calls the function of this
// name with the arguments after it. Where a frame is in the way the answer is {framed: true}.
(name, ...given) => {
  const framed = element => Boolean(element) && /^I?FRAME$/.test(element.tagName);
  const find = (x, y) => {
    let element = document.elementFromPoint(x, y);
    while (element && element.shadowRoot) {
      const inner = element.shadowRoot.elementFromPoint(x, y);
      if (!inner || inner === element) break;
      element = inner;
    }
    return element;
  };
  const focus = () => {
    let element = document.activeElement;
    while (element && element.shadowRoot && element.shadowRoot.activeElement) {
      element = element.shadowRoot.activeElement;
    }
    return element;
  };
  const label = element => {
    if (!element) return "";
    const control = element.closest("button, a, input, select, textarea, label, summary, [role], [onclick]") || element;
    const parts = [control.innerText, control.getAttribute("aria-label"), control.title, control.getAttribute("alt")];
    if (/^(submit|button|reset|image)$/.test(control.type)) parts.push(control.value);
    return parts.filter(Boolean).join(" ").slice(0, 300);
  };
  const functions = {
    // What is written on the thing under a point.
    label_at: (x, y) => {
      const drawn = globalThis.picker && picker.label_at(x, y);
      if (drawn) return {label: drawn};
      const element = find(x, y);
      return framed(element) ? {framed: true} : {label: label(element)};
    },
    // What a key such as Enter would set off: the element with the focus, and the button of its form.
    label_of_focus: () => {
      const element = focus();
      if (framed(element)) return {framed: true};
      const button = element && element.form && element.form.querySelector("button:not([type=button]), [type=submit]");
      return {label: [label(element), label(button)].join(" ").trim()};
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
    // The origin of this document if it is the one that would receive a key.
    focus_origin: () => framed(focus()) ? {framed: true} : {origin: window.origin},
    // Whether the focus is in this document, and not in a frame of it.
    has_focus: () => document.hasFocus() && !framed(focus()),
    // Type into this document if it has the focus still: one turn, in which the page cannot move it.
    insert: text => {
      const element = focus();
      if (framed(element)) return {framed: true};
      const editable = element && (element.isContentEditable || /^(INPUT|TEXTAREA)$/.test(element.tagName));
      if (!editable || !document.execCommand("insertText", false, text)) return {problem: true};
      return {};
    },
  };
  return functions[name](...given);
}
