// @ts-check
/**
 * The plane of the prototype map: drawn, moved from round to round, and read by pointer and keyboard, one prototype at a time.
 */

import { h } from "../lib/dom.js";
import { MapCanvas } from "./canvas.js";
import { MOST_LABELS, attachedTo, between, paired, pointsOf, pushed, readoutOf, viewBetween, viewFor, zoomed } from "./view.js";

/**
 * @typedef {import("./view.js").MapDocument} MapDocument
 * @typedef {import("./view.js").Names} Names
 * @typedef {import("./view.js").Point} Point
 * @typedef {import("./view.js").View} View
 */

/** Duration of the prototypes' way from one round to the next. */
const MOVE_MS = 450;
/** Height of the plane as a share of its width, and its bounds in pixels. */
const RATIO = 0.62;
const HEIGHTS_PX = [300, 560];
/** How much closer a key or a button goes, and by how many pixels a key pushes. */
const ZOOM = 1.5;
const PUSH_PX = 60;
/** How much closer a pixel of a wheel goes, and the most that one turn of it does. */
const WHEEL_ZOOM = 0.002;
const MOST_WHEEL = 240;
/** Pixels of a line of a wheel that counts lines, and of a page. */
const WHEEL_PX = [1, 16, 240];
const HINT =
  "Point at a prototype, or go from one to the next with the arrow keys. Closer and back: + and -, Ctrl and the wheel; 0 shows the whole, Shift and arrows push.";
const STILL = window.matchMedia("(prefers-reduced-motion: reduce)");

export class MapPlot {
  #isOn;
  #closed = new AbortController();
  #canvas;
  /** @type {MapDocument | null} */
  #map = null;
  /** @type {Names} */
  #names = { classes: [], domains: [] };
  /** All points of the map. @type {readonly Point[]} */
  #points = [];
  /** Index of the prototype that is read; -1 for none. */
  #chosen = -1;
  /** Whether it was chosen by the keyboard, and stays when the pointer passes by. */
  #isPinned = false;
  /** The view that somebody chose; null while all is shown. @type {View | null} */
  #own = null;
  /** Where the pointer pushes the plane from. @type {[number, number] | null} */
  #grip = null;
  /** @type {{pairs: {from: Point, to: Point}[], begun: number, views: [View, View]} | null} */
  #move = null;
  #frame = 0;

