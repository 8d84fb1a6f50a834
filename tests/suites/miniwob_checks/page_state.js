// What a page holds besides its picture, for comparisons: elements, fields, handlers and the task's own variables.
(() => {
  const known = new Set(Object.getOwnPropertyNames(window));
  const handlers = new Map(); // of native listeners: target, then type to number
  const count = (target, type, by) => {
    const types = handlers.get(target || window) || new Map();
    handlers.set(target || window, types.set(type, (types.get(type) || 0) + by));
  };
  const { addEventListener, removeEventListener } = EventTarget.prototype;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    count(this, type, 1);
    return addEventListener.call(this, type, ...rest);
  };
  EventTarget.prototype.removeEventListener = function (type, ...rest) {
    count(this, type, -1);
    return removeEventListener.call(this, type, ...rest);
  };

  const name = (node) => (node === window ? "window" : node === document ? "document" : `${node.nodeName}#${node.id}`);
  const connected = (target) => target === window || target === document || target.isConnected;
  // A number that only counts up, in ids of jQuery UI and the like, shows nowhere.
  const plain = (text) => text.replace(/(ui-id-|ui-datepicker-|jQuery|sizcache|dp)\d+/g, "$1N");
  const value = (thing, depth, seen) => {
    if (typeof thing === "function") return "function";
    if (typeof thing === "string") return plain(thing);
    if (thing === null || typeof thing !== "object") return String(thing);
    if (thing instanceof Node || thing === window) return name(thing);
    if (depth === 0 || seen.has(thing)) return "…";
    seen.add(thing);
    if (Array.isArray(thing)) return thing.slice(0, 500).map((part) => value(part, depth - 1, seen));
    return Object.fromEntries(Object.keys(thing).slice(0, 500).map((key) => [plain(key), value(thing[key], depth - 1, seen)]));
  };
  const SKIPPED = new Set(["jQuery", "$", "d3", "holotron", "page_state"]);
  const OF_THE_EPISODE = ["EP_TIMER", "CD_TIMER", "previousDOMInfo", "clickTrackCtx", "startEpisodeReal"];

  window.page_state = () => {
    const variables = {};
    for (const key of Object.getOwnPropertyNames(window))
      if (!known.has(key) && !SKIPPED.has(key)) variables[plain(key)] = value(window[key], 5, new Set());
    for (const key of OF_THE_EPISODE) delete variables.core[key];
    const elements = [...document.querySelectorAll("*")];
    const native = [...handlers].filter(([target]) => target instanceof EventTarget && connected(target))
      .flatMap(([target, types]) => [...types].map(([type, number]) => number ? `${name(target)} ${type} ${number}` : ""))
      .filter(Boolean).sort();
    const jquery = window.jQuery ? [window, document, ...elements].map((target) => {
      const events = jQuery._data(target, "events") || {};
      return Object.keys(events).map((type) => `${name(target)} ${type} ${events[type].length}`).join(" ");
    }).filter(Boolean) : [];
    return {
      html: plain(document.documentElement.outerHTML),
      fields: elements.filter((element) => "value" in element)
        .map((element) => [name(element), element.value, element.checked, element.selectedIndex, element.disabled]),
      focus: name(document.activeElement),
      scroll: elements.map((element) => element.scrollTop + element.scrollLeft).join(""),
      native, jquery, variables,
    };
  };
})();
