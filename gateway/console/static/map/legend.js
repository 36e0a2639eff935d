// @ts-check
/**
 * The legend of the prototype map: what marks are, and switches for classes and domains.
 */

import { h, keyed, svg } from "../lib/dom.js";
import { colour, shape } from "../lib/palette.js";

/**
 * @typedef {import("./view.js").MapDocument} MapDocument
 * @typedef {import("./view.js").Names} Names
 * @typedef {import("./view.js").Point} Point
 */

/** Longest name, in characters, for which a class keeps to its column. */
const MOST_CHARACTERS = 20;

export class MapLegend {
  #onSwitch;
  /** Classes that are switched off, by index. @type {Set<number>} */
  #offClasses = new Set();
  /** Domains that are switched off, by index. @type {Set<number>} */
  #offDomains = new Set();
  /** Classes on the map, rising. @type {number[]} */
  #present = [];
  /** @type {Names} */
  #names = { classes: [], domains: [] };

  /** @param {() => void} onSwitch Something was switched off or on. */
  constructor(onSwitch) {
    this.#onSwitch = onSwitch;
    this.classes = h("div", { class: "chart-legend", role: "group", "aria-label": "Classes" });
    this.domains = h("div", { class: "chart-legend map-domains", role: "group", "aria-label": "Domains" });
    const all = (/** @type {string} */ label, /** @type {() => Iterable<number>} */ off) =>
      h("button", { type: "button", class: "map-all", on: { click: () => this.#switchTo(off()) } }, label);
    this.element = h(
      "div",
      { class: "map-side" },
      part("Prototypes", kinds()),
      part("Classes", this.classes, all("All", () => []), all("None", () => this.#present)),
      part("Domains", this.domains),
    );
  }

  /** @param {Point} point */
  isOn(point) {
    return !this.#offClasses.has(point.classId) && !this.#offDomains.has(point.domain);
  }

  /**
   * @param {MapDocument} map
   * @param {Names} names
   */
  update(map, names) {
    this.#names = names;
    this.#present = [...new Set([...map.prototypes.map((each) => each.class_id), ...this.#offClasses])].sort(
      (one, other) => one - other,
    );
    this.#draw();
  }

  #draw() {
    const { classes, domains } = this.#names;
    const name = (/** @type {number} */ id) => classes[id] ?? String(id);
    const longest = Math.max(...this.#present.map((id) => name(id).length), 1);
    this.classes.style.setProperty("--legend-name", `${Math.min(longest, MOST_CHARACTERS)}ch`);
    keyed(
      this.classes,
      this.#present,
      (id) => id,
      (id) => this.#item(this.#offClasses, id, name(id), shape(0).path, colour(id)),
      (element, id) => element.setAttribute("aria-pressed", String(!this.#offClasses.has(id))),
    );
    keyed(
      this.domains,
      domains.map((domain, index) => ({ domain, index })),
      ({ domain, index }) => `${index} ${domain}`,
      ({ domain, index }) => this.#item(this.#offDomains, index, domain, shape(index).path, "var(--text-muted)"),
      (element, { index }) => element.setAttribute("aria-pressed", String(!this.#offDomains.has(index))),
    );
  }

  /** @param {Iterable<number>} off Classes. */
  #switchTo(off) {
    this.#offClasses.clear();
    for (const id of off) this.#offClasses.add(id);
    this.#draw();
    this.#onSwitch();
  }

  /**
   * @param {Set<number>} off
   * @param {number} index
   * @param {string} label
   * @param {string} path
   * @param {string} fill
   */
  #item(off, index, label, path, fill) {
    const click = () => {
      if (!off.delete(index)) off.add(index);
      this.#draw();
      this.#onSwitch();
    };
    const mark = svg("path", { d: path, style: { fill } });
    const swatch = svg("svg", { class: "map-swatch", viewBox: "-1.6 -1.6 3.2 3.2", "aria-hidden": "true" }, mark);
    return h("button", { type: "button", class: "legend-item", on: { click } }, swatch, label);
  }
}

/**
 * A part of the legend under its heading.
 *
 * @param {string} title
 * @param {HTMLElement} items
 * @param {...HTMLElement} buttons
 */
function part(title, items, ...buttons) {
  const heading = h("h3", null, title, buttons.length > 0 && h("span", { class: "map-alls" }, buttons));
  return h("div", { class: "map-legend" }, heading, items);
}

/** Legend of the marks: global and local prototypes, large and small. */
function kinds() {
  const kind = (/** @type {SVGElement} */ mark, /** @type {string} */ label) =>
    h("p", null, svg("svg", { class: "map-kind", viewBox: "-10 -10 20 20", "aria-hidden": "true" }, mark), label);
  return h(
    "div",
    { class: "map-kinds" },
    kind(svg("circle", { r: 8, class: "map-kind-global" }), "global, by weight in its class"),
    kind(svg("path", { d: shape(2).path, transform: "scale(4.5)", class: "map-kind-local" }), "local, by samples"),
  );
}
