// @ts-check
/**
 * Buttons that lead to the parts of a run's page, and open those that fold.
 */

import { h, keyed, setAttribute } from "../lib/dom.js";

/** @type {import("../lib/run_state.js").MakeSection} */
export function section() {
  const list = h("ul");
  const element = h("nav", { class: "parts", "aria-label": "Parts of this page" }, list);
  return {
    element,
    update() {
      const headings = [...(element.parentElement?.querySelectorAll("h2") ?? [])];
      keyed(list, headings, (heading) => headings.indexOf(heading), create, (item, heading) => setAttribute(item, "hidden", heading.closest("[hidden]") !== null));
    },
  };
}

/** @param {HTMLElement} heading */
function create(heading) {
  return h("li", null, h("button", { class: "button button-small", type: "button", on: { click: () => goTo(heading) } }, heading.textContent));
}

/** @param {HTMLElement} heading */
function goTo(heading) {
  const folded = heading.closest("details");
  if (folded) folded.open = true;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  heading.scrollIntoView({ block: "start" });
}
