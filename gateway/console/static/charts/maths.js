// @ts-check
/**
 * The arithmetic of charts: ticks, lines of many points on few pixels, labels that do not overlap. Pure.
 */

/** @typedef {{low: number, high: number, ticks: number[]}} Axis */
/** @typedef {[number, number]} Point */

/** Most powers of ten that an axis shows one by one. */
const MAX_DECADES = 8;

/**
 * An axis that holds a range: its ends and ticks are round numbers.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} most About how many ticks there is room for, at least 2.
 * @param {{isWhole?: boolean, isTight?: boolean}} [options] `isWhole`: ticks are whole numbers. `isTight`: the ends stay what
 *   they are, and ticks lie between them.
 * @returns {Axis}
 */
export function axisOf(low, high, most, options = {}) {
  if (!(high > low)) {
    const room = options.isWhole ? 1 : Math.abs(low) / 10 || 1;
    return axisOf(low - room / 2, low + room / 2, most, options);
  }
  const step = stepOf((high - low) / Math.max(1, most - 1), options.isWhole === true);
  const first = options.isTight ? Math.ceil(low / step - 1e-9) : Math.floor(low / step + 1e-9);
  const last = options.isTight ? Math.floor(high / step + 1e-9) : Math.ceil(high / step - 1e-9);
  const ticks = [];
  for (let index = first; index <= last; index += 1) ticks.push(rounded(index * step, step));
  return options.isTight ? { low, high, ticks } : { low: ticks[0], high: ticks[ticks.length - 1], ticks };
}

/**
 * An axis in powers of ten that holds a range of positive numbers.
 *
 * @param {number} low
 * @param {number} high
 * @returns {Axis}
 */
export function logAxisOf(low, high) {
  let first = Math.floor(Math.log10(low) + 1e-9);
  let last = Math.ceil(Math.log10(high) - 1e-9);
  if (first === last) last += 1;
  const step = Math.ceil((last - first) / MAX_DECADES);
  last = first + step * Math.ceil((last - first) / step);
  const ticks = [];
  for (let power = first; power <= last; power += step) ticks.push(Number(`1e${power}`));
  return { low: ticks[0], high: ticks[ticks.length - 1], ticks };
}

/**
 * The place of a value on an axis, from 0 at its low end to 1 at its high end.
 *
 * @param {Axis} axis
 * @param {number} value
 * @param {boolean} [isLog]
 */
export function placeOf(axis, value, isLog = false) {
  if (!isLog) return (value - axis.low) / (axis.high - axis.low);
  return Math.log10(value / axis.low) / Math.log10(axis.high / axis.low);
}

/**
 * The lines that a series is drawn as: no more points than a few per column of pixels, and nothing that sticks out is lost.
 *
 * Of the points in a column the first, the least, the greatest and the last stay. A missing value ends a line.
 *
 * @param {readonly number[]} xs Rising.
 * @param {readonly (number | null)[]} ys
 * @param {(x: number) => number} toX In pixels.
 * @param {(y: number) => number} toY In pixels.
 * @returns {Point[][]}
 */
export function linesOf(xs, ys, toX, toY) {
  /** @type {Point[][]} */
  const lines = [];
  /** @type {Point[]} */
  let line = [];
  // Indices of the present column's first, least, greatest and last point, in no list: this runs for every point.
  let [first, least, greatest, last] = [-1, -1, -1, -1];
  let column = NaN;
  /** @param {number} index */
  const add = (index) => line.push([toX(xs[index]), toY(/** @type {number} */ (ys[index]))]);
  const endColumn = () => {
    if (first < 0) return;
    const [one, other] = least < greatest ? [least, greatest] : [greatest, least];
    add(first);
    if (one > first) add(one);
    if (other > one && other < last) add(other);
    if (last > one) add(last);
    first = -1;
  };
  for (let index = 0; index < xs.length; index += 1) {
    const y = ys[index];
    if (y === null || y === undefined || !Number.isFinite(y)) {
      endColumn();
      if (line.length) lines.push(line);
      line = [];
      continue;
    }
    const at = Math.floor(toX(xs[index]));
    if (first < 0 || at !== column) {
      endColumn();
      column = at;
      first = least = greatest = last = index;
      continue;
    }
    if (y < /** @type {number} */ (ys[least])) least = index;
    if (y > /** @type {number} */ (ys[greatest])) greatest = index;
    last = index;
  }
  endColumn();
  if (line.length) lines.push(line);
  return lines;
}

/**
 * An SVG path through lines. A line of one point is a dot that a round line cap makes visible.
 *
 * @param {readonly Point[][]} lines
 */
export function pathOf(lines) {
  return lines
    .map((line) => {
      const points = line.map(([x, y]) => `${short(x)} ${short(y)}`);
      return `M${points.join("L")}${points.length === 1 ? "h0" : ""}`;
    })
    .join("");
}

/**
 * Index of the number that is nearest to a value.
 *
 * @param {readonly number[]} xs Rising, not empty.
 * @param {number} value
 */
export function nearest(xs, value) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= value) low = middle;
    else high = middle;
  }
  return value - xs[low] <= xs[high] - value ? low : high;
}

/**
 * Places near the wanted ones, in the order given, at least `gap` apart and between two ends, as far as there is room.
 *
 * @param {readonly number[]} wanted
 * @param {number} gap
 * @param {number} low
 * @param {number} high
 * @returns {number[]}
 */
export function spread(wanted, gap, low, high) {
  const order = wanted.map((_, index) => index).sort((one, other) => wanted[one] - wanted[other] || one - other);
  /** @type {number[]} */
  const places = [...wanted];
  let least = low;
  for (const index of order) {
    places[index] = Math.max(wanted[index], least);
    least = places[index] + gap;
  }
  let most = high;
  for (const index of order.reverse()) {
    places[index] = Math.min(places[index], most);
    most = places[index] - gap;
  }
  return places;
}

/**
 * The least and the greatest of the numbers in some lists; null where there are none.
 *
 * @param {readonly (readonly (number | null)[])[]} lists
 * @returns {{low: number, high: number} | null}
 */
export function rangeOf(lists) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (value === null || !Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? { low, high } : null;
}

/**
 * 1, 2 or 5 times a power of ten, and no less than asked for.
 *
 * @param {number} least
 * @param {boolean} isWhole
 */
function stepOf(least, isWhole) {
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 5, 10].find((each) => each * power >= least * (1 - 1e-9)) ?? 10;
  return isWhole ? Math.max(1, factor * power) : factor * power;
}

/**
 * A multiple of a step without what binary fractions add: 0.30000000000000004 is 0.3.
 *
 * @param {number} value
 * @param {number} step
 */
function rounded(value, step) {
  return Number(value.toFixed(Math.max(0, Math.min(20, Math.ceil(-Math.log10(step)) + 1)))) || 0;
}

/** @param {number} pixels */
function short(pixels) {
  return String(Math.round(pixels * 10) / 10);
}
