// Runs before a task's own scripts: its clock, its timers, and the episode as seen from outside (window.holotron).
(() => {
  // After every date a task asks for: date pickers then open on their last month, as they do for everyone today.
  const FIRST_MOMENT = Date.UTC(2024, 0, 1, 12);
  // A page is busy while a one-shot timer this short is pending, or an interval short enough to be an animation.
  const SHORT_TIMEOUT_MS = 500, SHORT_INTERVAL_MS = 40;
  const LONGEST_SCROLL_MS = 1000; // for wheels that the task catches
  const LONGEST_FRAME_MS = 500; // on a busy machine
  const LONGEST_TIMER_MS = 2 ** 31 - 1; // a longer one fires at once

  const real = {};
  for (const name of ["setTimeout", "setInterval", "requestAnimationFrame", "cancelAnimationFrame"])
    real[name] = window[name].bind(window);
  real.clear = window.clearTimeout.bind(window); // clears intervals too

  // The clock stands still until the first screenshot is taken, then runs at its usual speed.
  let running_since = null;
  const now = () => FIRST_MOMENT + (running_since === null ? 0 : Math.floor(performance.now() - running_since));
  window.Date = new Proxy(Date, {
    construct: (target, given, as) => Reflect.construct(target, given.length ? given : [now()], as),
    apply: (target) => new target(now()).toString(),
    get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
  });

  // Timers set while the clock stands still are armed when it starts, so that none changes the first screenshot.
  const timers = new Map();
  let standing = null, last_id = 0;
  const add = (kind, callback, delay, given) => {
    const id = ++last_id;
    const short = kind === "setInterval" ? SHORT_INTERVAL_MS : SHORT_TIMEOUT_MS;
    const timer = { kind, busy: kind === "requestAnimationFrame" || delay <= short };
    const fire = (...moment) => {
      if (kind !== "setInterval") timers.delete(id);
      timer.fired = true;
      if (typeof callback === "function") callback.apply(window, [...moment, ...given]);
      else (0, eval)(callback);
    };
    timer.arm = () => { if (timers.has(id)) timer.id = real[kind](fire, delay); };
    timers.set(id, timer);
    if (standing) standing.push(timer); else timer.arm();
    return id;
  };
  const remove = (id) => {
    const timer = timers.get(id);
    if (!timer) return;
    timers.delete(id);
    if (timer.kind === "requestAnimationFrame") real.cancelAnimationFrame(timer.id); else real.clear(timer.id);
  };
  window.setTimeout = (callback, delay, ...given) => add("setTimeout", callback, Number(delay) || 0, given);
  window.setInterval = (callback, delay, ...given) => add("setInterval", callback, Number(delay) || 0, given);
  window.requestAnimationFrame = (callback) => add("requestAnimationFrame", callback, 0, []);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = remove;

  // A blinking caret would make two screenshots of one state differ.
  const style = new CSSStyleSheet();
  style.replaceSync("* { caret-animation: manual !important; }");
  document.adoptedStyleSheets.push(style);

  // Pages of one browser share its clipboard, so each keeps one of its own and never pastes another page's copy.
  let clipboard = "";
  const selected = () => {
    const element = document.activeElement;
    const typed = element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement;
    return typed ? element.value.slice(element.selectionStart, element.selectionEnd) : String(window.getSelection());
  };
  for (const name of ["copy", "cut"])
    window.addEventListener(name, (event) => {
      if (!event.isTrusted) return;
      clipboard = selected() || clipboard;
      event.preventDefault();
      if (name === "cut") document.execCommand("delete");
    });
  window.addEventListener("paste", (event) => {
    if (!event.isTrusted) return;
    event.preventDefault();
    document.execCommand("insertText", false, clipboard);
  });

  const until = (reached, limit) => new Promise((resolve) => {
    const deadline = performance.now() + limit;
    const look = () => {
      if (reached() || performance.now() >= deadline) resolve(); else real.setTimeout(look, 8);
    };
    look();
  });
  // What moved last leaves other edges until the page was drawn without it.
  const drawn = () => Promise.race([
    new Promise((resolve) => real.requestAnimationFrame(() => real.requestAnimationFrame(resolve))),
    new Promise((resolve) => real.setTimeout(resolve, LONGEST_FRAME_MS)),
  ]);
  const ends = (animation) => animation.playState === "running" && isFinite(animation.effect.getComputedTiming().endTime);
  const busy = () => {
    for (const timer of timers.values()) if (timer.busy) return true;
    return document.getAnimations().some(ends);
  };

  // Nothing will change before something is done to the page; the episode's own timers do not count.
  const still = () =>
    [...timers.keys()].every((id) => id === core.EP_TIMER || id === core.CD_TIMER) &&
    window.frames.length === 0 && document.getAnimations().every((animation) => animation.playState !== "running");

  // Every picture the page shows or may come to show, loaded and decoded: the browser draws without those that are not.
  // It loads a file anew whenever something begins to show it. One asked for meanwhile is there with that one.
  let illustrated = false;
  const pictures = (all) => {
    const urls = new Set();
    for (const element of document.querySelectorAll("*")) {
      if (!all && !element.checkVisibility()) continue;
      if (element instanceof HTMLImageElement && element.src) urls.add(element.src);
      for (const part of [null, "::before", "::after"]) {
        const style = getComputedStyle(element, part);
        for (const [, url] of (style.backgroundImage + style.content).matchAll(/url\("([^"]+)"\)/g)) urls.add(url);
      }
    }
    illustrated ||= urls.size > 0;
    return Promise.all([...urls].map((url) => {
      const picture = new Image();
      picture.src = url;
      return picture.decode().catch(() => {}); // a task may name a picture that does not exist
    }));
  };

  let started = false, restless = false, result = null, scrolled = null, on_scroll = () => {};
  document.addEventListener("scroll", () => on_scroll(), true);
  const run_clock = () => {
    if (running_since !== null) return;
    running_since = performance.now();
    const armed = standing || [];
    standing = null;
    for (const timer of armed) timer.arm();
  };
  const utterance = () => {
    const said = core.getUtterance();
    return typeof said === "string" ? said : said.utterance; // some tasks add the fields to fill in
  };

  // What the page was before its first episode: elements as they were parsed, the task's variables, parts of `core`.
  const own = { names: new Set(Object.getOwnPropertyNames(window)) };
  document.addEventListener("DOMContentLoaded", () => { own.body = document.body.cloneNode(true); });
  const plain = (value) => value === null || !["object", "function"].includes(typeof value);
  const copied = (value) => (Array.isArray(value) ? [...value] : value);
  const variables = () => Object.keys(window).filter((name) => {
    const value = window[name];
    return !own.names.has(name) && (plain(value) || Array.isArray(value) && value.every(plain));
  });
  const prepare = () => {
    core.setDataMode("train");
    own.variables = new Map(variables().map((name) => [name, copied(window[name])]));
    own.time = core.EPISODE_MAX_TIME;
    own.start = core.startEpisodeReal;
    own.countdown = core.countdownTimer;
    const end = core.endEpisode;
    core.endEpisode = (...given) => {
      end(...given);
      if (!WOB_DONE_GLOBAL || result) return;
      // Kept, and the cover made dead: a second click of a double click would start another episode.
      result = [WOB_RAW_REWARD_GLOBAL, WOB_REWARD_GLOBAL, String(WOB_REWARD_REASON || "")];
      core.startEpisodeReal = () => {};
    };
  };
  // limit: milliseconds until the episode times out, 0 for never, -1 for the task's own.
  const begin = async (seed, limit) => {
    core.EPISODE_MAX_TIME = limit < 0 ? own.time : limit === 0 ? LONGEST_TIMER_MS : Math.min(limit, LONGEST_TIMER_MS);
    core.startEpisodeReal = own.start;
    core.countdownTimer = (time) => {
      own.countdown(time);
      // Beside the task's area a clock would be drawn every second, which costs more than the policy's steps.
      if (limit === 0) clearInterval(core.CD_TIMER);
    };
    standing = [];
    Math.seedrandom(seed);
    core.startEpisodeReal();
    started = true;
    if (!WOB_TASK_READY) {
      run_clock();
      await until(() => WOB_TASK_READY, Infinity);
    }
    // An animation that loading began has made its first step, or the first screenshot would tell how fast it loaded.
    await until(() => [...timers.values()].every((timer) => timer.fired || !timer.busy || !timer.id), SHORT_TIMEOUT_MS);
    await pictures(true);
    await document.fonts.ready;
    return utterance();
  };
  // Takes the last episode off the page.
  const clean = () => {
    const { body } = document;
    const kept = [core.cover_div, document.getElementById("click-canvas"), document.getElementById("reward-display")];
    for (const node of [...body.childNodes]) {
      if (kept.includes(node)) continue;
      if (window.jQuery) jQuery(node).remove(); else node.remove(); // jQuery's widgets then undo what they did elsewhere
    }
    for (const name of body.getAttributeNames()) body.removeAttribute(name);
    for (const name of own.body.getAttributeNames()) body.setAttribute(name, own.body.getAttribute(name));
    body.prepend(...own.body.cloneNode(true).childNodes);
    for (const name of variables()) if (!own.variables.has(name)) delete window[name];
    for (const [name, value] of own.variables) window[name] = copied(value);
    kept[2].innerHTML = core.DISPLAY_HTML;
    core.wob_latest = "-";
    core.wob_scores = [];
    if (location.href.includes("#")) history.replaceState(null, "", location.pathname); // of links that lead nowhere
    clipboard = "";
    restless = false;
    result = scrolled = running_since = null;
  };

  window.holotron = {
    // The first episode of a page.
    async start(seed, limit) {
      await until(() => document.readyState === "complete" && core.cover_div !== null, Infinity);
      prepare();
      return begin(seed, limit);
    },
    // Whether the page has come to rest, so that another episode can begin in it. The Tab key and a click beside the
    // task must follow: the browser then outlines what a task focuses as in a new page.
    async leave() {
      if (!started) return false;
      const links = [0, 1].map(() => Object.assign(document.createElement("a"), { tabIndex: 0 }));
      document.body.prepend(...links);
      links[0].focus({ preventScroll: true });
      await until(() => !busy(), SHORT_TIMEOUT_MS);
      return still();
    },
    // Another episode, as if the page had just been loaded.
    restart(seed, limit) {
      clean();
      return begin(seed, limit);
    },
    // Whether the page then stays as it was seen.
    run_clock() {
      run_clock();
      return still();
    },
    // Whether a wheel turned there will move something; `scrolled` then waits until it has.
    expect_scroll(x, y, dx, dy) {
      const room = (at, visible, all, by) => (by > 0 ? at + visible < all - 1 : by < 0 && at > 0);
      scrolled = new Promise((resolve) => { on_scroll = resolve; });
      for (let part = document.elementFromPoint(x, y); part; part = part.parentElement) {
        const style = getComputedStyle(part), whole = part === document.scrollingElement;
        const moves = (overflow) => whole || overflow === "auto" || overflow === "scroll";
        if (moves(style.overflowY) && room(part.scrollTop, part.clientHeight, part.scrollHeight, dy)) return true;
        if (moves(style.overflowX) && room(part.scrollLeft, part.clientWidth, part.scrollWidth, dx)) return true;
      }
      return false;
    },
    async scrolled() {
      await Promise.race([scrolled, new Promise((resolve) => real.setTimeout(resolve, LONGEST_SCROLL_MS))]);
    },
    // Waits, at most `limit` milliseconds, until nothing on the page is about to change by itself.
    async state(limit) {
      if (!started) return null;
      if (limit > 0 && !restless && !result && busy()) {
        await until(() => result || !busy(), limit);
        await drawn();
        restless = !result && busy(); // something that never ends, such as a turning cube
      }
      if (illustrated && !result) await pictures(false);
      return result ? [true, ...result, utterance(), true] : [false, 0, 0, "", utterance(), still()];
    },
  };
})();
