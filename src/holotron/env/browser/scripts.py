"""JavaScript that is run in pages, each a function expression.

All of it runs in a world of its own: it sees the page's elements, but the page neither sees it nor can change what its
functions mean. Each looks at one document; where a frame is in the way they say `framed`, or nothing at all.
"""

from __future__ import annotations

# One frame, and then until the page has not changed for `quiet` ms and no finite animation runs; between `least` and
# `cap` ms. The watch stays for the life of the document, so that what an action changes at once is known afterwards.
QUIET = """
(quiet, least, cap) => new Promise(resolve => {
  const start = performance.now();
  if (!globalThis.watch) {
    globalThis.watch = {changed: -Infinity, looks: 0};
    watch.mark = () => { watch.changed = performance.now(); watch.looks = 0; };
    const everything = {subtree: true, childList: true, attributes: true, characterData: true};
    new MutationObserver(watch.mark).observe(document, everything);
    document.addEventListener("scroll", watch.mark, true);
  }
  const done = still => resolve({still, state: document.readyState});
  const moving = () => document.getAnimations().some(animation => {
    const timing = animation.playState === "running" && animation.effect && animation.effect.getComputedTiming();
    return timing && Number.isFinite(timing.endTime) && timing.endTime - (timing.localTime || 0) < 1000;
  });
  const look = () => {
    if (moving()) watch.mark();  // what it sets off when it ends counts too
    const now = performance.now();
    if (now - start >= cap) return done(false);
    // A machine under load delays the page's timers as well as this one, so time alone proves nothing.
    const looked = watch.looks >= 5 || watch.changed < start - quiet;
    if (now - start >= least && now - watch.changed >= quiet && looked) return done(true);
    watch.looks += 1;
    setTimeout(look, 4);
  };
  let begun = false;
  const begin = () => { if (!begun) { begun = true; setTimeout(look, 0); } };
  requestAnimationFrame(begin);
  setTimeout(begin, 50);  // a page that is not drawn has no frames
})
"""

_FIND = """
  const find = (x, y) => {
    let element = document.elementFromPoint(x, y);
    while (element && element.shadowRoot) {
      const inner = element.shadowRoot.elementFromPoint(x, y);
      if (!inner || inner === element) break;
      element = inner;
    }
    return {element, framed: Boolean(element) && /^I?FRAME$/.test(element.tagName)};
  };
"""

_FOCUS = """
  const focus = () => {
    let element = document.activeElement;
    while (element && element.shadowRoot && element.shadowRoot.activeElement) {
      element = element.shadowRoot.activeElement;
    }
    return {element, framed: Boolean(element) && /^I?FRAME$/.test(element.tagName)};
  };
"""

_LABEL = """
  const label = element => {
    if (!element) return "";
    const control = element.closest("button, a, input, select, textarea, label, summary, [role], [onclick]") || element;
    const parts = [control.innerText, control.getAttribute("aria-label"), control.title, control.getAttribute("alt")];
    if (/^(submit|button|reset|image)$/.test(control.type)) parts.push(control.value);
    return parts.filter(Boolean).join(" ").slice(0, 300);
  };
"""

# What is written on the thing under a point.
LABEL_AT = (
    "(x, y) => {" + _FIND + _LABEL + "const found = find(x, y); return found.framed ? null : label(found.element); }"
)

# What a key such as Enter would set off: the element with the focus, and the button of its form.
LABEL_OF_FOCUS = (
    "() => {"
    + _FOCUS
    + _LABEL
    + """
  const {element, framed} = focus();
  if (framed) return null;
  const button = element && element.form && element.form.querySelector("button:not([type=button]), [type=submit]");
  return [label(element), label(button)].join(" ").trim();
}"""
)

# Choose options of the <select> at a point. Its own list is drawn outside of the page and hears no mouse.
SELECT = (
    "(x, y, choices) => {"
    + _FIND
    + """
  const found = find(x, y);
  if (found.framed) return {framed: true};
  const near = found.element && (found.element.closest("select, label"));
  const select = near && near.tagName === "LABEL" ? near.control : near;
  if (!select || select.tagName !== "SELECT") return {problem: "there is no <select> at this point"};
  if (select.disabled) return {problem: "the <select> is disabled"};
  const text = option => option.label.trim().replace(/\\s+/g, " ");
  const options = [...select.options];
  const chosen = [];
  for (const choice of choices) {
    const wanted = choice.trim().replace(/\\s+/g, " ");
    const option = options.find(o => text(o) === wanted) || options.find(o => o.value === wanted)
      || options.find(o => text(o).toLowerCase() === wanted.toLowerCase());
    const named = JSON.stringify(choice);
    if (!option) return {problem: `there is no option ${named}`, options: options.slice(0, 50).map(text)};
    if (option.disabled) return {problem: `the option ${named} is disabled`};
    chosen.push(option);
  }
  if (chosen.length > 1 && !select.multiple) return {problem: "only one option can be chosen here"};
  select.focus();
  for (const option of options) option.selected = chosen.includes(option);
  select.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
  select.dispatchEvent(new Event("change", {bubbles: true}));
  return {};
}"""
)

# The origin of this document if it is the one that would receive a key.
FOCUS_ORIGIN = "() => {" + _FOCUS + "return focus().framed ? {framed: true} : {origin: window.origin}; }"

# Whether the focus is in this document, and not in a frame of it.
HAS_FOCUS = "() => {" + _FOCUS + "return document.hasFocus() && !focus().framed; }"

# Type into this document if it has the focus still: one turn, in which nobody can move it or change the document.
INSERT = (
    "text => {"
    + _FOCUS
    + """
  const {element, framed} = focus();
  if (framed) return {moved: true};
  const editable = element && (element.isContentEditable || /^(INPUT|TEXTAREA)$/.test(element.tagName));
  if (!editable || !document.execCommand("insertText", false, text)) return {problem: true};
  return {};
}"""
)

# Boxes around everything that shows one of these texts, in the coordinates of this document's viewport.
FIND_TEXTS = """
texts => {
  const boxes = [];
  const shows = text => text && texts.some(wanted => text.includes(wanted));
  const add = box => boxes.push([box.left, box.top, box.width, box.height]);
  const search = root => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    for (let node = walker.currentNode; node; node = walker.nextNode()) {
      if (node.nodeType === Node.TEXT_NODE) {
        if (!shows(node.data)) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        for (const box of range.getClientRects()) add(box);
      } else if (node.nodeType === Node.ELEMENT_NODE) {
        if (node.shadowRoot) search(node.shadowRoot);
        if (/^(INPUT|TEXTAREA)$/.test(node.tagName)) {
          const shown = [node.type !== "password" && node.value, node.placeholder];
          if (shown.some(shows)) add(node.getBoundingClientRect());
        } else if (node.tagName === "SELECT") {
          if (shows(node.textContent)) add(node.getBoundingClientRect());
        }
      }
    }
  };
  search(document);
  return boxes;
}
"""
