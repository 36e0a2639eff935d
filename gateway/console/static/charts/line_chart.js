// @ts-check
/**
 * Line charts over rounds in SVG, for eyes, pointer, keyboard and screen readers.
 *
 * The legend of a chart shows one round's values: of the last round, or of the round chosen with the pointer or arrow keys.
 * A table shows the same values as the lines. A range of rounds, which charts of a page share, says which of them are shown: a
 * stroke across the drawing and the keys + and - change it.
 */

import { chartTable } from "./chart_table.js";
import { axesOf, cursorAt, curvesOf, layoutOf, stagesOf, swatchOf } from "./drawing.js";
import { h, keyed, setAttribute, setText, svg } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { nearest } from "./maths.js";
import { stageName } from "../lib/stages.js";

/**
 * One line.
 *
 * @typedef {{
 *   key: string,
 *   label: string,
 *   values: readonly (number | null)[],
 *   colour: string,
 *   dash?: string,
 *   mark?: string,
 *   width?: number,
 *   note?: string,
 *   isBand?: boolean,
 *   isJoined?: boolean,
 * }} Series
 *
 * `values` are as many as the chart's rounds; null is missing. `mark` is an SVG path as palette.js has them. `note` stands
 * behind the label in the legend. A band lies broad and pale behind the lines. A joined line
 * goes on over missing values.
 *
 * @typedef {{
 *   name: string,
 *   format: (value: number | null) => string,
 *   formatTick?: (value: number) => string,
 *   range?: {low: number, high: number},
 *   canBeLog?: boolean,
 *   height?: number,
 *   rounds?: import("../lib/round_range.js").RoundRange,
 * }} Options
 *
 * `name` says what is drawn, such as "Accuracy". `range` are the least ends of the value axis; it grows where values need it.
 * `rounds` is the range that is shown; all rounds without one.
 */

/** Least length of a stroke that chooses rounds; a shorter one is a click. */
const STROKE_PX = 12;

let made = 0;

export class LineChart {
  #options;
  #id = `chart-${++made}`;
  /** Rounds and lines that there are. @type {{rounds: readonly number[], series: readonly Series[]}} */
  #all = { rounds: [], series: [] };
  /** Rounds that are shown. @type {readonly number[]} */
  #rounds = [];
  /** Lines over these rounds. @type {readonly Series[]} */
  #series = [];
  /** Stages behind the lines. @type {readonly import("../lib/stages.js").Band[]} */
  #bands = [];
  /** Where a stroke of the mouse began, in pixels from the left end of the lines. @type {number | null} */
  #strokeFrom = null;
  /** Keys of lines that somebody switched off. @type {Set<string>} */
  #hidden = new Set();
  /** Index of the chosen round; null for the last one, whichever that is. @type {number | null} */
  #chosen = null;
  #isLog = false;
  #width = 0;
  /** @type {import("./drawing.js").Layout | null} */
  #layout = null;

