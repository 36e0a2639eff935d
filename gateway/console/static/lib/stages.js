// @ts-check
/**
 * The stages of a run, from its lines of metrics.jsonl: where each begins, and what is known of each after each. Pure.
 */

import { count } from "./format.js";

/**
 * @typedef {import("./run_state.js").Document} Document
 * @typedef {{from: number, to: number, pass: number, stage: number}} Band Rounds of one stage; both ends belong to it.
 * @typedef {{
 *   pass: number,
 *   rows: {stage: number, round: number, values: (number | null)[]}[],
 *   line: Document,
 * }} Matrix `rows` are by stage, `values` the accuracy on each stage up to that one. `line` is that of the pass's last
 *   evaluated round, with the measures.
 */

/**
 * The stages that committed rounds belong to, in order; empty for a run without stages.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @returns {Band[]}
 */
export function bandsOf(rounds) {
  /** @type {Band[]} */
  const bands = [];
  for (const { round, stage, pass = 1 } of rounds) {
    if (!stage) continue;
    const last = bands.at(-1);
    if (last && last.stage === stage && last.pass === pass) last.to = round;
    else bands.push({ from: round, to: round, pass, stage });
  }
  return bands;
}

/**
 * Passes as bands: `stage` of each is 0.
 *
 * @param {readonly Band[]} bands
 * @returns {Band[]}
 */
export function passesOf(bands) {
  /** @type {Band[]} */
  const passes = [];
  for (const band of bands) {
    const last = passes.at(-1);
    if (last && last.pass === band.pass) last.to = band.to;
    else passes.push({ ...band, stage: 0 });
  }
  return passes;
}

/**
 * Whether stages are gone through more than once, as far as rounds have come.
 *
 * @param {readonly Band[]} bands
 */
export function hasPasses(bands) {
  return (bands.at(-1)?.pass ?? 1) > 1;
}

/**
 * The name of the stage that a round belongs to: "stage 2", or "pass 3, stage 2" where there are several passes.
 *
 * @param {readonly Band[]} bands
 * @param {number} round
 */
export function stageName(bands, round) {
  const found = bands.findLast(({ from }) => from <= round);
  if (!found || found.to < round) return "";
  return hasPasses(bands) ? `pass ${count(found.pass)}, stage ${found.stage}` : `stage ${found.stage}`;
}

/**
 * Accuracy on each stage after each stage of a pass; null where none of its rounds was evaluated.
 *
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @param {number | null} wanted The pass; null for the last one.
 * @returns {Matrix | null}
 */
export function matrixOf(rounds, wanted) {
  const line = rounds.findLast((each) => each.accuracy_by_stage && (wanted === null || each.pass === wanted));
  if (!line) return null;
  /** @type {Map<number, Document>} */
  const ends = new Map();
  for (const each of rounds) if (each.accuracy_by_stage && each.pass === line.pass) ends.set(each.stage, each);
  const rows = [...ends.values()].map((each) => ({ stage: each.stage, round: each.round, values: each.accuracy_by_stage.slice(0, each.stage) }));
  return { pass: line.pass, rows: rows.sort((one, other) => one.stage - other.stage), line };
}
