// @ts-check
/**
 * Curves of accuracy per class, and the rounds that they go through. Pure.
 */

import { classAccuracy } from "./counts.js";
import { colour, dash, shape } from "../lib/palette.js";

/** Most points of a curve, and most curves. */
export const MAX_POINTS = 24;
export const MAX_CURVES = 20;

/**
 * Rounds that curves go through: the first, the last, and every 2nd, 4th, 8th … of all, as far as that gives no more than
 * `most`. A round that is chosen is chosen as long as the step is the same, so that little is read anew while a run goes on.
 *
 * @param {readonly number[]} rounds Rising.
 * @param {number} most
 */
export function pointsAmong(rounds, most) {
  let step = 1;
  while (rounds.length / step > most - 2) step *= 2;
  return rounds.filter((_, index) => index === 0 || index === rounds.length - 1 || (index + 1) % step === 0);
}

/**
 * A line for each class; of many classes for those with the least accuracy in the last round.
 *
 * @param {readonly string[]} classes
 * @param {readonly (import("./counts.js").Counts | undefined)[]} counts By round.
 * @returns {import("../charts/line_chart.js").Series[]}
 */
export function classSeries(classes, counts) {
  const last = counts.at(-1);
  const indices = classes.map((_, index) => index);
  const least = (/** @type {number} */ index) => classAccuracy(last, index) ?? Infinity;
  const drawn = indices.length > MAX_CURVES ? indices.sort((one, other) => least(one) - least(other) || one - other).slice(0, MAX_CURVES).sort((one, other) => one - other) : indices;
  return drawn.map((index) => ({
    key: `class ${index}`,
    label: classes[index],
    values: counts.map((each) => classAccuracy(each, index)),
    colour: colour(index),
    dash: dash(index),
    mark: shape(index).path,
  }));
}