  /** @param {Options} options */
  constructor(options) {
    this.#options = options;
    this._title = svg("title", { id: `${this.#id}-title` }, options.name);
    this._description = svg("desc", { id: `${this.#id}-description` });
    this._back = svg("g", { class: "chart-grid" });
    this._lines = svg("g");
    this._cursor = svg("g", { class: "chart-cursor-marks" });
    this._drawing = svg(
      "svg",
      { role: "img", "aria-labelledby": this._title.id, "aria-describedby": this._description.id },
      this._title,
      this._description,
      this._back,
      this._lines,
      this._cursor,
    );
    this._slider = h("div", {
      class: "chart-slider",
      role: "slider",
      tabindex: 0,
      "aria-label": `Round to read in the chart of ${options.name}`,
      on: {
        keydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
        pointermove: (/** @type {PointerEvent} */ event) => this.#onPointer(event),
        pointerdown: (/** @type {PointerEvent} */ event) => this.#onPress(event),
        pointerup: (/** @type {PointerEvent} */ event) => this.#onLift(event),
        pointercancel: () => this.#endStroke(),
        // A finger that is lifted leaves what it chose to be read; touching something else ends it.
        pointerleave: (/** @type {PointerEvent} */ event) => event.pointerType === "touch" || this.#choose(null),
        blur: () => this.#choose(null),
      },
    });
    this._log = h("input", { type: "checkbox", on: { change: () => this.#switchScale() } });
    this._tools = h("label", { class: "chart-tool" }, this._log, "Logarithmic");
    this._note = h("p", { class: "small muted", hidden: true });
    this._at = h("p", { class: "chart-at" });
    this._legend = h("ul", { class: "chart-legend" });
    // A long table scrolls in itself, for the keyboard too.
    this._rows = h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": `${options.name}, as a table` });
    this._table = h(
      "details",
      { class: "chart-table", on: { toggle: () => this.#fillTable() } },
      h("summary", null, "Table"),
      this._rows,
    );
    this._stroke = h("div", { class: "chart-stroke", hidden: true });
    this._plot = h("div", { class: "chart-plot" }, this._drawing, this._stroke, this._slider);
    this._foot = h("div", { class: "chart-foot" }, this._at, this._legend);
    this._nothing = h("p", { class: "muted", hidden: true });
    this.element = h(
      "figure",
      { class: "chart", "aria-label": options.name, hidden: true },
      options.canBeLog ? h("div", { class: "chart-head" }, this._tools) : null,
      this._nothing,
      this._plot,
      this._foot,
      this._note,
      this._table,
    );
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width === this.#width) return;
      this.#width = width;
      this.#draw();
    }).observe(this._plot);
    options.rounds?.addEventListener("change", () => this.#showRange());
  }

  /**
   * Show other values.
   *
   * @param {readonly number[]} rounds Rising.
   * @param {readonly Series[]} series
   * @param {readonly import("../lib/stages.js").Band[]} [bands] Stages that the rounds belong to; none in a run without.
   */
  update(rounds, series, bands = []) {
    this.#all = { rounds, series };
    this.#bands = bands;
    this.element.hidden = rounds.length === 0 || series.length === 0;
    this.#showRange();
  }

  #showRange() {
    const { rounds, series } = this.#all;
    const range = this.#options.rounds;
    const read = this.#chosen === null ? null : this.#rounds[this.#chosen];
    const [begin, end] = !range || range.isWhole ? [0, rounds.length] : range.within(rounds);
    this.#rounds = rounds.slice(begin, end);
    this.#series = this.#rounds.length < rounds.length ? series.map((each) => ({ ...each, values: each.values.slice(begin, end) })) : series;
    // What somebody reads stays the same round.
    const index = read === null ? -1 : this.#rounds.indexOf(read);
    this.#chosen = index < 0 ? null : index;
    const isEmpty = this.#rounds.length === 0;
    for (const part of [this._plot, this._foot, this._table]) part.hidden = isEmpty;
    this._nothing.hidden = !isEmpty;
    setText(this._nothing, isEmpty && range ? `There is nothing in ${range.text}.` : "");
    this.#draw();
    this.#fillTable();
  }

  #visible() {
    return this.#series.filter((each) => !this.#hidden.has(each.key));
  }

  #draw() {
    if (!this.#rounds.length || this.element.hidden) return;
    this.#listSeries();
    if (this.#width > 0) {
      this.#layout = layoutOf(this.#rounds, this.#visible(), this.#width, this.#isLog, this.#options, this.#bands);
      this.#drawLayout(this.#layout);
    }
    this.#readOut();
    this.#describe();
  }

  /** @param {import("./drawing.js").Layout} layout */
  #drawLayout(layout) {
    const { inner, width, height } = layout;
    setAttribute(this._drawing, "viewBox", `0 0 ${width} ${height}`);
    setAttribute(this._drawing, "width", width);
    setAttribute(this._drawing, "height", height);
    for (const [side, value] of Object.entries({ left: inner.left, width: inner.right - inner.left, height })) {
      this._slider.style.setProperty(side, `${value}px`);
    }
    this._back.replaceChildren(...stagesOf(layout), ...axesOf(layout));
    this._lines.replaceChildren(...curvesOf(layout));
  }

  #listSeries() {
    keyed(
      this._legend,
      this.#series,
      (each) => each.key,
      (each) =>
        h(
          "li",
          null,
          h(
            "button",
            { type: "button", class: "legend-item", on: { click: () => this.#toggle(each.key) } },
            svg("svg", { class: "legend-swatch", viewBox: "-14 -7 28 14", "aria-hidden": "true" }),
            h("span", { class: "legend-label" }),
            h("span", { class: "legend-note" }),
            h("span", { class: "legend-value" }),
          ),
        ),
      (item, each) => {
        const button = /** @type {Element} */ (item.firstElementChild);
        const [swatch, label, note] = button.children;
        setAttribute(button, "aria-pressed", this.#hidden.has(each.key) ? "false" : "true");
        const look = `${each.colour} ${each.dash} ${each.mark} ${each.isBand}`;
        if (swatch.getAttribute("data-look") !== look) {
          setAttribute(swatch, "data-look", look);
          swatch.replaceChildren(...swatchOf(each));
        }
        setText(label, each.label);
        setText(note, each.note ?? "");
      },
    );
  }

  #readOut() {
    const index = this.#chosen ?? this.#rounds.length - 1;
    const round = this.#rounds[index];
    const { format } = this.#options;
    const stage = stageName(this.#bands, round);
    setText(this._at, [`Round ${count(round)}`, stage].filter(Boolean).join(", "));
    const said = this.#visible().map((each) => `${each.label} ${format(each.values[index] ?? null)}`);
    this.#series.forEach((each, number) => {
      const value = this._legend.children[number]?.querySelector(".legend-value");
      if (value) setText(value, format(each.values[index] ?? null));
    });
    setAttribute(this._slider, "aria-valuemin", this.#rounds[0]);
    setAttribute(this._slider, "aria-valuemax", this.#rounds[this.#rounds.length - 1]);
    setAttribute(this._slider, "aria-valuenow", round);
    setAttribute(this._slider, "aria-valuetext", `Round ${round}${stage && `, ${stage}`}: ${said.join(", ") || "every line is switched off"}`);
    this.#drawCursor(index);
  }

  /** @param {number} index */
  #drawCursor(index) {
    this._cursor.replaceChildren(...(this.#layout && this.#chosen !== null ? cursorAt(this.#layout, index) : []));
  }

  #describe() {
    const { format, name } = this.#options;
    const last = this.#rounds.length - 1;
    const parts = this.#visible().map(
      ({ label, values }) => `${label} from ${format(values[0] ?? null)} to ${format(values[last] ?? null)}`,
    );
    setText(
      this._description,
      `${name} from round ${this.#rounds[0]} to round ${this.#rounds[last]}: ${parts.join("; ") || "no line is shown"}.`,
    );
    const below = this.#isLog ? this.#visible().filter(({ values }) => values.some((value) => (value ?? 0) < 0)) : [];
    this._note.hidden = below.length === 0;
    setText(this._note, `${below.map(({ label }) => label).join(", ")} is below zero: its size is drawn.`);
  }

  #fillTable() {
    if (!this._table.open || this.element.hidden) return;
    this._rows.replaceChildren(chartTable(this.#options, this.#rounds, this.#series, this.#bands));
  }

  /** @param {string} key */
  #toggle(key) {
    if (!this.#hidden.delete(key)) this.#hidden.add(key);
    this.#draw();
  }

  #switchScale() {
    this.#isLog = this._log.checked;
    this.#draw();
  }

  /** @param {number | null} index */
  #choose(index) {
    if (index === this.#chosen) return;
    this.#chosen = index;
    if (this.#rounds.length) this.#readOut();
  }

  /** @param {PointerEvent} event */
  #onPointer(event) {
    if (!this.#layout) return;
    this.#choose(this.#indexAt(event.offsetX));
    if (this.#strokeFrom === null) return;
    const { left } = this.#layout.inner;
    const ends = [this.#strokeFrom, event.offsetX].sort((one, other) => one - other);
    this._stroke.hidden = ends[1] - ends[0] < STROKE_PX;
    this._stroke.style.setProperty("left", `${left + ends[0]}px`);
    this._stroke.style.setProperty("width", `${ends[1] - ends[0]}px`);
    this._stroke.style.setProperty("height", `${this.#layout.height}px`);
  }

  /**
   * Index of the round at a place.
   *
   * @param {number} x In pixels from the left end of the lines.
   */
  #indexAt(x) {
    const { roundAxis, inner } = /** @type {import("./drawing.js").Layout} */ (this.#layout);
    const place = x / Math.max(1, inner.right - inner.left);
    return nearest(this.#rounds, roundAxis.low + place * (roundAxis.high - roundAxis.low));
  }

  /** @param {PointerEvent} event */
  #onPress(event) {
    // A finger that moves scrolls the page.
    if (this.#options.rounds && event.pointerType !== "touch" && event.button === 0) {
      this.#strokeFrom = event.offsetX;
      this._slider.setPointerCapture(event.pointerId);
    }
    this.#onPointer(event);
  }

  /** @param {PointerEvent} event */
  #onLift(event) {
    const begin = this.#strokeFrom;
    this.#endStroke();
    if (begin === null || !this.#layout || Math.abs(event.offsetX - begin) < STROKE_PX) return;
    const [from, to] = [begin, event.offsetX].map((x) => this.#indexAt(x)).sort((one, other) => one - other);
    if (from === to) return;
    const { rounds } = this.#all;
    const [first, last] = [this.#rounds[from], this.#rounds[to]];
    // An end at the edge stays open: a round that comes later is shown too.
    this.#options.rounds?.set(first === rounds[0] ? null : first, last === rounds[rounds.length - 1] ? null : last);
  }

  #endStroke() {
    this.#strokeFrom = null;
    this._stroke.hidden = true;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const last = this.#rounds.length - 1;
    const at = this.#chosen ?? last;
    const { rounds } = this.#options;
    if (rounds && this.#rounds.length && ["+", "=", "-"].includes(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      rounds.zoom(this.#rounds[at], this.#all.rounds, event.key !== "-");
      return;
    }
    const leap = Math.max(1, Math.round((last + 1) / 10));
    /** @type {Record<string, number | null>} */
    const targets = {
      ArrowLeft: at - 1,
      ArrowDown: at - 1,
      ArrowRight: at + 1,
      ArrowUp: at + 1,
      PageDown: at - leap,
      PageUp: at + leap,
      Home: 0,
      End: last,
      Escape: null,
    };
    if (!(event.key in targets) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const target = targets[event.key];
    this.#choose(target === null ? null : Math.max(0, Math.min(last, target)));
  }
}
