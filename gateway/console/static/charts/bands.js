// @ts-check
/**
 * Stages behind a drawing over rounds: pale stripes, a dashed line where each begins, and their names above.
 */

import { hasPasses, passesOf } from "../lib/stages.js";
import { svg } from "../lib/dom.js";
import { count } from "../lib/format.js";

/**
 * @typedef {import("../lib/stages.js").Band} Band
 * @typedef {{toX: (round: number) => number, left: number, right: number, slack?: number}} Places From a round to pixels, and
 *   the ends. Names of the outer stages, half of whose room is cut off, may stand so far beyond the ends.
 * @typedef {{title: string, labels: {x: number, text: string}[]}} LabelRow `title` says what bare numbers are; empty where the
 *   labels say it themselves.
 */

/** Height of a row of names. */
export const ROW_PX = 16;
/** Room on the left for a row's title. */
export const TITLE_PX = 48;
const CHARACTER_PX = 6.7;
/** Least mean width of stripes; of narrower ones the passes are drawn, or nothing. */
const LEAST_PX = 3;

/**
 * Rows of names above a drawing: passes where there are several, and stages as far as there is room.
 *
 * @param {readonly Band[]} bands
 * @param {Places} places
 * @returns {LabelRow[]}
 */
export function labelRows(bands, places) {
  if (!bands.length) return [];
  const row = (/** @type {readonly Band[]} */ each, /** @type {"stage" | "pass"} */ noun, /** @type {boolean} */ isThinned) => labelRow(each, noun, places, isThinned);
  const rows = hasPasses(bands) ? [row(passesOf(bands), "pass", true), row(bands, "stage", false)] : [row(bands, "stage", true)];
  return rows.filter(({ labels }) => labels.length > 0);
}

/**
 * Stripes and the lines between them.
 *
 * @param {readonly Band[]} bands
 * @param {Places} places
 * @param {{top: number, bottom: number, names: number}} ends Of the stripes; `names` is the upper end of the lines.
 */
export function stripesOf(bands, places, { top, bottom, names }) {
  const found = [bands, passesOf(bands)].map((level) => spansOf(level, places)).find((spans) => meanWidth(spans) >= LEAST_PX) ?? [];
  const stripes = found.filter(({ index }) => index % 2 === 1).map(({ from, to }) => `M${px(from)} ${top}H${px(to)}V${bottom}H${px(from)}Z`);
  const begins = found.filter(({ from }) => from > places.left).map(({ from }) => `M${px(from)} ${names}V${bottom}`);
  return [svg("path", { class: "chart-stage", d: stripes.join("") }), svg("path", { class: "chart-stage-begin", d: begins.join("") })];
}

/**
 * Names and titles of rows, the first one at the top.
 *
 * @param {readonly LabelRow[]} rows
 * @param {{left: number, top: number}} place
 */
export function namesOf(rows, { left, top }) {
  return rows.flatMap(({ title, labels }, index) => {
    const y = top + index * ROW_PX + 12;
    const named = labels.map(({ x, text }) => svg("text", { x: px(x), y, "text-anchor": "middle", class: "chart-stage-name" }, text));
    return title ? [svg("text", { x: left - 8, y, "text-anchor": "end" }, title), ...named] : named;
  });
}

/**
 * @param {readonly Band[]} bands
 * @param {"stage" | "pass"} noun
 * @param {Places} places
 * @param {boolean} isThinned Whether some names may be left out; else all have room, or none is there.
 * @returns {LabelRow}
 */
function labelRow(bands, noun, places, isThinned) {
  const spans = spansOf(bands, places);
  const word = (/** @type {number} */ index) => count(bands[index][noun]);
  const fits = (/** @type {string} */ text, /** @type {{from: number, to: number}} */ { from, to }) => to - from >= roomOf(text);
  // The outer ones may be cut off by the range that is shown.
  const inner = spans.length > 2 ? spans.slice(1, -1) : spans;
  const hasWords = inner.every((span) => fits(`${noun} ${word(span.index)}`, span));
  if (!hasWords && !isThinned && !inner.every((span) => fits(word(span.index), span))) return { title: "", labels: [] };
  const labels = [];
  const { left, right, slack = 0 } = places;
  let free = left - slack;
  for (const { index, from, to } of spans) {
    const text = hasWords ? `${noun} ${word(index)}` : word(index);
    const half = roomOf(text) / 2;
    const isNarrow = to - from < 2 * half;
    const x = !isNarrow || from > left === to < right ? (from + to) / 2 : from > left ? from + half : to - half;
    if (x - half < free || x + half > right + slack || (isNarrow && !isThinned && from > left && to < right)) continue;
    labels.push({ x, text });
    free = x + half;
  }
  return { title: hasWords ? "" : noun, labels };
}

/**
 * Ends in pixels of the bands that are shown, and their places among all.
 *
 * @param {readonly Band[]} bands
 * @param {Places} places
 */
function spansOf(bands, { toX, left, right }) {
  return bands
    .map(({ from, to }, index) => ({ index, from: Math.max(left, toX(from - 0.5)), to: Math.min(right, toX(to + 0.5)) }))
    .filter(({ from, to }) => from < to);
}

/** @param {readonly {from: number, to: number}[]} spans */
function meanWidth(spans) {
  return spans.reduce((sum, { from, to }) => sum + to - from, 0) / Math.max(1, spans.length);
}

/** @param {string} text */
function roomOf(text) {
  return text.length * CHARACTER_PX + 6;
}

/** @param {number} value */
function px(value) {
  return Math.round(value * 10) / 10;
}