  /** @param {(point: Point) => boolean} isOn Whether a point is to be seen. */
  constructor(isOn) {
    this.#isOn = isOn;
    const canvas = h("canvas", { class: "map-canvas", "aria-hidden": "true" });
    this.#canvas = new MapCanvas(canvas);
    this.readout = h("p", { class: "map-readout" });
    this.pointer = h(
      "div",
      {
        class: "map-pointer",
        role: "slider",
        tabindex: 0,
        "aria-label": "Prototype",
        "aria-valuemin": 1,
        on: {
          keydown: (/** @type {KeyboardEvent} */ event) => this.#pressed(event),
          pointermove: (/** @type {PointerEvent} */ event) => this.#pointed(event),
          pointerdown: (/** @type {PointerEvent} */ event) => this.#pointed(event),
          pointerup: () => (this.#grip = null),
          pointercancel: () => (this.#grip = null),
          wheel: (/** @type {WheelEvent} */ event) => this.#wheeled(event),
          pointerleave: (/** @type {PointerEvent} */ event) => this.#left(event),
          blur: () => this.#choose(-1),
        },
      },
      canvas,
    );
    const button = (/** @type {string} */ text, /** @type {string} */ name, /** @type {() => void} */ click) =>
      h("button", { type: "button", class: "button button-small", "aria-label": name, on: { click } }, text);
    this.nearer = button("+", "Closer", () => this.#zoom(ZOOM));
    this.further = button("−", "Further away", () => this.#zoom(1 / ZOOM));
    this.whole = button("Whole", "Whole map", () => this.#take(null));
    this.zoom = h("div", { class: "map-zoom", role: "group", "aria-label": "Zoom" }, this.nearer, this.further, this.whole);
    this.element = h("div", null, this.pointer, this.readout, this.zoom);
    this.#take(null);
    this.#choose(-1);
    const resized = new ResizeObserver(() => this.#fit());
    resized.observe(this.pointer);
    const { signal } = this.#closed;
    signal.addEventListener("abort", () => resized.disconnect());
    for (const what of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      window.matchMedia(what).addEventListener("change", () => this.#recolour(), { signal });
    }
  }

  close() {
    this.#closed.abort();
    cancelAnimationFrame(this.#frame);
  }

  /**
   * Show a map; prototypes go there from where they were on the one before.
   *
   * @param {MapDocument} map
   * @param {Names} names
   */
  show(map, names) {
    const before = this.#map && pointsOf(this.#map, names);
    [this.#map, this.#names] = [map, names];
    this.#points = pointsOf(map, names);
    this.#choose(-1);
    cancelAnimationFrame(this.#frame);
    const [width, height] = this.#canvas.room;
    const known = this.#canvas.view;
    // Who looks closely goes on looking there, round by round.
    const view = this.#own ?? viewFor(this.#points, width, height, known);
    if (!before || !known || STILL.matches || document.hidden) {
      this.#canvas.view = view;
      this.#move = null;
      this.#draw();
      return;
    }
    this.#move = { pairs: paired(before, this.#points), begun: performance.now(), views: [known, view] };
    this.#step();
  }

  /** Draw again: other points are to be seen. */
  switched() {
    this.#choose(-1);
    this.#draw();
  }

  /** @param {boolean} isBusy Whether a map is to be shown that has not come yet. */
  setBusy(isBusy) {
    this.pointer.setAttribute("aria-busy", String(isBusy));
  }

  #step() {
    const move = this.#move;
    if (!move) return this.#draw();
    const share = Math.min(1, (performance.now() - move.begun) / MOVE_MS);
    this.#canvas.view = share < 1 ? viewBetween(...move.views, share) : move.views[1];
    if (share === 1) this.#move = null;
    this.#draw(share < 1 ? between(move.pairs, share) : this.#points);
    if (share < 1) this.#frame = requestAnimationFrame(() => this.#step());
  }

  /** @param {readonly Point[]} [all] Where points are, if they are on their way. */
  #draw(all = this.#points) {
    if (!this.#map) return;
    const points = all.filter((point) => this.#isOn(point));
    const attached = this.#chosen < 0 ? [] : attachedTo(this.#map, this.#chosen);
    this.#canvas.draw(points, { chosen: this.#chosen, attached, labels: this.#labels(points) });
  }

  /**
   * The name of each class at its heaviest global prototype.
   *
   * @param {readonly Point[]} points
   */
  #labels(points) {
    /** @type {Map<number, Point>} */
    const heaviest = new Map();
    for (const point of points) {
      const known = heaviest.get(point.classId);
      if (point.domain < 0 && point.index >= 0 && (!known || point.radius > known.radius)) heaviest.set(point.classId, point);
    }
    if (heaviest.size > MOST_LABELS) return new Map();
    return new Map([...heaviest].map(([classId, { index }]) => [index, this.#names.classes[classId] ?? String(classId)]));
  }

  #fit() {
    const width = Math.floor(this.pointer.clientWidth);
    if (width < 10) return;
    const height = Math.round(Math.min(Math.max(RATIO * width, HEIGHTS_PX[0]), HEIGHTS_PX[1]));
    if (!this.#canvas.resize(width, height) || !this.#map) return;
    this.#take(null);
  }

  /** The view with all points. */
  #all() {
    const [width, height] = this.#canvas.room;
    return viewFor(this.#points, width, height);
  }

  /** @param {View | null} view What somebody wants to see; null for all. */
  #take(view) {
    this.#own = view;
    this.further.disabled = this.whole.disabled = view === null;
    if (!this.#map) return;
    cancelAnimationFrame(this.#frame);
    this.#move = null;
    this.#canvas.view = view ?? this.#all();
    this.#draw();
  }

  /**
   * Go closer or further away, around a place in pixels from the middle, or else around the chosen prototype.
   *
   * @param {number} factor
   * @param {number[]} [place]
   */
  #zoom(factor, place) {
    const view = this.#canvas.view;
    if (!this.#map || !view) return;
    const chosen = this.#points.find((point) => point.index === this.#chosen);
    const [x, y] = place ?? (chosen ? [(chosen.x - view.x) * view.scale, (view.y - chosen.y) * view.scale] : [0, 0]);
    this.#take(zoomed(view, this.#all(), factor, x, y));
  }

  /**
   * @param {number} x In pixels to the right.
   * @param {number} y Downwards.
   */
  #push(x, y) {
    const [width, height] = this.#canvas.room;
    if (this.#own) this.#take(pushed(this.#own, this.#all(), x, y, [width, height]));
  }

  /** A wheel alone scrolls the page, as everywhere. @param {WheelEvent} event */
  #wheeled(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const turned = Math.min(Math.max(event.deltaY * WHEEL_PX[event.deltaMode], -MOST_WHEEL), MOST_WHEEL);
    const box = this.#canvas.element.getBoundingClientRect();
    this.#zoom(Math.exp(-turned * WHEEL_ZOOM), this.#canvas.fromMiddle(event.clientX - box.left, event.clientY - box.top));
  }

  #recolour() {
    this.#canvas.recolour();
    this.#draw();
  }

  /** @param {PointerEvent} event */
  #pointed(event) {
    if (event.type === "pointerdown" && this.#own && event.pointerType !== "touch") {
      this.#grip = [event.clientX, event.clientY];
      this.pointer.setPointerCapture(event.pointerId);
    } else if (this.#grip) {
      const [x, y] = this.#grip;
      this.#grip = [event.clientX, event.clientY];
      return this.#push(event.clientX - x, event.clientY - y);
    }
    const box = this.#canvas.element.getBoundingClientRect();
    const found = this.#canvas.at(event.clientX - box.left, event.clientY - box.top);
    if (found >= 0 || !this.#isPinned || event.type === "pointerdown") this.#choose(found);
  }

  /** @param {PointerEvent} event */
  #left(event) {
    // What a finger has chosen stays until it chooses another.
    if (event.pointerType !== "touch" && !this.#isPinned) this.#choose(-1);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    const shown = this.#points.filter((point) => this.#isOn(point));
    const place = shown.findIndex((point) => point.index === this.#chosen);
    const last = shown.length - 1;
    /** @type {Record<string, number>} */
    const places = {
      ArrowRight: place + 1,
      ArrowDown: place + 1,
      ArrowLeft: place < 0 ? last : place - 1,
      ArrowUp: place < 0 ? last : place - 1,
      PageDown: place + 10,
      PageUp: place - 10,
      Home: 0,
      End: last,
    };
    /** @type {Record<string, [number, number]>} */
    const pushes = { ArrowRight: [-1, 0], ArrowLeft: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
    const push = event.shiftKey ? pushes[event.key] : undefined;
    const zooms = /** @type {Record<string, number>} */ ({ "+": ZOOM, "=": ZOOM, "-": 1 / ZOOM });
    if (event.ctrlKey || event.metaKey || event.altKey) return; // the browser's own zoom
    if (event.key === "Escape") {
      this.#choose(-1);
    } else if (event.key === "0") {
      this.#take(null);
    } else if (event.key in zooms) {
      this.#zoom(zooms[event.key]);
    } else if (push) {
      event.preventDefault();
      this.#push(push[0] * PUSH_PX, push[1] * PUSH_PX);
    } else if (event.key in places && shown.length) {
      event.preventDefault();
      const next = shown[Math.min(Math.max(places[event.key], 0), last)];
      this.#choose(next.index, true);
      if (this.#own) this.#follow(next);
    }
  }

  /** Bring a point to the middle that lies outside of what is seen. @param {Point} point */
  #follow({ x, y }) {
    const [view, [width, height]] = [this.#canvas.view, this.#canvas.room];
    if (!view || (Math.abs(x - view.x) * view.scale <= width / 2 && Math.abs(y - view.y) * view.scale <= height / 2)) return;
    this.#take({ ...view, x, y });
  }

  /**
   * Read a prototype.
   *
   * @param {number} index Of the map's prototypes; -1 for none.
   * @param {boolean} [isPinned]
   */
  #choose(index, isPinned = false) {
    this.#isPinned = isPinned;
    const texts = this.#map && index >= 0 ? readoutOf(this.#map, index, this.#names) : [];
    const shown = this.#points.filter((point) => this.#isOn(point));
    const place = shown.findIndex((point) => point.index === index);
    this.pointer.setAttribute("aria-valuemax", String(Math.max(shown.length, 1)));
    this.pointer.setAttribute("aria-valuenow", String(Math.max(place + 1, 1)));
    this.pointer.setAttribute("aria-valuetext", texts.length ? texts.join(", ") : `None of ${shown.length} chosen`);
    this.readout.classList.toggle("muted", !texts.length);
    if (texts.length) this.readout.replaceChildren(h("strong", null, texts[0]), ` · ${texts.slice(1).join(" · ")}`);
    else this.readout.replaceChildren(HINT);
    if (index === this.#chosen) return;
    this.#chosen = index;
    this.#draw();
  }
}
