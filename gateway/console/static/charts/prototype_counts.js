// @ts-check
/**
 * Numbers of prototypes by round: sent by clients, and made of them by the aggregator.
 */

import { LineChart } from "./line_chart.js";
import { h, setText } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { colour, dash, shape } from "../lib/palette.js";
import { bandsOf } from "../lib/stages.js";

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("./line_chart.js").Series} Series
 */

/**
 * Numbers of the clients' and the aggregator's prototypes; empty without prototypes.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @returns {{rounds: number[], series: Series[]}}
 */
export function prototypeSeries(rounds) {
  const has = rounds.some((each) => each.prototypes?.local || each.prototypes?.global);
  const line = (/** @type {"local" | "global"} */ key, /** @type {string} */ label, /** @type {number} */ index) => ({
    key,
    label,
    values: rounds.map((each) => each.prototypes?.[key] ?? null),
    colour: colour(index),
    dash: dash(index),
    mark: shape(index).path,
  });
  return {
    rounds: has ? rounds.map((each) => each.round) : [],
    series: has ? [line("local", "sent by clients", 4), line("global", "global", 1)] : [],
  };
}

/**
 * The section of prototype counts of a run's page; not there where the run's method has none.
 *
 * @param {{range?: import("../lib/round_range.js").RoundRange}} [context]
 * @returns {{element: HTMLElement, update: (state: RunState) => void}}
 */
export function section({ range: shown } = {}) {
  const chart = new LineChart({ name: "Prototypes", rounds: shown, format: count, range: { low: 0, high: 1 }, height: 240 });
  const summary = h("p");
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "prototype-counts-heading", hidden: true },
    h("h2", { id: "prototype-counts-heading" }, "Prototypes"),
    summary,
    chart.element,
  );
  /** @type {readonly Document[] | null} */
  let drawn = null;

  /** @param {RunState} state */
  function update(state) {
    if (state.rounds === drawn) return;
    drawn = state.rounds;
    const { rounds, series } = prototypeSeries(drawn);
    element.hidden = rounds.length === 0;
    const last = drawn.at(-1)?.prototypes;
    if (last) setText(summary, `${count(last.local)} sent by clients in the last round, ${count(last.global)} made of them.`);
    chart.update(rounds, series, bandsOf(drawn));
  }

  return { element, update };
}
