// @ts-check
/**
 * Line charts over rounds: SVG made here, read with eyes, pointer, keyboard or screen reader.
 *
 * A chart shows one round's values in its legend: the last one's, or those of the round that pointer or arrow keys choose.
 * What it draws is in a table too.
 */

import { axisOf, linesOf, logAxisOf, nearest, pathOf, placeOf, rangeOf, spread } from "./maths.js";
import { h, keyed, setAttribute, setText, svg } from "../lib/dom.js";
import { NONE, count } from "../lib/format.js";

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
 * }} Series
 *
 * `values` are as many as the chart's rounds; null is missing. `mark` is an SVG path as palette.js has them. `note` stands
 * behind the label in the legend. A band lies broad and pale behind the lines.
 *
 * @typedef {{
 *   name: string,
 *   format: (value: number | null) => string,
 *   formatTick?: (value: number) => string,
 *   range?: {low: number, high: number},
 *   canBeLog?: boolean,
 *   height?: number,
 * }} Options
 *
 * `name` says what is drawn, such as "Accuracy". `range` are the least ends of the value axis; it grows where values need it.
 */

const MARGIN = { top: 10, right: 14, bottom: 26 };
const CHARACTER_PX = 6.7;
/** Least width of a drawing that names lines at their ends; on less the legend does. */
const MIN_WIDTH_OF_NAMES = 520;
const MAX_NAMES = 8;
/** Longest name at the end of a line. */
const MAX_CHARACTERS = 20;
const NAME_GAP = 15;
/** Least distance of points that are all marked. */
const MARKED_PX = 44;
/** Rounds that a table shows. */
const MAX_ROWS = 200;

let made = 0;

