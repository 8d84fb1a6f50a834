// Lists of <select> and calendars of date fields as part of the page. The browser draws its own outside of the page, where
// they are seen but hear no mouse. Calls the function of this name with the arguments after it; what is shown stays until
// something is chosen, as do the listeners.
(name, ...given) => {
  const STYLE = `
    :host { all: initial !important; display: block !important; position: fixed !important; overflow: hidden auto !important;
      border: 1px solid #767676 !important; background: #fff !important; box-sizing: border-box !important;
      font: 13px sans-serif !important; color: #000 !important }
    .row { position: absolute; left: 0; right: 0; padding: 0 6px; white-space: pre; overflow: hidden;
      text-overflow: ellipsis; box-sizing: border-box }
    .row:hover, td:hover, button:hover { background: #dce8fb }
    .current, .current:hover { background: #1967d2; color: #fff }
    .group { font-weight: bold } .off { color: #8a8a8a } .off:hover { background: none }
    table { border-collapse: collapse; margin: 4px } td, th { width: 32px; height: 26px; text-align: center; padding: 0 }
    button { font: inherit; border: 0; background: none; min-width: 32px; height: 26px; color: #1967d2 }
    .head { display: flex; align-items: center; margin: 4px 4px 0 } .head b { flex: 1; text-align: center }`;

  const make = () => {
    let shown = null;
    const change = (control, set) => {
      set();
      control.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
      control.dispatchEvent(new Event("change", {bubbles: true}));
    };
    const close = () => {
      if (shown) shown.host.remove();
      shown = null;
    };
    const isList = element => element.tagName === "SELECT" && !element.multiple && element.size <= 1;
    const isDate = element => element.tagName === "INPUT" && element.type === "date";
    const usable = element => element && element.tagName && !element.matches(":disabled");

    const open = (control, fill) => {
      close();
      control.focus();
      const host = document.createElement("div");
      host.popover = "manual";
      const root = host.attachShadow({mode: "closed"});
      const style = document.createElement("style");
      style.textContent = STYLE;
      root.append(style);
      // Outside of a modal dialog nothing can be clicked.
      (control.closest("dialog") || document.documentElement).append(host);
      shown = {control, host, root};
      const {width, height} = fill(root);
      const box = control.getBoundingClientRect();
      const below = innerHeight - box.bottom, above = box.top;
      const under = below >= Math.min(height, 200) || below >= above;
      const tall = Math.max(Math.min(height, under ? below : above), 24);
      const wide = Math.min(Math.max(width, box.width), innerWidth);
      const left = Math.max(0, Math.min(box.left, innerWidth - wide)), top = under ? box.bottom : box.top - tall;
      // Important here counts for more than anything that the page's own styles say of the element.
      style.textContent += `:host { left: ${left}px !important; top: ${top}px !important;
        width: ${wide}px !important; height: ${tall}px !important }`;
      host.showPopover();
      shown.draw();
    };

    // ---- lists ----

    const rowsOf = select => {
      const rows = [];
      const add = (option, inGroup) => {
        if (option.tagName !== "OPTION" || option.hidden) return;
        const off = option.disabled || (inGroup && option.parentNode.disabled);
        rows.push({text: option.label, option, off, indent: inGroup});
      };
      for (const child of select.children) {
        if (child.tagName !== "OPTGROUP") { add(child, false); continue; }
        if (child.hidden) continue;
        rows.push({text: child.label, off: true, group: true});
        for (const option of child.children) add(option, true);
      }
      return rows;
    };
    const openList = select => {
      const rows = rowsOf(select);
      const font = parseFloat(getComputedStyle(select).fontSize) || 13;
      const high = Math.max(20, Math.round(font * 1.4));
      let current = rows.findIndex(row => row.option && row.option.selected);
      open(select, root => {
        const inner = document.createElement("div");
        inner.style.cssText = `position: relative; height: ${rows.length * high}px; font-size: ${font}px`;
        root.append(inner);
        const host = root.host;
        // A list may have a hundred thousand rows, and shows a dozen of them.
        const draw = () => {
          const first = Math.max(0, Math.floor(host.scrollTop / high) - 1);
          const last = Math.min(rows.length, first + Math.ceil(host.clientHeight / high) + 3);
          inner.replaceChildren(...rows.slice(first, last).map((row, at) => {
            const line = document.createElement("div");
            line.className = ["row", row.group && "group", row.off && "off", first + at === current && "current"]
              .filter(Boolean).join(" ");
            line.style.cssText = `top: ${(first + at) * high}px; height: ${high}px; line-height: ${high}px`;
            if (row.indent) line.style.paddingLeft = "20px";
            line.textContent = row.text;
            line.row = row;
            return line;
          }));
        };
        const reveal = () => {
          const top = current * high;
          if (top < host.scrollTop) host.scrollTop = top;
          if (top + high > host.scrollTop + host.clientHeight) host.scrollTop = top + high - host.clientHeight;
        };
        host.addEventListener("scroll", draw);
        const take = row => {
          if (!row || row.off) return;
          close();
          if (!row.option.selected) change(select, () => { row.option.selected = true; });
        };
        const move = (to, step) => {
          let at = Math.max(0, Math.min(rows.length - 1, to));
          while (rows[at] && rows[at].off) at += step;
          if (!rows[at]) return;
          current = at;
          reveal();
          draw();
        };
        let typed = "", typedAt = 0;
        const page = () => Math.max(1, Math.floor(host.clientHeight / high) - 1);
        const keys = {
          ArrowDown: () => move(current + 1, 1), ArrowUp: () => move(current - 1, -1),
          PageDown: () => move(current + page(), 1), PageUp: () => move(current - page(), -1),
          Home: () => move(0, 1), End: () => move(rows.length - 1, -1),
          Enter: () => take(rows[current]), Tab: () => take(rows[current]), Escape: close,
        };
        shown.key = event => {
          if (event.key in keys) { keys[event.key](); return event.key !== "Tab"; }
          if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return false;
          if (event.key === " " && !typed) { take(rows[current]); return true; }
          typed = (performance.now() - typedAt < 1000 ? typed : "") + event.key.toLowerCase();
          typedAt = performance.now();
          const at = rows.findIndex(row => row.option && !row.off && row.text.trim().toLowerCase().startsWith(typed));
          if (at >= 0) move(at, 1);
          return true;
        };
        shown.draw = () => { reveal(); draw(); };
        shown.hit = line => take(line.row);
        const longest = rows.reduce((most, row) => Math.max(most, row.text.length), 0);
        return {width: Math.min(longest * font * 0.6 + 30, 600), height: rows.length * high + 2};
      });
    };

    // ---- calendars ----

    const iso = date => date.toISOString().slice(0, 10);
    const openCalendar = input => {
      const day = 24 * 60 * 60 * 1000;
      const now = new Date();
      const today = new Date(Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()));
      let month = new Date(input.valueAsDate || today);
      month.setUTCDate(1);
      const allowed = text => (!input.min || text >= input.min) && (!input.max || text <= input.max);
      const names = new Intl.DateTimeFormat(navigator.language, {month: "long", year: "numeric", timeZone: "UTC"});
      const short = new Intl.DateTimeFormat(navigator.language, {weekday: "narrow", timeZone: "UTC"});
      open(input, root => {
        const body = document.createElement("div");
        root.append(body);
        const element = (tag, text, act, off) => {
          const made = document.createElement(tag);
          made.textContent = text;
          if (act && !off) made.act = act;
          if (off) made.className = "off";
          return made;
        };
        const take = text => () => { close(); if (input.value !== text) change(input, () => { input.value = text; }); };
        const turn = months => () => { month.setUTCMonth(month.getUTCMonth() + months); draw(); };
        const draw = () => {
          const head = document.createElement("div");
          head.className = "head";
          head.append(element("button", "«", turn(-12)), element("button", "‹", turn(-1)),
            element("b", names.format(month)), element("button", "›", turn(1)), element("button", "»", turn(12)));
          const table = document.createElement("table");
          const first = new Date(month.getTime() - month.getUTCDay() * day);
          const titles = table.insertRow();
          for (let at = 0; at < 7; at += 1) titles.append(element("th", short.format(new Date(first.getTime() + at * day))));
          for (let week = 0; week < 6; week += 1) {
            const row = table.insertRow();
            for (let at = 0; at < 7; at += 1) {
              const date = new Date(first.getTime() + (week * 7 + at) * day);
              const cell = element("td", date.getUTCDate(), take(iso(date)), !allowed(iso(date)));
              if (date.getUTCMonth() !== month.getUTCMonth()) cell.classList.add("off");
              if (iso(date) === input.value) cell.className = "current";
              row.append(cell);
            }
          }
          const foot = document.createElement("div");
          foot.className = "head";
          foot.append(element("button", "Clear", take("")), element("b", ""),
            element("button", "Today", take(iso(today)), !allowed(iso(today))));
          body.replaceChildren(head, table, foot);
        };
        shown.key = event => { if (event.key === "Escape") close(); return event.key === "Escape"; };
        shown.draw = draw;
        shown.hit = line => line.act && line.act();
        return {width: 236, height: 262};
      });
    };

    // ---- what opens and closes them ----

    const inside = event => shown && event.composedPath().includes(shown.host);
    const swallow = event => { event.preventDefault(); event.stopImmediatePropagation(); };
    const rootOf = element => element.shadowRoot || (globalThis.closedRoots && closedRoots.get(element));
    // What an event of the mouse is about: of what lies in a closed shadow root it names the host alone.
    const target = event => {
      let element = event.composedPath()[0], inner;
      while (rootOf(element) && (inner = rootOf(element).elementFromPoint(event.clientX, event.clientY)) !== element && inner) {
        element = inner;
      }
      return element;
    };
    const rowAt = (x, y) => {
      const found = shown.root.elementFromPoint(x, y);
      return found === shown.host ? null : found;
    };
    for (const kind of ["pointerdown", "mousedown", "pointerup", "mouseup", "click", "dblclick", "auxclick"]) {
      addEventListener(kind, event => {
        if (inside(event)) {
          if (kind.startsWith("pointer")) return event.stopImmediatePropagation();  // or no mouse events follow
          swallow(event);
          const line = kind === "mouseup" && rowAt(event.clientX, event.clientY);
          if (line) shown.hit(line);
        } else if (shown && kind === "mousedown") {
          // A second click on the field itself only closes it.
          if (event.composedPath().includes(shown.control) || target(event) === shown.control) event.preventDefault();
          close();
        }
      }, true);
    }
    addEventListener("mousedown", event => {
      const control = target(event);
      if (event.defaultPrevented || event.button !== 0 || !usable(control) || !isList(control)) return;
      event.preventDefault();
      openList(control);
    });
    addEventListener("keydown", event => {
      if (shown && shown.control !== focus()) close();
      if (shown && shown.key(event)) swallow(event);
    }, true);
    addEventListener("keydown", event => {
      const control = focus();
      const opens = event.key === " " || event.key === "F4" || (event.altKey && /^Arrow(Up|Down)$/.test(event.key));
      if (shown || event.defaultPrevented || !opens || !usable(control) || !isList(control)) return;
      event.preventDefault();
      openList(control);
    });
    addEventListener("scroll", event => { if (shown && event.target !== shown.host) close(); }, true);
    addEventListener("resize", close);

    const focus = () => {
      let element = document.activeElement;
      while (element && rootOf(element) && rootOf(element).activeElement) element = rootOf(element).activeElement;
      return element;
    };
    return {
      // The listeners are there from now on.
      watch: () => null,
      // Which kind of picker the browser itself shows for the element with the focus: empty if none.
      native: () => {
        const element = focus();
        try {
          return usable(element) && element.matches(":is(select, input):open") ? element.type : "";
        } catch { return ""; }  // an older browser does not know
      },
      // Show ours for the element with the focus; whether there is one.
      show: () => {
        const element = focus();
        if (!usable(element) || !(isList(element) || isDate(element))) return false;
        (isList(element) ? openList : openCalendar)(element);
        return true;
      },
      // What is written at a point of what is shown; null outside of it.
      label_at: (x, y) => {
        if (!shown || document.elementFromPoint(x, y) !== shown.host) return null;
        const line = rowAt(x, y);
        return line ? line.textContent : "";
      },
      close,
    };
  };
  globalThis.picker ||= make();
  return globalThis.picker[name](...given);
}
