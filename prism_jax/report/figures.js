"use strict";
// Figures answer to hovering and to focus: the text of a mark stands in a tip beside it. Without this script the
// browser shows the same texts, which are the marks' SVG titles, when the pointer rests on them.
{
  const tip = document.getElementById("tip");
  let current = null;

  for (const svg of document.querySelectorAll("svg[role=img]")) answer(svg);

  // Figures that controls.js draws later call this too.
  window.answerToPointerAndFocus = answer;

  function answer(svg) {
    for (const title of svg.querySelectorAll("title")) {
      title.parentElement.dataset.tip = title.textContent;
      title.remove();
    }
    if (marksOf(svg).length === 0) return;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointermove", (event) => point(svg, event));
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("focus", () => svg.matches(":focus-visible") && show(marksOf(svg)[0]));
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => step(svg, event));
  }

  function marksOf(svg) {
    return [...svg.querySelectorAll("[data-tip]")];
  }

  // The mark under the pointer, or the nearest one within 16 pixels.
  function point(svg, event) {
    const under = event.target.closest("[data-tip]");
    if (under) return show(under);
    let nearest = null, least = 16;
    for (const mark of marksOf(svg)) {
      const box = mark.getBoundingClientRect();
      if (box.width > 40) continue;
      const away = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
      if (away < least) [nearest, least] = [mark, away];
    }
    if (nearest) show(nearest); else hide();
  }

  function step(svg, event) {
    const marks = marksOf(svg), moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key === "Escape") return hide();
    if (!(event.key in moves) && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    const place = marks.indexOf(current);
    const next = event.key === "Home" ? 0 : event.key === "End" ? marks.length - 1 : place + moves[event.key];
    show(marks[Math.min(Math.max(next, 0), marks.length - 1)]);
  }

  function show(mark) {
    if (mark === current) return;
    hide();
    current = mark;
    mark.classList.add("pointed");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    if (document.activeElement === mark.ownerSVGElement) mark.ownerSVGElement.parentElement.scrollLeft += outside(mark);
    const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect(), width = document.documentElement.clientWidth;
    const left = Math.min(Math.max(box.x + box.width / 2 - own.width / 2, 8), width - own.width - 8);
    const above = box.y - own.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  }

  // How far a mark lies outside the visible part of a figure that scrolls.
  function outside(mark) {
    const box = mark.getBoundingClientRect(), frame = mark.ownerSVGElement.parentElement.getBoundingClientRect();
    if (box.right > frame.right) return box.right - frame.right + 40;
    return box.left < frame.left ? box.left - frame.left - 40 : 0;
  }

  function hide() {
    if (current) current.classList.remove("pointed");
    current = null;
    tip.hidden = true;
  }
}
