// @ts-check
/**
 * Training loss by term over the rounds.
 */

import { LineChart } from "./line_chart.js";
import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { colour, dash, shape } from "../lib/palette.js";
import { bandsOf } from "../lib/stages.js";

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("./line_chart.js").Series} Series
 */

/** Names of the methods' loss terms. @type {Record<string, string>} */
const TERMS = {
  ce: "cross-entropy",
  contra: "contrast",
  corr: "correlation",
  prox: "proximal term",
  contrast: "contrast",
  proto: "distance to prototypes",
  cpcl: "contrast with clusters",
  upcr: "distance to unbiased",
  local: "contrast with single clients",
  global: "contrast with averages",
  ntd: "distillation of other classes",
  proc: "contrast with centres",
};

/**
 * A line for each term of the loss, the cross-entropy first; as reported, without coefficients.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @returns {{rounds: number[], series: Series[]}}
 */
export function lossSeries(rounds) {
  /** @type {Set<string>} */
  const found = new Set();
  for (const each of rounds) for (const name in each.loss) found.add(name);
  const names = [...found].sort((one, other) => Number(other === "ce") - Number(one === "ce") || (one < other ? -1 : 1));
  return {
    rounds: rounds.map((each) => each.round),
    series: names.map((name, index) => ({
      key: name,
      label: TERMS[name] ?? name,
      note: name,
      values: rounds.map((each) => each.loss?.[name] ?? null),
      colour: colour(index),
      dash: dash(index),
      mark: shape(index).path,
    })),
  };
}

/**
 * The section of losses of a run's page.
 *
 * @param {{range?: import("../lib/round_range.js").RoundRange}} [context]
 * @returns {{element: HTMLElement, update: (state: RunState) => void}}
 */
export function section({ range: shown } = {}) {
  const chart = new LineChart({ name: "Training loss by term", rounds: shown, format: number, canBeLog: true, height: 240 });
  const empty = h("p", { class: "muted" }, "The curves begin when round 1 has committed.");
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "losses-heading" },
    h("h2", { id: "losses-heading" }, "Training loss"),
    empty,
    chart.element,
  );
  /** @type {readonly Document[] | null} */
  let drawn = null;

  /** @param {RunState} state */
  function update(state) {
    if (state.rounds === drawn) return;
    drawn = state.rounds;
    empty.hidden = drawn.length > 0;
    const { rounds, series } = lossSeries(drawn);
    chart.update(rounds, series, bandsOf(drawn));
  }

  return { element, update };
}
