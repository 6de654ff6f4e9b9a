// Brings what a page shows of a node up to date every two seconds. The page is whole without it.
(() => {
  "use strict";
  const SECONDS = 2;

  const isUsed = (part) => {
    const selection = document.getSelection();
    return part.contains(document.activeElement) || (!selection.isCollapsed && part.contains(selection.anchorNode));
  };

  const replace = (part, fresh) => {
    const open = [...part.querySelectorAll("details[open][id]")].map((details) => details.id);
    const scrolled = [...part.querySelectorAll(".hipq-scroll")].map((box) => box.scrollLeft);
    part.replaceChildren(...fresh.childNodes);
    open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    part.querySelectorAll(".hipq-scroll").forEach((box, index) => { box.scrollLeft = scrolled[index] || 0; });
  };

  const refresh = async (part) => {
    if (document.hidden || isUsed(part)) return;
    const response = await fetch(window.location.href, { credentials: "same-origin" });
    if (!response.ok || response.redirected) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.getElementById(part.id);
    if (fresh && !isUsed(part) && fresh.innerHTML !== part.innerHTML) replace(part, fresh);
  };

  const start = (part) => {
    const again = () => window.setTimeout(() => refresh(part).catch(() => {}).finally(again), SECONDS * 1000);
    again();
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-hipq-refresh]").forEach(start);
  });
})();
