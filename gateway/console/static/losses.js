// @ts-check
/**
 * What training looks like from inside: loss by term, and how many prototypes each round had.
 */

import { LineChart } from "./charts.js";
import { h, setText } from "./dom.js";
import { count, number } from "./format.js";
import { colour, dash, shape } from "./palette.js";

/**
 * @typedef {import("./run_state.js").Document} Document
 * @typedef {import("./run_state.js").RunState} RunState
 * @typedef {import("./charts.js").Series} Series
 */

/** What the terms of the methods are called. @type {Record<string, string>} */
const TERMS = {
  ce: "cross-entropy",
  contra: "contrast",
  corr: "correlation",
  prox: "proximal term",
  contrast: "contrast",
  proto: "distance to prototypes",
  cpcl: "contrast with clusters",
  upcr: "distance to unbiased",
  local: "contrast with local signals",
  global: "contrast with averaged signals",
};

/**
 * A line for each term of the loss, the cross-entropy first; as reported, without coefficients.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @returns {{rounds: number[], series: Series[]}}
 */
export function lossSeries(rounds) {
  const names = [...new Set(rounds.flatMap((each) => Object.keys(each.loss ?? {})))];
  names.sort((one, other) => Number(other === "ce") - Number(one === "ce") || (one < other ? -1 : 1));
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
 * How many prototypes clients sent and how many the aggregator made of them; nothing where there are none.
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
 * The sections of loss and prototypes of a run's page.
 *
 * @returns {{element: HTMLElement, update: (state: RunState) => void}}
 */
export function section() {
  const losses = new LineChart({ name: "Training loss by term", format: number, canBeLog: true, height: 240 });
  const prototypes = new LineChart({ name: "Prototypes", format: count, range: { low: 0, high: 1 }, height: 240 });
  const empty = h("p", { class: "muted" }, "The curves begin when round 1 has committed.");
  const summary = h("p");
  const prototypeCard = h(
    "section",
    { class: "card", "aria-labelledby": "prototypes-heading", hidden: true },
    h("h2", { id: "prototypes-heading" }, "Prototypes"),
    summary,
    prototypes.element,
  );
  const element = h(
    "div",
    { class: "columns" },
    h(
      "section",
      { class: "card", "aria-labelledby": "losses-heading" },
      h("h2", { id: "losses-heading" }, "Training loss"),
      empty,
      losses.element,
    ),
    prototypeCard,
  );
  /** @type {readonly Document[] | null} */
  let drawn = null;

  /** @param {RunState} state */
  function update(state) {
    if (state.rounds === drawn) return;
    drawn = state.rounds;
    empty.hidden = drawn.length > 0;
    const found = lossSeries(drawn);
    losses.update(found.rounds, found.series);
    const counts = prototypeSeries(drawn);
    prototypeCard.hidden = counts.rounds.length === 0;
    prototypes.update(counts.rounds, counts.series);
    const last = drawn.at(-1)?.prototypes;
    setText(summary, last ? `${count(last.local)} sent by clients, ${count(last.global)} global after clustering.` : "");
  }

  return { element, update };
}
