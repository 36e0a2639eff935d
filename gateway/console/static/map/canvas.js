// @ts-check
/**
 * Drawing of a prototype map's points on a canvas, sharp on any screen, in the page's colours; search of a point by place.
 */

import { NUM_COLOURS, shape } from "../lib/palette.js";

/**
 * @typedef {import("./view.js").Point} Point
 * @typedef {import("./view.js").View} View
 */

/** Largest radii in pixels: of a global prototype, which has all of its class's weight, and of the heaviest local one. */
const GLOBAL_PX = 15;
const LOCAL_PX = 6.5;
/** Smallest radii: the lightest marks can be seen, told by their shape, and hit. */
const LEAST_PX = 3.5;
const LEAST_GLOBAL_PX = 6;
/** Free border, so that marks at the edge are whole. */
const MARGIN_PX = GLOBAL_PX + 4;
/** Largest distance between the pointer and the mark that it selects. */
const REACH_PX = 10;
/** Below this width marks are drawn smaller. */
const WIDE_PX = 560;

export class MapCanvas {
  /** @type {HTMLCanvasElement} */
  element;
  /** @type {View | null} */
  view = null;
  #width = 0;
  #height = 0;
  /** @type {readonly Point[]} */
  #points = [];
  /** @type {{series: string[], text: string, surface: string, muted: string, font: string} | null} */
  #look = null;

  /** @param {HTMLCanvasElement} element */
  constructor(element) {
    this.element = element;
  }

