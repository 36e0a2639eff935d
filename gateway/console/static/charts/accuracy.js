// @ts-check
/**
 * Accuracy per domain over the rounds: the worst domain named and drawn heaviest, mean and worst beside the domains.
 */

import { LineChart } from "./line_chart.js";
import { rangeFields } from "../lib/round_range.js";
import { bandsOf } from "../lib/stages.js";
import { h, keyed, setText } from "../lib/dom.js";
import { percent } from "../lib/format.js";
import { colour, dash, shape } from "../lib/palette.js";

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("./line_chart.js").Series} Series
 * @typedef {string} Which Keys of an accuracy in a line of metrics.jsonl: "accuracy", "accuracy_attacked.fgsm".
 */

/** Keys of an accuracy beside the domains'. */
const SUMMARIES = new Set(["mean", "worst"]);

/** Names of the accuracies beside the global model's, as they are chosen. @type {Record<string, string>} */
const NAMES = { balanced_accuracy: "Balanced", accuracy: "Global model", accuracy_local: "Clients' own models", accuracy_validation: "Validation images" };

/**
 * An accuracy of a round by domain; nothing where the round has none.
 *
 * @param {Document} round A line of metrics.jsonl.
 * @param {Which} which
 * @returns {Record<string, number | null> | null | undefined}
 */
export function accuracyOf(round, which) {
  const [key, attack] = which.split(".");
  return attack === undefined ? round[key] : round[key]?.[attack];
}

/**
 * The accuracies that rounds have, with their names.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @returns {{which: Which, label: string}[]}
 */
export function accuracies(rounds) {
  const last = rounds.at(-1);
  const found = Object.entries(NAMES).filter(([which]) => which === "accuracy" || rounds.some((each) => each[which]));
  // Of a run that shares no model both are the same.
  const own = found.filter(([which]) => last?.accuracy_of !== "local" || which !== "accuracy_local");
  const attacks = new Set(rounds.flatMap((each) => Object.keys(each.accuracy_attacked ?? {})));
  return [
    ...own.map(([which, label]) => ({ which, label })),
    ...[...attacks].sort().map((attack) => ({ which: `accuracy_attacked.${attack}`, label: `Under ${attack}` })),
  ];
}

/**
 * Lines of an accuracy chart: each domain by name, the mean, and a band along the worst.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @param {Which} which
 * @returns {{rounds: number[], series: Series[]}}
 */
export function accuracySeries(rounds, which) {
  const having = rounds.filter((each) => accuracyOf(each, which));
  const domains = domainsOf(having, which);
  const last = having.at(-1);
  const worst = worstDomain(last && accuracyOf(last, which));
  const values = (/** @type {string} */ key) => having.map((each) => accuracyOf(each, which)?.[key] ?? null);
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
  const last = rounds.filter((each) => accuracyOf(each, which)).at(-1);
  if (!last) return "";
  const accuracy = accuracyOf(last, which) ?? {};
  const worst = worstDomain(accuracy);
  if (worst === null) return `No client reported an accuracy in round ${last.round}.`;
  const known = Object.keys(accuracy).filter((key) => !SUMMARIES.has(key) && accuracy[key] !== null);
  if (known.length === 1) return `${percent(accuracy[worst])} in round ${last.round}.`;
  const best = Math.max(...known.map((domain) => accuracy[domain] ?? 0));
  const gap = (100 * (best - (accuracy[worst] ?? 0))).toFixed(1);
  return (
    `Mean ${percent(accuracy.mean)} in round ${last.round}. ` +
    `Worst domain: ${worst} with ${percent(accuracy[worst])}, ${gap} points behind the best.`
  );
}

/**
 * The accuracy section of a run's page, with the fields of the rounds that the page's charts show.
 *
 * @param {{range?: import("../lib/round_range.js").RoundRange}} [context]
 * @returns {{element: HTMLElement, update: (state: RunState) => void}}
 */
export function section({ range } = {}) {
  const chart = new LineChart({
    name: "Accuracy by domain",
    format: percent,
    formatTick: (value) => `${Math.round(100 * value)} %`,
    range: { low: 0, high: 1 },
    height: 320,
    rounds: range,
  });
  const name = `accuracy-${Math.random().toString(36).slice(2)}`;
  /** @type {Which} */
  let which = "accuracy";
  let isChosen = false;
  /** @type {readonly Document[] | null} */
  let drawn = null;
  /** @type {RunState | null} */
  let state = null;
  const options = h("div", { class: "chart-options" });
  const choices = h("fieldset", { class: "chart-choices", hidden: true }, h("legend", { class: "visually-hidden" }, "Accuracy shown"), options);
  const sentence = h("p");
  const whose = h("p", { class: "small muted", hidden: true }, "Of the clients' own models: this run shares none, or none whole.");
  const empty = h("p", { class: "muted" });
  const fields = range ? rangeFields(range) : null;
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "accuracy-heading" },
    h("div", { class: "card-head" }, h("h2", { id: "accuracy-heading" }, "Accuracy"), choices),
    empty,
    sentence,
    whose,
    chart.element,
    fields?.element,
  );

  /** @param {{which: Which, label: string}} entry */
  function option(entry) {
    const input = h("input", { type: "radio", name, value: entry.which, checked: entry.which === which, on: { change: () => choose(entry.which) } });
    return h("label", { class: "chart-tool" }, input, entry.label);
  }

  /** @param {Which} wanted */
  function choose(wanted) {
    which = wanted;
    isChosen = true;
    drawn = null;
    if (state) update(state);
  }

  /** @param {RunState} next */
  function update(next) {
    state = next;
    if (next.rounds === drawn) return;
    drawn = next.rounds;
    const last = drawn.at(-1);
    const there = accuracies(drawn);
    if (!isChosen) which = there[0].which; // the run's score
    keyed(options, there, (entry) => entry.which, option);
    for (const input of options.querySelectorAll("input")) input.checked = input.value === which;
    choices.hidden = there.length < 2;
    whose.hidden = last?.accuracy_of !== "local";
    const found = accuracySeries(drawn, which);
    setText(empty, drawn.length ? "No round has been evaluated yet." : "The curve begins when round 1 has committed.");
    empty.hidden = found.rounds.length > 0;
    setText(sentence, accuracySentence(drawn, which));
    chart.update(found.rounds, found.series, bandsOf(drawn));
    if (fields) fields.element.hidden = found.rounds.length < 3;
    fields?.setLast(last?.round ?? 1);
  }

  return { element, update };
}

/**
 * @param {readonly Document[]} rounds
 * @param {Which} which
 */
function domainsOf(rounds, which) {
  const names = new Set();
  for (const each of rounds) for (const name in accuracyOf(each, which)) names.add(name);
  return [...names].filter((name) => !SUMMARIES.has(name)).sort();
}
