// @ts-check
/**
 * Accuracy per domain over the rounds: the worst domain named and drawn heaviest, mean and worst beside the domains.
 */

import { LineChart } from "./line_chart.js";
import { h, setText } from "../lib/dom.js";
import { percent } from "../lib/format.js";
import { colour, dash, shape } from "../lib/palette.js";

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("./line_chart.js").Series} Series
 * @typedef {"accuracy" | "accuracy_local"} Which
 */

/** Keys of an accuracy beside the domains'. */
const SUMMARIES = new Set(["mean", "worst"]);

/**
 * Lines of an accuracy chart: each domain by name, the mean, and a band along the worst.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @param {Which} which
 * @returns {{rounds: number[], series: Series[]}}
 */
export function accuracySeries(rounds, which) {
  const having = rounds.filter((each) => each[which]);
  const domains = domainsOf(having, which);
  const worst = worstDomain(having.at(-1)?.[which]);
  const values = (/** @type {string} */ key) => having.map((each) => each[which][key] ?? null);
  /** @type {Series[]} */
  const series = domains.map((domain, index) => ({
    key: `domain ${domain}`,
    label: domain,
    values: values(domain),
    colour: colour(index),
    dash: dash(index),
    mark: shape(index).path,
    width: domain === worst ? 3 : 1.75,
    note: domain === worst && domains.length > 1 ? "worst" : "",
  }));
  if (domains.length > 1) {
    series.unshift(
      { key: "mean", label: "mean", values: values("mean"), colour: "var(--text)", width: 2.5 },
      { key: "worst", label: "worst of each round", values: values("worst"), colour: "var(--bad)", isBand: true },
    );
  }
  return { rounds: having.map((each) => each.round), series };
}

/**
 * The domain with the least accuracy; of equal ones the first by name, null where none is known.
 *
 * @param {Record<string, number | null> | null | undefined} accuracy
 */
export function worstDomain(accuracy) {
  /** @type {string | null} */
  let found = null;
  for (const domain of Object.keys(accuracy ?? {}).sort()) {
    const value = accuracy?.[domain];
    if (SUMMARIES.has(domain) || typeof value !== "number") continue;
    if (found === null || value < /** @type {number} */ (accuracy?.[found])) found = domain;
  }
  return found;
}

/**
 * The last round's accuracy in a sentence or two.
 *
 * @param {readonly Document[]} rounds
 * @param {Which} which
 */
export function accuracySentence(rounds, which) {
  const last = rounds.filter((each) => each[which]).at(-1);
  if (!last) return "";
  const accuracy = last[which];
  const worst = worstDomain(accuracy);
  if (worst === null) return `No client reported an accuracy in round ${last.round}.`;
  const known = Object.keys(accuracy).filter((key) => !SUMMARIES.has(key) && accuracy[key] !== null);
  if (known.length === 1) return `${percent(accuracy[worst])} in round ${last.round}.`;
  const best = Math.max(...known.map((domain) => accuracy[domain]));
  const gap = (100 * (best - accuracy[worst])).toFixed(1);
  return (
    `Mean ${percent(accuracy.mean)} in round ${last.round}. ` +
    `Worst domain: ${worst} with ${percent(accuracy[worst])}, ${gap} points behind the best.`
  );
}

/**
 * The accuracy section of a run's page.
 *
 * @returns {{element: HTMLElement, update: (state: RunState) => void}}
 */
export function section() {
  const chart = new LineChart({
    name: "Accuracy by domain",
    format: percent,
    formatTick: (value) => `${Math.round(100 * value)} %`,
    range: { low: 0, high: 1 },
    height: 320,
  });
  const name = `accuracy-${Math.random().toString(36).slice(2)}`;
  /** @type {Which} */
  let which = "accuracy";
  /** @type {readonly Document[] | null} */
  let drawn = null;
  /** @type {RunState | null} */
  let state = null;
  const choice = (/** @type {Which} */ value, /** @type {string} */ label) =>
    h(
      "label",
      { class: "chart-tool" },
      h("input", { type: "radio", name, value, checked: value === which, on: { change: () => choose(value) } }),
      label,
    );
  const choices = h(
    "fieldset",
    { class: "chart-choices", hidden: true },
    h("legend", { class: "visually-hidden" }, "Accuracy shown"),
    choice("accuracy", "Global model"),
    choice("accuracy_local", "Clients' own models"),
  );
  const sentence = h("p");
  const whose = h("p", { class: "small muted", hidden: true }, "Of the clients' own models: this run shares none.");
  const empty = h("p", { class: "muted" });
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "accuracy-heading" },
    h("div", { class: "card-head" }, h("h2", { id: "accuracy-heading" }, "Accuracy"), choices),
    empty,
    sentence,
    whose,
    chart.element,
  );

  /** @param {Which} wanted */
  function choose(wanted) {
    which = wanted;
    drawn = null;
    if (state) update(state);
  }

  /** @param {RunState} next */
  function update(next) {
    state = next;
    if (next.rounds === drawn) return;
    drawn = next.rounds;
    const last = drawn.at(-1);
    choices.hidden = !drawn.some((each) => each.accuracy_local) || last?.accuracy_of === "local";
    whose.hidden = last?.accuracy_of !== "local";
    const found = accuracySeries(drawn, which);
    setText(empty, drawn.length ? "No round has been evaluated yet." : "The curve begins when round 1 has committed.");
    empty.hidden = found.rounds.length > 0;
    setText(sentence, accuracySentence(drawn, which));
    chart.update(found.rounds, found.series);
  }

  return { element, update };
}

/**
 * @param {readonly Document[]} rounds
 * @param {Which} which
 */
function domainsOf(rounds, which) {
  const names = new Set();
  for (const each of rounds) for (const name in each[which]) names.add(name);
  return [...names].filter((name) => !SUMMARIES.has(name)).sort();
}