  /** Width and height for points, in pixels. */
  get room() {
    return [Math.max(this.#width - 2 * MARGIN_PX, 1), Math.max(this.#height - 2 * MARGIN_PX, 1)];
  }

  /**
   * A place of the element in pixels from its middle.
   *
   * @param {number} x
   * @param {number} y
   */
  fromMiddle(x, y) {
    return [x - this.#width / 2, y - this.#height / 2];
  }

  /** Forget the page's colours: it has become dark, or light. */
  recolour() {
    this.#look = null;
  }

  /**
   * Take a size in CSS pixels; says whether it is another one.
   *
   * @param {number} width
   * @param {number} height
   */
  resize(width, height) {
    const density = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * density), Math.round(height * density)];
    if (wide === this.element.width && high === this.element.height) return false;
    this.element.width = wide;
    this.element.height = high;
    this.element.style.setProperty("height", `${height}px`);
    [this.#width, this.#height] = [width, height];
    return true;
  }

  /**
   * Draw points: small marks on large ones, so that none hides another.
   *
   * @param {readonly Point[]} points
   * @param {{chosen: number, attached: readonly number[], labels: ReadonlyMap<number, string>}} marks `chosen` is the index
   *   of a point, -1 for none, `attached` are those it is tied to, `labels` names of classes by the index of a point.
   */
  draw(points, { chosen, attached, labels }) {
    const context = this.element.getContext("2d");
    if (!context) return;
    const look = (this.#look ??= this.#looked());
    const density = this.element.width / Math.max(this.#width, 1);
    this.#points = points;
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, this.#width, this.#height);
    const near = new Set(chosen < 0 ? [] : [chosen, ...attached]);
    const local = points.filter((point) => point.domain >= 0);
    const made = points.filter((point) => point.domain < 0);
    if (chosen >= 0) this.#ties(context, points, chosen, attached, look);
    for (const point of made) this.#mark(context, point, density, near, look);
    for (const point of local) this.#mark(context, point, density, near, look);
    this.#labels(context, made, labels, density, look);
  }

  /**
   * The index of the point at a place of the element; -1 where there is none.
   *
   * @param {number} x In CSS pixels.
   * @param {number} y
   */
  at(x, y) {
    let [found, least] = [-1, Infinity];
    for (const point of this.#points) {
      const [px, py] = this.#placed(point);
      const away = Math.hypot(px - x, py - y) - this.#radius(point);
      // Small marks lie on large ones: of two under the pointer the smaller is meant.
      const rank = away <= 0 ? this.#radius(point) / 1e3 : away + 1;
      if (point.index >= 0 && away <= REACH_PX && rank < least) [found, least] = [point.index, rank];
    }
    return found;
  }

  /** @param {Point} point */
  #placed(point) {
    const { x, y, scale } = this.view ?? { x: 0, y: 0, scale: 1 };
    return [this.#width / 2 + (point.x - x) * scale, this.#height / 2 - (point.y - y) * scale];
  }

  /** @param {Point} point */
  #radius(point) {
    const small = this.#width < WIDE_PX ? 0.8 : 1;
    return Math.max(point.radius * small * (point.domain < 0 ? GLOBAL_PX : LOCAL_PX), point.domain < 0 ? LEAST_GLOBAL_PX : LEAST_PX);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Point} point
   * @param {number} density
   * @param {ReadonlySet<number>} near
   * @param {{series: string[], text: string, surface: string}} look
   */
  #mark(context, point, density, near, look) {
    const radius = this.#radius(point);
    if (radius < 0.2) return;
    const isGlobal = point.domain < 0;
    const [x, y] = this.#placed(point);
    const isFaint = near.size > 0 && !near.has(point.index);
    context.setTransform(density * radius, 0, 0, density * radius, density * x, density * y);
    const path = pathOf(isGlobal ? 0 : point.domain);
    context.fillStyle = look.series[point.classId % NUM_COLOURS];
    context.globalAlpha = point.alpha * (isFaint ? 0.18 : isGlobal ? 0.5 : 0.85);
    context.fill(path);
    context.globalAlpha = point.alpha * (isFaint ? 0.3 : 1);
    context.strokeStyle = isGlobal ? look.text : look.surface;
    context.lineWidth = (isGlobal ? 2 : 0.75) / radius;
    context.stroke(path);
    context.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {readonly Point[]} points
   * @param {number} chosen
   * @param {readonly number[]} attached
   * @param {{text: string}} look
   */
  #ties(context, points, chosen, attached, look) {
    const byIndex = new Map(points.map((point) => [point.index, point]));
    const from = byIndex.get(chosen);
    if (!from) return;
    context.strokeStyle = look.text;
    context.globalAlpha = 0.55;
    context.lineWidth = 1;
    context.beginPath();
    for (const index of attached) {
      const to = byIndex.get(index);
      if (!to) continue;
      const [[x0, y0], [x1, y1]] = [this.#placed(from), this.#placed(to)];
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {readonly Point[]} points
   * @param {ReadonlyMap<number, string>} labels
   * @param {number} density
   * @param {{text: string, surface: string, font: string}} look
   */
  #labels(context, points, labels, density, look) {
    context.setTransform(density, 0, 0, density, 0, 0);
    context.font = `600 13px ${look.font}`;
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 3;
    const marks = points.map((point) => [...this.#placed(point), this.#radius(point)]);
    /** @type {[number, number, number][]} */
    const taken = [];
    for (const point of points) {
      const label = labels.get(point.index);
      if (label === undefined) continue;
      const [x, y] = this.#placed(point);
      const [radius, wide] = [this.#radius(point), context.measureText(label).width];
      // Beside the mark where there is room: right, left, above, below.
      const places = [
        [x + radius + 4, y],
        [x - radius - 4 - wide, y],
        [x - wide / 2, y - radius - 9],
        [x - wide / 2, y + radius + 9],
      ];
      const isFree = (/** @type {number[]} */ [left, middle]) =>
        left >= 1 &&
        left + wide <= this.#width - 1 &&
        middle >= 8 &&
        middle <= this.#height - 8 &&
        !taken.some(([l, m, w]) => Math.abs(m - middle) < 15 && left < l + w + 3 && l < left + wide + 3) &&
        !marks.some(([mx, my, r]) => Math.abs(my - middle) < r + 6 && left < mx + r + 1 && mx - r - 1 < left + wide);
      const [left, middle] = places.find((place) => isFree(place)) ?? places[0];
      taken.push([left, middle, wide]);
      context.globalAlpha = point.alpha;
      context.strokeStyle = look.surface;
      context.strokeText(label, left, middle);
      context.fillStyle = look.text;
      context.fillText(label, left, middle);
    }
    context.globalAlpha = 1;
  }

  #looked() {
    const style = getComputedStyle(this.element);
    const value = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    return {
      series: Array.from({ length: NUM_COLOURS }, (_, index) => value(`--series-${index + 1}`)),
      text: value("--text"),
      surface: value("--surface"),
      muted: value("--text-muted"),
      font: style.fontFamily,
    };
  }
}

/** @type {Map<number, Path2D>} */
const PATHS = new Map();

/** @param {number} index */
function pathOf(index) {
  const path = PATHS.get(index) ?? new Path2D(shape(index).path);
  PATHS.set(index, path);
  return path;
}
