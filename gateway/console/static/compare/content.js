// @ts-check
/**
 * What a comparison of runs shows: curves, keys that differ, and accuracy by domain. Pure.
 */

import { accuracyOf } from "../charts/accuracy.js";
import { colour, dash, shape } from "../lib/palette.js";
import { configurationRows, isSame } from "../run/configuration_rows.js";

/**
 * @typedef {Record<string, any>} Document
 * @typedef {{runId: string, run: Document, rounds: Document[], label: string}} Compared `rounds` are lines of metrics.jsonl.
 * @typedef {import("../charts/line_chart.js").Series} Series
 */

/**
 * Names of runs that tell them apart: a name that several have gets the id's end.
 *
 * @param {readonly Document[]} runs
 * @returns {string[]}
 */
export function labelsOf(runs) {
  const names = runs.map((run) => run.name || run.run_id);
  return names.map((name, index) => (names.filter((each) => each === name).length > 1 ? `${name} (${runs[index].run_id.slice(-6)})` : name));
}

/**
 * Mean and worst accuracy of each run over the rounds of all.
 *
 * @param {readonly Compared[]} compared
 * @param {string} which See charts/accuracy.js.
 * @returns {{rounds: number[], series: Series[]}}
 */
export function overlaidSeries(compared, which) {
  const found = compared.map(({ rounds }) => new Map(rounds.filter((each) => accuracyOf(each, which)).map((each) => [each.round, accuracyOf(each, which)])));
  const rounds = [...new Set(found.flatMap((each) => [...each.keys()]))].sort((one, other) => one - other);
  const line = (/** @type {number} */ index, /** @type {"mean" | "worst"} */ key) => rounds.map((round) => found[index].get(round)?.[key] ?? null);
  const series = compared.flatMap(({ runId, label }, index) => [
    { key: `${runId} mean`, label: `${label}, mean`, values: line(index, "mean"), colour: colour(index), mark: shape(index).path, width: 2.5, isJoined: true },
    { key: `${runId} worst`, label: `${label}, worst`, values: line(index, "worst"), colour: colour(index), dash: dash(1), mark: shape(index).path, width: 1.5, isJoined: true },
  ]);
  return { rounds, series: series.filter(({ values }) => values.some((value) => value !== null)) };
}

/**
 * Keys whose values are not the same in all runs, or all keys.
 *
 * @param {readonly Compared[]} compared
 * @param {import("../run/configuration_rows.js").Form} form
 * @returns {{name: string, values: unknown[], isDifferent: boolean}[]} `values` by run; undefined where a run's method does not
 *   have the key.
 */
export function keyRows(compared, form) {
  const all = compared.map(({ run }) => new Map(configurationRows(run.config, form).map((row) => [`${row.section}.${row.key}`, row.value])));
  const names = [...new Set(all.flatMap((each) => [...each.keys()]))];
  const sections = [...new Set(names.map((name) => sectionOf(name)))];
  // Keys that only one method has stand among those of the others.
  const inOrder = sections.flatMap((section) => names.filter((name) => sectionOf(name) === section));
  return inOrder.map((name) => {
    const values = all.map((each) => (each.has(name) ? (each.get(name) ?? null) : undefined));
    const isDifferent = values.some((value) => (value === undefined) !== (values[0] === undefined) || !isSame(value, values[0]));
    return { name, values, isDifferent };
  });
}

/** @param {string} name Of a key. */
function sectionOf(name) {
  return name.split(".")[0];
}

/**
 * Accuracy by domain in the last evaluated round of each run: mean and worst first.
 *
 * @param {readonly Compared[]} compared
 * @param {string} which
 * @returns {{rounds: (number | null)[], rows: {name: string, values: (number | null)[], best: number[]}[]}} `best` are the
 *   indices of the runs with the greatest value; empty where all have the same.
 */
export function domainRows(compared, which) {
  const last = compared.map(({ rounds }) => rounds.filter((each) => accuracyOf(each, which)).at(-1));
  const found = last.map((each) => (each && accuracyOf(each, which)) ?? {});
  const names = [...new Set(found.flatMap((each) => Object.keys(each)))].filter((name) => name !== "mean" && name !== "worst").sort();
  const rows = ["mean", "worst", ...names].map((name) => {
    const values = found.map((each) => each[name] ?? null);
    const known = values.filter((value) => value !== null);
    const greatest = Math.max(...known);
    const best = known.some((value) => value < greatest) ? values.flatMap((value, index) => (value === greatest ? [index] : [])) : [];
    return { name, values, best };
  });
  return { rounds: last.map((each) => each?.round ?? null), rows };
}