export class LineChart {
  #options;
  #id = `chart-${++made}`;
  /** @type {readonly number[]} */
  #rounds = [];
  /** @type {readonly Series[]} */
  #series = [];
  /** Keys of lines that somebody switched off. @type {Set<string>} */
  #hidden = new Set();
  /** Index of the chosen round; null for the last one, whichever that is. @type {number | null} */
  #chosen = null;
  #isLog = false;
  #width = 0;
  /** @type {ReturnType<LineChart["_frame"]> | null} */
  #drawn = null;

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
        pointerdown: (/** @type {PointerEvent} */ event) => this.#onPointer(event),
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
    this._plot = h("div", { class: "chart-plot" }, this._drawing, this._slider);
    this.element = h(
      "figure",
      { class: "chart", "aria-label": options.name, hidden: true },
      options.canBeLog ? h("div", { class: "chart-head" }, this._tools) : null,
      this._plot,
      h("div", { class: "chart-foot" }, this._at, this._legend),
      this._note,
      this._table,
    );
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width === this.#width) return;
      this.#width = width;
      this.#draw();
    }).observe(this._plot);
  }

  /**
   * Show other values.
   *
   * @param {readonly number[]} rounds Rising.
   * @param {readonly Series[]} series
   */
  update(rounds, series) {
    this.#rounds = rounds;
    this.#series = series;
    if (this.#chosen !== null && this.#chosen >= rounds.length) this.#chosen = null;
    this.element.hidden = rounds.length === 0 || series.length === 0;
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
      this.#drawn = this._frame();
      this.#drawAxes();
      this.#drawLines();
    }
    this.#readOut();
    this.#describe();
  }

  /** Where everything goes, in pixels. */
  _frame() {
    const { format, formatTick = format, range, height = 260 } = this.#options;
    const visible = this.#visible().map((each) => ({ ...each, values: this.#onScale(each.values) }));
    const found = rangeOf(visible.map((each) => each.values)) ?? { low: this.#isLog ? 1 : 0, high: this.#isLog ? 10 : 1 };
    const low = Math.min(found.low, range?.low ?? Infinity);
    const high = Math.max(found.high, range?.high ?? -Infinity);
    const axis = this.#isLog ? logAxisOf(found.low, found.high) : axisOf(low, high, Math.round(height / 46));
    const labels = axis.ticks.map(formatTick);
    const left = Math.ceil(Math.max(...labels.map((label) => label.length)) * CHARACTER_PX) + 12;
    const named = visible.filter((each) => !each.isBand);
    const hasNames = this.#width >= MIN_WIDTH_OF_NAMES && named.length > 1 && named.length <= MAX_NAMES;
    const longest = Math.max(0, ...named.map((each) => cut(each.label).length));
    const right = hasNames ? Math.ceil(longest * CHARACTER_PX) + 34 : MARGIN.right;
    const inner = { left, right: Math.max(left + 40, this.#width - right), top: MARGIN.top, bottom: height - MARGIN.bottom };
    const [first, last] = [this.#rounds[0], this.#rounds[this.#rounds.length - 1]];
    const roundAxis = axisOf(first, last, Math.max(2, Math.round((inner.right - inner.left) / (1.5 * roomOf(last)))), {
      isWhole: true,
      isTight: true,
    });
    return {
      visible,
      named: hasNames ? named : [],
      axis,
      labels,
      roundAxis,
      inner,
      height,
      /** @param {number} round */
      toX: (round) => inner.left + placeOf(roundAxis, round) * (inner.right - inner.left),
      /** @param {number} value */
      toY: (value) => inner.bottom - placeOf(axis, value, this.#isLog) * (inner.bottom - inner.top),
    };
  }

  /**
   * Values as the scale can show them: a logarithm has the size of what is below zero, and nothing of zero.
   *
   * @param {readonly (number | null)[]} values
   */
  #onScale(values) {
    return this.#isLog ? values.map((value) => (value ? Math.abs(value) : null)) : values;
  }

  #drawAxes() {
    const { axis, labels, roundAxis, inner, height, toX, toY } = /** @type {any} */ (this.#drawn);
    setAttribute(this._drawing, "viewBox", `0 0 ${this.#width} ${height}`);
    setAttribute(this._drawing, "width", this.#width);
    setAttribute(this._drawing, "height", height);
    for (const [side, value] of Object.entries({ left: inner.left, width: inner.right - inner.left, height })) {
      this._slider.style.setProperty(side, `${value}px`);
    }
    const rows = axis.ticks.map((/** @type {number} */ tick, /** @type {number} */ index) => {
      const y = Math.round(toY(tick)) + 0.5;
      return [
        svg("line", { x1: inner.left, x2: inner.right, y1: y, y2: y, class: tick === 0 ? "chart-zero" : null }),
        svg("text", { x: inner.left - 8, y: y + 4, "text-anchor": "end" }, labels[index]),
      ];
    });
    const columns = this.#roundTicks(roundAxis.ticks, toX).map((tick) =>
      svg("text", { x: toX(tick), y: height - 8, "text-anchor": "middle" }, count(tick)),
    );
    this._back.replaceChildren(...rows.flat(), ...columns);
  }

  /**
   * The rounds to name: the first, the last, and between them as many round ones as fit.
   *
   * @param {readonly number[]} ticks
   * @param {(round: number) => number} toX
   */
  #roundTicks(ticks, toX) {
    const [first, last] = [this.#rounds[0], this.#rounds[this.#rounds.length - 1]];
    const room = roomOf(last);
    const between = ticks.filter((tick) => toX(tick) - toX(first) > room && toX(last) - toX(tick) > room);
    return first === last ? [first] : [first, ...between, last];
  }

  #drawLines() {
    const { visible, named, inner, toX, toY } = /** @type {any} */ (this.#drawn);
    const spacing = (inner.right - inner.left) / Math.max(1, this.#rounds.length - 1);
    /** @type {SVGElement[]} */
    const marks = [];
    /** @type {{each: Series, x: number, y: number}[]} */
    const ends = [];
    const paths = [...visible]
      .sort((one, other) => Number(other.isBand ?? false) - Number(one.isBand ?? false))
      .map((/** @type {Series} */ each) => {
        const lines = linesOf(this.#rounds, each.values, toX, toY);
        const last = lines.at(-1)?.at(-1);
        if (last && !each.isBand) ends.push({ each, x: last[0], y: last[1] });
        const isMarked = !each.isBand && each.mark && spacing >= MARKED_PX;
        const points = isMarked ? lines.flat() : last && !each.isBand ? [last] : [];
        for (const [x, y] of points) marks.push(markAt(each, x, y));
        return svg("path", {
          d: pathOf(lines),
          class: each.isBand ? "chart-band" : "chart-line",
          stroke: each.colour,
          "stroke-width": each.isBand ? 9 : (each.width ?? 1.75),
          "stroke-dasharray": each.dash ?? null,
        });
      });
    const shown = ends.filter(({ each }) => named.some((/** @type {Series} */ other) => other.key === each.key));
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
    this._lines.replaceChildren(...paths, ...marks, ...names);
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
          swatch.replaceChildren(
            svg("path", {
              d: "M-14 0H14",
              class: each.isBand ? "chart-band" : "chart-line",
              stroke: each.colour,
              "stroke-width": each.isBand ? 9 : 2.25,
              "stroke-dasharray": each.dash ?? null,
            }),
            ...(each.mark ? [markAt(each, 0, 0)] : []),
          );
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
    setText(this._at, `Round ${count(round)}`);
    const said = this.#visible().map((each) => `${each.label} ${format(each.values[index] ?? null)}`);
    this.#series.forEach((each, number) => {
      const value = this._legend.children[number]?.querySelector(".legend-value");
      if (value) setText(value, format(each.values[index] ?? null));
    });
    setAttribute(this._slider, "aria-valuemin", this.#rounds[0]);
    setAttribute(this._slider, "aria-valuemax", this.#rounds[this.#rounds.length - 1]);
    setAttribute(this._slider, "aria-valuenow", round);
    setAttribute(this._slider, "aria-valuetext", `Round ${round}: ${said.join(", ") || "every line is switched off"}`);
    this.#drawCursor(index);
  }

  /** @param {number} index */
  #drawCursor(index) {
    if (!this.#drawn || this.#chosen === null) {
      this._cursor.replaceChildren();
      return;
    }
    const { visible, inner, toX, toY } = this.#drawn;
    const x = toX(this.#rounds[index]);
    const dots = visible.flatMap((each) => {
      const value = each.values[index];
      if (each.isBand || value === null || value === undefined) return [];
      return [svg("circle", { cx: x, cy: toY(value), r: 4, fill: each.colour })];
    });
    this._cursor.replaceChildren(svg("line", { x1: x, x2: x, y1: inner.top, y2: inner.bottom }), ...dots);
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
    const { format } = this.#options;
    const last = this.#rounds.length - 1;
    const indices = Array.from({ length: Math.min(MAX_ROWS, last + 1) }, (_, offset) => last - offset);
    const columns = this.#series.filter((each) => !each.isBand);
    this._rows.replaceChildren(
      h(
        "table",
        null,
        h(
          "caption",
          { class: last + 1 > MAX_ROWS ? "small muted" : "visually-hidden" },
          last + 1 > MAX_ROWS
            ? `${this.#options.name}: the last ${MAX_ROWS} of ${count(last + 1)} rounds; metrics.jsonl has them all`
            : this.#options.name,
        ),
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Round"), columns.map(({ label }) => h("th", { scope: "col", class: "number" }, label)))),
        h(
          "tbody",
          null,
          indices.map((index) =>
            h(
              "tr",
              null,
              h("th", { scope: "row" }, count(this.#rounds[index])),
              columns.map(({ values }) => h("td", { class: "number" }, format(values[index] ?? null) || NONE)),
            ),
          ),
        ),
      ),
    );
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
    if (!this.#drawn) return;
    const { roundAxis, inner } = this.#drawn;
    const place = event.offsetX / Math.max(1, inner.right - inner.left);
    this.#choose(nearest(this.#rounds, roundAxis.low + place * (roundAxis.high - roundAxis.low)));
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const last = this.#rounds.length - 1;
    const at = this.#chosen ?? last;
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

/**
 * A name as it stands at the end of a line; the legend has all of it.
 *
 * @param {string} label
 */
function cut(label) {
  return label.length > MAX_CHARACTERS ? `${label.slice(0, MAX_CHARACTERS - 1)}…` : label;
}

/**
 * How wide the number of a round is with some air around it.
 *
 * @param {number} round
 */
function roomOf(round) {
  return CHARACTER_PX * (count(round).length + 2.5);
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
