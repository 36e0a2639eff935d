// @ts-check
/**
 * The history of a run: a page of events, newest first. The first page follows what happens; older ones stand still.
 *
 * However many events there are, a page has at most so many rows as run_state.js keeps.
 */

import { h, keyed } from "./dom.js";
import { dateTime, timeOfDay } from "./format.js";
import { sentenceOf, weightOf } from "./sentences.js";

/** @type {import("./run.js").MakeSection} */
export function section() {
  const list = h("ol", { class: "events" });
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "run-events" },
    h("div", { class: "card-head" }, h("h2", { id: "run-events" }, "Events")),
    list,
  );
  /** @type {readonly import("./run_state.js").RunEvent[] | null} */
  let drawn = null;
  return {
    element,
    update(state) {
      if (state.events === drawn) return;
      drawn = state.events;
      keyed(list, state.events, (event) => event.sequence, row);
    },
  };
}

/** @param {import("./run_state.js").RunEvent} event */
function row(event) {
  return h(
    "li",
    { class: "event", "data-tone": weightOf(event) },
    h("time", { datetime: event.time, title: dateTime(event.time) }, timeOfDay(event.time)),
    h("span", { class: "event-text" }, sentenceOf(event)),
  );
}
