"use strict";
// Asks whether the run has grown, and loads the page again if so; the place on the page is kept.
(() => {
  const KEY = "grposcope-scroll";
  const query = location.search;
  const kept = sessionStorage.getItem(KEY);
  if (kept) {
    sessionStorage.removeItem(KEY);
    const until = performance.now() + 5000;
    const restore = () => {
      scrollTo(0, Number(kept));
      if (Math.abs(scrollY - Number(kept)) > 2 && performance.now() < until) setTimeout(restore, 100);
    };
    restore();
  }
  let known = "";
  const look = async () => {
    try {
      const answer = await fetch(`version${query}`, { cache: "no-store" });
      const version = answer.ok ? await answer.text() : known;
      if (known && version !== known && !document.hidden) {
        sessionStorage.setItem(KEY, String(scrollY));
        location.reload();
        return;
      }
      known = known || version;
    } catch { /* the server has gone; the page stays as it is */ }
    setTimeout(look, 3000);
  };
  look();
})();
