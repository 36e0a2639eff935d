// @ts-check
/**
 * The drawing of who took part: a row for each client, a column for each round, and one SVG path for each kind of mark.
 *
 * Marks of one kind that stand beside each other are one dashed line, so that a drawing of 100 clients and 1,000 rounds has few
 * elements and short paths. Kinds differ in shape, not only in colour.
 */

import { ROW_PX, labelRows, namesOf, stripesOf } from "../charts/bands.js";
import { axisOf } from "../charts/maths.js";
import { svg } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { KINDS } from "./participation.js";

/**
 * @typedef {import("./participation.js").Participation} Participation
 * @typedef {import("../lib/stages.js").Band} Band
 */

/** Height of a client's row. */
export const CLIENT_PX = 16;
const MIDDLE = CLIENT_PX / 2;
const AXIS_PX = 20;
const CHARACTER_PX = 6.7;

/**
 * Marks: how one cell, or a line of equal cells, is drawn from its left end. `isLine`: equal cells beside each other are one
 * line.
 *
 * @type {{name: string, isLine: boolean, path: (x: number, y: number, wide: number, pitch: number) => string, dash?: (pitch: number) => string}[]}
 */
const MARKS = [
  { name: "trained", isLine: true, path: (x, y, wide) => `M${x} ${y}h${wide}`, dash: (pitch) => `${pitch - 1} 1` },
  { name: "dropped", isLine: false, path: (x, y, wide) => `M${x} ${y - 4}l${wide} 8m0-8l-${wide} 8` },
  { name: "not-drawn", isLine: true, path: (x, y, wide, pitch) => `M${x + Math.floor(pitch / 2) - 1} ${y}h${wide - Math.floor(pitch / 2) + 1}`, dash: (pitch) => `2 ${pitch - 2}` },
  { name: "no-data", isLine: false, path: (x, y, wide) => `M${x + 0.5} ${y - 3.5}h${wide - 1}v7h${1 - wide}z` },
  { name: "not-yet", isLine: true, path: (x, y, wide) => `M${x} ${y + 5}h${wide}` },
  { name: "retired", isLine: true, path: (x, y, wide) => `M${x} ${y}h${wide}` },
];

/**
 * The drawing's parts: the axis above, and the marks.
 *
 * @param {Participation} found
 * @param {readonly Band[]} bands
 * @param {number} pitch Width of a column.
 */
export function gridOf({ clients, rounds, kinds }, bands, pitch) {
  const width = rounds.length * pitch;
  const height = clients.length * CLIENT_PX;
  const first = rounds[0];
  const places = { toX: (/** @type {number} */ round) => (round - first + 0.5) * pitch, left: 0, right: width };
  const named = labelRows(bands, places);
  const top = named.length * ROW_PX + AXIS_PX;
  const axis = svg(
    "svg",
    { width, height: top, viewBox: `0 0 ${width} ${top}`, "aria-hidden": "true" },
    namesOf(named.map(({ labels }) => ({ title: "", labels })), { left: 0, top: 0 }),
    ticksOf(rounds, pitch).map(({ x, round }) => svg("text", { x, y: top - 6, "text-anchor": "middle" }, count(round))),
  );
  const marks = MARKS.map(({ name, dash }, kind) =>
    svg("path", { class: `mark mark-${name}`, d: pathOf(kinds, kind, clients.length, rounds.length, pitch), "stroke-dasharray": dash?.(pitch) ?? null }),
  );
  return { axis, titles: named.map(({ title }) => title), body: [...stripesOf(bands, places, { top: 0, bottom: height, names: 0 }), ...marks], width, height };
}

/**
 * A mark alone, for the legend.
 *
 * @param {number} kind
 */
export function markOf(kind) {
  const { name, path, dash } = MARKS[kind];
  const pitch = 8;
  const cells = kind === KINDS.indexOf("trained") || MARKS[kind].isLine ? path(0, MIDDLE, 3 * pitch - 1, pitch) : [0, 1, 2].map((cell) => path(cell * pitch, MIDDLE, pitch - 1, pitch)).join("");
  return svg(
    "svg",
    { width: 24, height: CLIENT_PX, viewBox: `0 0 24 ${CLIENT_PX}`, "aria-hidden": "true" },
    svg("path", { class: `mark mark-${name}`, d: cells, "stroke-dasharray": dash?.(pitch) ?? null }),
  );
}

/**
 * @param {Uint8Array} kinds
 * @param {number} kind
 * @param {number} numRows
 * @param {number} numColumns
 * @param {number} pitch
 */
function pathOf(kinds, kind, numRows, numColumns, pitch) {
  const { isLine, path } = MARKS[kind];
  const parts = [];
  for (let row = 0; row < numRows; row += 1) {
    const y = row * CLIENT_PX + MIDDLE;
    for (let column = 0; column < numColumns; column += 1) {
      if (kinds[row * numColumns + column] !== kind) continue;
      const begin = column;
      while (isLine && column + 1 < numColumns && kinds[row * numColumns + column + 1] === kind) column += 1;
      parts.push(path(begin * pitch, y, (column + 1 - begin) * pitch - 1, pitch));
    }
  }
  return parts.join("");
}

/**
 * Rounds with a label and their places.
 *
 * @param {readonly number[]} rounds
 * @param {number} pitch
 */
function ticksOf(rounds, pitch) {
  const [first, last] = [rounds[0], rounds[rounds.length - 1]];
  const room = (count(last).length + 2) * CHARACTER_PX;
  const { ticks } = axisOf(first, last, Math.max(2, (rounds.length * pitch) / (1.5 * room)), { isWhole: true, isTight: true });
  const half = (count(last).length * CHARACTER_PX) / 2;
  const width = rounds.length * pitch;
  return (rounds.length === 1 ? [first] : ticks)
    .map((round) => ({ round, x: Math.max(half, Math.min(width - half, (round - first + 0.5) * pitch)) }));
}
