// @ts-check
/**
 * The drawing of a line chart: its layout in pixels, and the SVG of axes, lines, marks and names.
 */

import { ROW_PX, TITLE_PX, labelRows, namesOf, stripesOf } from "./bands.js";
import { axisOf, linesOf, logAxisOf, pathOf, placeOf, rangeOf, spread } from "./maths.js";
import { svg } from "../lib/dom.js";
import { count } from "../lib/format.js";

/**
 * @typedef {import("./line_chart.js").Series} Series
 * @typedef {import("./line_chart.js").Options} Options
 * @typedef {ReturnType<typeof layoutOf>} Layout
 */

const MARGIN = { top: 10, right: 14, bottom: 26 };
const CHARACTER_PX = 6.7;
/** Least width of a drawing that names lines at their ends; narrower drawings have the legend only. */
const MIN_WIDTH_OF_NAMES = 520;
const MAX_NAMES = 8;
/** Longest name at the end of a line. */
const MAX_CHARACTERS = 20;
const NAME_GAP = 15;
/** Least distance of points that are all marked. */
const MARKED_PX = 44;

/**
 * The layout of a chart in pixels.
 *
 * @param {readonly number[]} rounds Rising.
 * @param {readonly Series[]} series Visible ones.
 * @param {number} width
 * @param {boolean} isLog
 * @param {Options} options
 * @param {readonly import("../lib/stages.js").Band[]} bands Stages.
 */
export function layoutOf(rounds, series, width, isLog, { format, formatTick = format, range, height = 260 }, bands = []) {
  const visible = series.map((each) => ({ ...each, values: isLog ? sizesOf(each.values) : each.values }));
  const found = rangeOf(visible.map((each) => each.values)) ?? { low: isLog ? 1 : 0, high: isLog ? 10 : 1 };
  const low = Math.min(found.low, range?.low ?? Infinity);
  const high = Math.max(found.high, range?.high ?? -Infinity);
  const axis = isLog ? logAxisOf(found.low, found.high) : axisOf(low, high, Math.round(height / 46));
  const labels = axis.ticks.map((tick) => formatTick(tick));
  const left = Math.max(Math.ceil(Math.max(...labels.map((label) => label.length)) * CHARACTER_PX) + 12, bands.length ? TITLE_PX : 0);
  const named = visible.filter((each) => !each.isBand);
  const hasNames = width >= MIN_WIDTH_OF_NAMES && named.length > 1 && named.length <= MAX_NAMES;
  const longest = Math.max(0, ...named.map((each) => cut(each.label).length));
  const right = hasNames ? Math.ceil(longest * CHARACTER_PX) + 34 : MARGIN.right;
  const inner = { left, right: Math.max(left + 40, width - right), top: MARGIN.top, bottom: height - MARGIN.bottom };
  const [first, last] = [rounds[0], rounds[rounds.length - 1]];
  const roundAxis = axisOf(first, last, Math.max(2, Math.round((inner.right - inner.left) / (1.5 * roomOf(last)))), {
    isWhole: true,
    isTight: true,
  });
  /** @param {number} round */
  const toX = (round) => inner.left + placeOf(roundAxis, round) * (inner.right - inner.left);
  const stageRows = labelRows(bands, { toX, left: inner.left, right: inner.right, slack: MARGIN.right });
  inner.top += stageRows.length * ROW_PX;
  return {
    rounds,
    bands,
    stageRows,
    visible,
    named: hasNames ? named : [],
    axis,
    labels,
    roundAxis,
    inner,
    width,
    height,
    toX,
    /** @param {number} value */
    toY: (value) => inner.bottom - placeOf(axis, value, isLog) * (inner.bottom - inner.top),
  };
}

/**
 * Stages behind the lines, with their names above.
 *
 * @param {Layout} layout
 */
export function stagesOf({ bands, stageRows, inner, toX }) {
  if (!bands.length) return [];
  const top = inner.top - stageRows.length * ROW_PX - 4;
  return [
    ...stripesOf(bands, { toX, left: inner.left, right: inner.right }, { top: inner.top, bottom: inner.bottom, names: top }),
    ...namesOf(stageRows, { left: inner.left, top }),
  ];
}

/**
 * Grid lines and labels of both axes.
 *
 * @param {Layout} layout
 */
export function axesOf(layout) {
  const { axis, labels, inner, height, toX, toY } = layout;
  const rows = axis.ticks.map((tick, index) => {
    const y = Math.round(toY(tick)) + 0.5;
    return [
      svg("line", { x1: inner.left, x2: inner.right, y1: y, y2: y, class: tick === 0 ? "chart-zero" : null }),
      svg("text", { x: inner.left - 8, y: y + 4, "text-anchor": "end" }, labels[index]),
    ];
  });
  const columns = roundTicks(layout).map((tick) => svg("text", { x: toX(tick), y: height - 8, "text-anchor": "middle" }, count(tick)));
  return [...rows.flat(), ...columns];
}

