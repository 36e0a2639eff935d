// @ts-check
/**
 * Probabilities against what is right: the reliability picture of a domain, and areas under ROC curves by class.
 */

import { keyOf } from "./counts.js";
import { heatTable } from "../lib/heat_table.js";
import { h, svg } from "../lib/dom.js";
import { NONE, count, percent } from "../lib/format.js";
import { colour } from "../lib/palette.js";

/** Bins of a report, by confidence (shared/scoring/histograms.py). */
const BINS = 15;
/** Edge of the picture without its labels, and its margins, in pixels. */
const EDGE = 220;
const MARGIN = 44;

/**
 * @typedef {{confidence: number, accuracy: number, num_examples: number}} Bin
 * @typedef {import("./counts.js").Report} Report
 */

/**
 * Bins of equal confidence of several clients as one list, by rising confidence: images count alike. Pure.
 *
 * @param {readonly Report[]} reports Of one round.
 * @param {string} key The set, see `setsOf`.
 * @param {string | null} domain Null for all.
 * @returns {Bin[]}
 */
export function binsOf(reports, key, domain) {
  /** @type {Map<number, {confidence: number, right: number, number: number}>} */
  const sums = new Map();
  for (const bin of calibrations(reports, key, domain).flatMap((each) => each.calibration.reliability)) {
    const place = Math.min(Math.floor(bin.confidence * BINS), BINS - 1);
    const sum = sums.get(place) ?? { confidence: 0, right: 0, number: 0 };
    sum.confidence += bin.confidence * bin.num_examples;
    sum.right += bin.accuracy * bin.num_examples;
    sum.number += bin.num_examples;
    sums.set(place, sum);
  }
  return [...sums]
    .sort(([one], [other]) => one - other)
    .filter(([, { number }]) => number > 0)
    .map(([, { confidence, right, number }]) => ({ confidence: confidence / number, accuracy: right / number, num_examples: number }));
}

/**
 * Counts of one set that have probabilities.
 *
 * @param {readonly Report[]} reports
 * @param {string} key
 * @param {string | null} domain
 * @returns {Record<string, any>[]}
 */
function calibrations(reports, key, domain) {
  const wanted = reports.filter((report) => domain === null || report.domain === domain);
  return wanted.flatMap((report) =>
    report.counts
      .filter((/** @type {Record<string, any>} */ each) => keyOf(each) === key && each.calibration)
      .map((/** @type {Record<string, any>} */ each) => ({ ...each, client_id: report.client_id })),
  );
}

/**
 * The picture and the table; empty where no client told of probabilities.
 *
 * @param {readonly Report[]} reports Of one round.
 * @param {string} key
 * @param {string | null} domain
 * @param {readonly string[]} classes
 * @returns {HTMLElement[]}
 */
export function calibrationOf(reports, key, domain, classes) {
  const clients = calibrations(reports, key, domain);
  const bins = binsOf(reports, key, domain);
  if (!bins.length) return [];
  const all = bins.reduce((sum, bin) => sum + bin.num_examples, 0);
  const error = bins.reduce((sum, bin) => sum + (bin.num_examples / all) * Math.abs(bin.accuracy - bin.confidence), 0);
  const name = `Images that are right by how sure the model is: where it says 80 %, 80 of 100 should be right. It is off by ${percent(error)} on average.`;
  return [
    h("figure", { class: "reliability" }, picture(bins, name), h("figcaption", { class: "small muted" }, name)),
    heatTable({
      caption: "Area under the ROC curve of each class against the rest; a column for each client",
      corner: "Class",
      columns: clients.map((each) => each.client_id),
      rows: [
        ...classes.map((label, index) => ({ name: label, cells: clients.map((each) => area(each.calibration.auc[index] ?? null)) })),
        { name: "mean", cells: clients.map((each) => area(each.calibration.macro_auc)) },
      ],
    }),
  ];
}

/** @param {number | null} share */
function area(share) {
  return { text: share === null ? NONE : share.toFixed(3), share };
}

/**
 * @param {readonly Bin[]} bins
 * @param {string} name
 */
function picture(bins, name) {
  const most = Math.max(...bins.map((bin) => bin.num_examples));
  const x = (/** @type {number} */ share) => MARGIN + share * EDGE;
  const y = (/** @type {number} */ share) => MARGIN / 2 + (1 - share) * EDGE;
  const path = bins.map((bin, index) => `${index ? "L" : "M"}${x(bin.confidence).toFixed(1)} ${y(bin.accuracy).toFixed(1)}`).join("");
  const ticks = [0, 0.5, 1].flatMap((share) => [
    svg("text", { x: x(share), y: y(0) + 16, "text-anchor": "middle" }, `${100 * share} %`),
    svg("text", { x: x(0) - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
  ]);
  const size = { width: EDGE + 1.5 * MARGIN, height: EDGE + 1.5 * MARGIN };
  return svg(
    "svg",
    { class: "chart", role: "img", "aria-label": name, viewBox: `0 0 ${size.width} ${size.height}`, ...size },
    svg("g", { class: "chart-grid" }, svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1) }), svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(0) }), svg("line", { x1: x(0), y1: y(0), x2: x(0), y2: y(1) })),
    ticks,
    svg("text", { x: x(0.5), y: y(0) + 32, "text-anchor": "middle" }, "how sure"),
    svg("g", null, svg("path", { class: "chart-line", d: path, stroke: colour(0), "stroke-width": 2 }), bins.map((bin) => dot(bin, x(bin.confidence), y(bin.accuracy), most))),
  );
}

/**
 * @param {Bin} bin
 * @param {number} cx
 * @param {number} cy
 * @param {number} most
 */
function dot(bin, cx, cy, most) {
  const said = `${percent(bin.confidence)} sure: ${percent(bin.accuracy)} of ${count(bin.num_examples)} images right`;
  return svg("circle", { class: "chart-mark", fill: colour(0), cx, cy, r: 3 + 5 * Math.sqrt(bin.num_examples / most) }, svg("title", null, said));
}
