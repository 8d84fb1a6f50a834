// Waits one frame, and then until the page has not changed for `quiet` ms and no finite animation runs; between `least`
// and `cap` ms. The watch stays for the life of the document, so that what an action changes at once is known later.
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