/**
 * Lines, the marks on them, and the names at their ends.
 *
 * @param {Layout} layout
 */
export function curvesOf({ rounds, visible, named, inner, toX, toY }) {
  const spacing = (inner.right - inner.left) / Math.max(1, rounds.length - 1);
  /** @type {SVGElement[]} */
  const marks = [];
  /** @type {{each: Series, x: number, y: number}[]} */
  const ends = [];
  const paths = [...visible]
    .sort((one, other) => Number(other.isBand ?? false) - Number(one.isBand ?? false))
    .map((each) => {
      const [xs, ys] = each.isJoined ? known(rounds, each.values) : [rounds, each.values];
      const lines = linesOf(xs, ys, toX, toY);
      const last = lines.at(-1)?.at(-1);
      if (last && !each.isBand) ends.push({ each, x: last[0], y: last[1] });
      const isMarked = !each.isBand && each.mark && spacing >= MARKED_PX;
      const points = isMarked ? lines.flat() : last && !each.isBand ? [last] : [];
      for (const [x, y] of points) marks.push(markAt(each, x, y));
      return lineOf(each, pathOf(lines), each.width ?? 1.75);
    });
  const shown = ends.filter(({ each }) => named.some((other) => other.key === each.key));
  const places = spread(
    shown.map(({ y }) => y),
    NAME_GAP,
    inner.top + 4,
    inner.bottom - 2,
  );
  const names = shown.map(({ each, x, y }, index) => {
    const to = inner.right + 16;
    return svg(
      "g",
      { class: "chart-name" },
      svg("path", { d: `M${x + 7} ${y}L${to} ${places[index]}`, stroke: each.colour }),
      svg("text", { x: to + 4, y: places[index] + 4, "font-weight": (each.width ?? 0) > 2 ? 650 : null }, cut(each.label)),
    );
  });
  return [...paths, ...marks, ...names];
}

/**
 * The vertical line at a round, with a dot on each line.
 *
 * @param {Layout} layout
 * @param {number} index Of the round.
 */
export function cursorAt({ rounds, visible, inner, toX, toY }, index) {
  const x = toX(rounds[index]);
  const dots = visible.flatMap((each) => {
    const value = each.values[index];
    if (each.isBand || value === null || value === undefined) return [];
    return [svg("circle", { cx: x, cy: toY(value), r: 4, fill: each.colour })];
  });
  return [svg("line", { x1: x, x2: x, y1: inner.top, y2: inner.bottom }), ...dots];
}

/**
 * A piece of a line with its mark, for the legend.
 *
 * @param {Series} each
 */
export function swatchOf(each) {
  return [lineOf(each, "M-14 0H14", 2.25), ...(each.mark ? [markAt(each, 0, 0)] : [])];
}

/**
 * @param {Series} each
 * @param {string} path
 * @param {number} width Of a line; a band has its own.
 */
function lineOf(each, path, width) {
  return svg("path", {
    d: path,
    class: each.isBand ? "chart-band" : "chart-line",
    stroke: each.colour,
    "stroke-width": each.isBand ? 9 : width,
    "stroke-dasharray": each.dash ?? null,
  });
}

/**
 * @param {Series} each
 * @param {number} x
 * @param {number} y
 */
function markAt(each, x, y) {
  if (!each.mark) return svg("circle", { cx: x, cy: y, r: 3, fill: each.colour });
  return svg("path", { d: each.mark, class: "chart-mark", transform: `translate(${x} ${y}) scale(4)`, fill: each.colour });
}

/**
 * The rounds with a label: the first, the last, and as many ticks between them as fit.
 *
 * @param {Layout} layout
 */
function roundTicks({ rounds, roundAxis, toX }) {
  const [first, last] = [rounds[0], rounds[rounds.length - 1]];
  const room = roomOf(last);
  const between = roundAxis.ticks.filter((tick) => toX(tick) - toX(first) > room && toX(last) - toX(tick) > room);
  return first === last ? [first] : [first, ...between, last];
}

/**
 * Rounds that have a value, and these values.
 *
 * @param {readonly number[]} rounds
 * @param {readonly (number | null)[]} values
 * @returns {[number[], (number | null)[]]}
 */
function known(rounds, values) {
  return [rounds.filter((_, index) => typeof values[index] === "number"), values.filter((value) => typeof value === "number")];
}

/**
 * Values on a logarithmic scale: negative ones by their absolute value, zeros left out.
 *
 * @param {readonly (number | null)[]} values
 */
function sizesOf(values) {
  return values.map((value) => (value ? Math.abs(value) : null));
}

/**
 * A name as it stands at the end of a line; the legend has all of it.
 *
 * @param {string} label
 */
function cut(label) {
  return label.length > MAX_CHARACTERS ? `${label.slice(0, MAX_CHARACTERS - 1)}…` : label;
}

/**
 * Width in pixels of a round's number with some space around it.
 *
 * @param {number} round
 */
function roomOf(round) {
  return CHARACTER_PX * (count(round).length + 2.5);
}
