// @ts-check
/**
 * The prototype map of a run, round by round: coloured by class, shaped by domain, sized by weight.
 *
 * It follows the newest round until somebody goes back to another. A round is asked for when it is to be shown, and those
 * beside it while nothing else is under way; what came is kept, so that going back and forth asks for nothing twice.
 */

import { ApiError } from "./api.js";
import { h, keyed, setText, svg } from "./dom.js";
import { sentence } from "./format.js";
import { MapCanvas } from "./map_canvas.js";
import {
  MOST_LABELS,
  attachedTo,
  between,
  domainsOf,
  missingFrom,
  paired,
  pointsOf,
  readoutOf,
  roundsOf,
  summaryOf,
  tableOf,
  viewBetween,
  viewFor,
} from "./map_view.js";
import { colour, shape } from "./palette.js";

/**
 * @typedef {import("./run_state.js").RunState} RunState
 * @typedef {import("./run.js").Context} Context
 * @typedef {import("./map_view.js").MapDocument} MapDocument
 * @typedef {import("./map_view.js").Point} Point
 * @typedef {import("./map_view.js").Names} Names
 * @typedef {import("./map_view.js").View} View
 */

/** How long prototypes are on their way from one round to the next. */
const MOVE_MS = 450;
/** How long a round is shown while they are played. */
const STEP_MS = 900;
/** Pause before what could not be read is read again. */
const RETRY_MS = 3000;
/** Rounds that are kept here, those shown last. */
const MOST_KEPT = 400;
const STILL = window.matchMedia("(prefers-reduced-motion: reduce)");
const DARK = window.matchMedia("(prefers-color-scheme: dark)");
const HIGH_CONTRAST = window.matchMedia("(forced-colors: active)");

/**
 * The section of the prototype map of a run's page.
 *
 * @param {Context} context
 * @returns {{element: HTMLElement, update: (state: RunState) => void, close: () => void}}
 */
export function section(context) {
  return new PrototypeMapSection(context);
}

class PrototypeMapSection {
  #context;
  #closed = new AbortController();
  /** Maps by round. @type {Map<number, MapDocument>} */
  #maps = new Map();
  /** Rounds that can be shown, rising. @type {number[]} */
  #rounds = [];
  /** The round to show; null for the newest. @type {number | null} */
  #wanted = null;
  /** What is shown. @type {MapDocument | null} */
  #map = null;
  /** @type {Names} */
  #names = { classes: [], domains: [] };
  /** @type {readonly Record<string, any>[]} */
  #metrics = [];
  #newest = 0;
  /** Classes and domains that are switched off, by index. */
  #hidden = { classes: new Set(), domains: new Set() };
  #chosen = -1;
  /** Whether the choice is the keyboard's, which stays where a pointer goes away. */
  #isPinned = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #playing;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retrying;
  /** The round that is being asked for. @type {number | null} */
  #asking = null;
  /** @type {{pairs: {from: Point, to: Point}[], begun: number, view: [View, View]} | null} */
  #move = null;
  #frame = 0;
  #isTableStale = true;

  /** @param {Context} context */
  constructor(context) {
    this.#context = context;
    const { signal } = this.#closed;
    this.canvas = new MapCanvas(h("canvas", { class: "map-canvas", "aria-hidden": "true" }));
    this.note = h("p", { class: "muted" }, "The map begins when round 1 has committed.");
    this.failure = h("div", { class: "notice", hidden: true, role: "status", data: { tone: "warning" } });
    this.summary = h("p", { class: "map-summary" });
    this.missing = h("p", { class: "small muted" });
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
          pointerleave: (/** @type {PointerEvent} */ event) => {
            if (event.pointerType !== "touch" && !this.#isPinned) this.#choose(-1);
          },
          blur: () => this.#choose(-1),
        },
      },
      this.canvas.element,
    );
    this.slider = h("input", {
      type: "range",
      class: "map-slider",
      min: 0,
      "aria-label": "Round of the map",
      on: { input: () => this.#scrubbed() },
    });
    this.at = h("output", { class: "map-at" });
    this.play = h("button", { type: "button", class: "button button-small", on: { click: () => this.#togglePlay() } }, "Play");
    this.follow = h(
      "button",
      { type: "button", class: "button button-small", on: { click: () => this.#followNewest() } },
      "Newest",
    );
    this.classes = h("div", { class: "chart-legend", role: "group", "aria-label": "Classes" });
    this.domains = h("div", { class: "chart-legend map-domains", role: "group", "aria-label": "Domains" });
    this.legends = [
      legendOf("Classes", this.classes, (isOn) => this.#switchAll("classes", isOn)),
      legendOf("Domains", this.domains),
    ];
    this.table = h("table");
    this.numbers = h(
      "details",
      { class: "chart-table", on: { toggle: () => this.#drawTable() } },
      h("summary", null, "Numbers in a table"),
      h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Prototypes by class" }, this.table),
    );
    this.body = h(
      "div",
      { class: "map-body", hidden: true },
      this.summary,
      this.missing,
      h(
        "div",
        { class: "map-columns" },
        h(
          "div",
          { class: "map-plot" },
          this.pointer,
          this.readout,
          h("div", { class: "map-time" }, this.play, this.slider, this.at, this.follow),
        ),
        h("div", { class: "map-side" }, legendOf("Prototypes", keyOf()), this.legends),
      ),
      this.numbers,
    );
    this.element = h(
      "section",
      { class: "card map", "aria-labelledby": "prototype-map-heading" },
      h("h2", { id: "prototype-map-heading" }, "Prototype map"),
      this.note,
      this.failure,
      this.body,
    );
    this.size = new ResizeObserver(() => this.#fit());
    this.size.observe(this.pointer);
    for (const query of [DARK, HIGH_CONTRAST]) query.addEventListener("change", () => this.#recolour(), { signal });
    document.addEventListener("visibilitychange", () => void this.#load(), { signal });
  }

  /** @param {RunState} state */
  update(state) {
    const last = state.rounds.at(-1);
    const classes = state.run?.config?.data?.classes ?? [];
    if (classes.length !== this.#names.classes.length) this.#names = { ...this.#names, classes };
    if (state.rounds === this.#metrics) return;
    this.#metrics = state.rounds;
    if (!last) return;
    if (!state.rounds.some((each) => each.prototypes?.local || each.prototypes?.global)) {
      setText(this.note, `There is nothing to map: no client of this ${state.run?.method ?? ""} run sends prototypes.`);
      return;
    }
    if (!this.#map) setText(this.note, "Reading the prototypes …");
    if (last.round > this.#newest) {
      this.#newest = last.round;
      if (this.#rounds.length && this.#rounds.at(-1) !== last.round) this.#rounds.push(last.round);
      this.#showTime();
      void this.#load();
    }
  }

  close() {
    this.#closed.abort();
    this.size.disconnect();
    clearInterval(this.#playing);
    clearTimeout(this.#retrying);
    cancelAnimationFrame(this.#frame);
  }

  // What is there, and what is shown of it

  /** Ask for the round that is to be shown, then for its neighbours; one at a time. */
  async #load() {
    if (this.#asking !== null || this.#closed.signal.aborted || document.hidden || !this.#newest) return;
    const round = this.#nextToAsk();
    if (round === null) return;
    clearTimeout(this.#retrying);
    this.#asking = round;
    const { runId, api } = this.#context;
    try {
      const path = api.runPath(runId, `/prototype-map${round ? `?round=${round}` : ""}`);
      this.#arrived(await api.get(path, { signal: this.#closed.signal }));
    } catch (error) {
      if (this.#closed.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.#refused(error, round);
      return;
    } finally {
      this.#asking = null;
    }
    void this.#load();
  }

  /** The round to ask for next, 0 for the newest there is; null for none. */
  #nextToAsk() {
    if (!this.#rounds.length) return 0;
    const round = this.#target();
    if (!this.#maps.has(round)) return round;
    const place = this.#rounds.indexOf(round);
    const beside = this.#wanted === null && !this.#playing ? [-1] : [1, 2, -1];
    const missing = beside.map((step) => this.#rounds[place + step]).find((each) => each && !this.#maps.has(each));
    return missing ?? null;
  }

  /** The round that is to be shown. */
  #target() {
    return this.#wanted ?? this.#rounds[this.#rounds.length - 1];
  }

  /** @param {MapDocument} map */
  #arrived(map) {
    const other = [...this.#maps.values()].some((known) => known.aligned_from !== map.aligned_from);
    if (other) this.#maps.clear();
    this.#maps.delete(map.round);
    this.#maps.set(map.round, map);
    if (this.#maps.size > MOST_KEPT) this.#maps.delete(this.#maps.keys().next().value ?? 0);
    this.#rounds = roundsOf(map.rounds);
    if (this.#rounds.at(-1) !== this.#newest && this.#newest > (this.#rounds.at(-1) ?? 0)) this.#rounds.push(this.#newest);
    if (this.#wanted !== null && this.#wanted < this.#rounds[0]) this.#wanted = this.#rounds[0];
    this.failure.hidden = true;
    const domains = domainsOf(this.#metrics, this.#maps.values());
    this.#names = { ...this.#names, domains };
    this.#showTime();
    this.#show();
  }

  /**
   * @param {ApiError} error
   * @param {number} round
   */
  #refused(error, round) {
    const isGone = error.problem?.code === "BLOB_NOT_FOUND" && this.#rounds.length > 0;
    if (isGone) {
      // It was collected a moment ago: those that are there come with the newest one.
      this.#rounds = [];
      this.#wanted = null;
    }
    const again = error.mayPass || isGone;
    if (again) this.#retrying = setTimeout(() => void this.#load(), RETRY_MS);
    this.failure.hidden = false;
    this.failure.replaceChildren(h("p", null, `${sentence(error.message)}${again ? " Trying again …" : ""}`));
    if (!this.#map) this.note.hidden = true;
    if (!again && this.#rounds.length > 1 && round) this.#followNewest();
  }

  /** Show the round that is to be shown, if it has come. */
  #show() {
    const map = this.#maps.get(this.#target());
    if (!map || map === this.#map) return;
    const before = this.#map && pointsOf(this.#map, this.#names);
    this.#map = map;
    this.#showTime();
    this.#choose(-1);
    this.note.hidden = true;
    this.body.hidden = false;
    this.#isTableStale = true;
    setText(this.summary, summaryOf(map));
    setText(this.missing, missingFrom(map));
    this.missing.hidden = !this.missing.textContent;
    this.#drawLegends();
    this.#drawTable();
    this.#go(before);
  }

  // Time

  #showTime() {
    const place = Math.max(this.#rounds.indexOf(this.#target()), 0);
    const last = this.#rounds.length - 1;
    this.slider.max = String(Math.max(last, 0));
    this.slider.value = String(place);
    const round = this.#rounds[place];
    const isShown = this.#map?.round === round;
    // Until a round has come, what is drawn is another's.
    setText(this.at, round ? `Round ${round}${isShown ? "" : " …"}` : "");
    this.slider.setAttribute("aria-valuetext", round ? `Round ${round}` : "");
    this.pointer.setAttribute("aria-busy", String(!isShown));
    this.slider.disabled = this.play.disabled = last < 1;
    this.follow.setAttribute("aria-pressed", String(this.#wanted === null));
    setText(this.play, this.#playing ? "Stop" : "Play");
  }

  #scrubbed() {
    const place = Number(this.slider.value);
    this.#stopPlaying();
    this.#goTo(place);
  }

  /** @param {number} place Of a round among those there are. */
  #goTo(place) {
    this.#wanted = place >= this.#rounds.length - 1 ? null : this.#rounds[place];
    this.#showTime();
    this.#show();
    void this.#load();
  }

  #followNewest() {
    this.#stopPlaying();
    this.#goTo(this.#rounds.length - 1);
  }

  #togglePlay() {
    if (this.#playing) {
      this.#stopPlaying();
    } else {
      if (this.#wanted === null) this.#wanted = this.#rounds[0];
      this.#playing = setInterval(() => this.#playOn(), STEP_MS);
      this.#goTo(this.#rounds.indexOf(this.#wanted));
    }
    this.#showTime();
  }

  /** The next round, when this one is shown. */
  #playOn() {
    if (document.hidden || this.#map?.round !== this.#target()) return;
    const place = this.#rounds.indexOf(this.#target()) + 1;
    if (place >= this.#rounds.length - 1) this.#stopPlaying();
    this.#goTo(Math.min(place, this.#rounds.length - 1));
  }

  #stopPlaying() {
    clearInterval(this.#playing);
    this.#playing = undefined;
    this.#showTime();
  }

  // Choosing a prototype

  /** @param {PointerEvent} event */
  #pointed(event) {
    const box = this.canvas.element.getBoundingClientRect();
    const found = this.canvas.at(event.clientX - box.left, event.clientY - box.top);
    if (found >= 0 || !this.#isPinned || event.type === "pointerdown") this.#choose(found);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    const shown = this.#shown().filter((point) => point.index >= 0);
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
    if (event.key === "Escape") {
      this.#choose(-1);
    } else if (event.key in places && shown.length) {
      event.preventDefault();
      this.#choose(shown[Math.min(Math.max(places[event.key], 0), last)].index, true);
    }
  }

  /**
   * @param {number} index Of a prototype of the map; -1 for none.
   * @param {boolean} [isPinned]
   */
  #choose(index, isPinned = false) {
    this.#isPinned = isPinned && index >= 0;
    const map = this.#map;
    const texts = map && index >= 0 ? readoutOf(map, index, this.#names) : [];
    const shown = this.#shown().filter((point) => point.index >= 0);
    const place = shown.findIndex((point) => point.index === index);
    this.pointer.setAttribute("aria-valuemax", String(Math.max(shown.length, 1)));
    this.pointer.setAttribute("aria-valuenow", String(Math.max(place + 1, 1)));
    this.pointer.setAttribute("aria-valuetext", texts.length ? texts.join(", ") : `None of ${shown.length} chosen`);
    if (index < 0) {
      this.readout.replaceChildren("Point at a prototype, or go from one to the next with the arrow keys.");
      this.readout.classList.add("muted");
    } else {
      this.readout.replaceChildren(h("strong", null, texts[0]), ` · ${texts.slice(1).join(" · ")}`);
      this.readout.classList.remove("muted");
    }
    if (index === this.#chosen) return;
    this.#chosen = index;
    this.#draw();
  }

  // Drawing

  /** The points of the map that are not switched off. */
  #shown() {
    if (!this.#map) return [];
    const { classes, domains } = this.#hidden;
    return pointsOf(this.#map, this.#names).filter(
      (point) => !classes.has(point.classId) && !domains.has(point.domain),
    );
  }

  /** @param {readonly Point[] | null} before */
  #go(before) {
    cancelAnimationFrame(this.#frame);
    const to = pointsOf(this.#map ?? /** @type {never} */ (null), this.#names);
    const [width, height] = this.canvas.room;
    const known = this.canvas.view;
    const view = viewFor(to, width, height, known);
    if (!before || !known || STILL.matches || document.hidden) {
      this.canvas.view = view;
      this.#move = null;
      this.#draw();
      return;
    }
    this.#move = { pairs: paired(before, to), begun: performance.now(), view: [known, view] };
    this.#step();
  }

  #step() {
    const move = this.#move;
    if (!move) return this.#draw();
    const share = Math.min(1, (performance.now() - move.begun) / MOVE_MS);
    this.canvas.view = share < 1 ? viewBetween(...move.view, share) : move.view[1];
    if (share === 1) this.#move = null;
    this.#draw(share === 1 ? undefined : between(move.pairs, share));
    if (share < 1) this.#frame = requestAnimationFrame(() => this.#step());
  }

  /** @param {readonly Point[]} [moving] Points on their way, where they are. */
  #draw(moving) {
    if (!this.#map) return;
    const { classes, domains } = this.#hidden;
    const all = moving ?? pointsOf(this.#map, this.#names);
    const points = all.filter((point) => !classes.has(point.classId) && !domains.has(point.domain));
    const attached = this.#chosen < 0 ? [] : attachedTo(this.#map, this.#chosen);
    this.canvas.draw(points, { chosen: this.#chosen, attached, labels: this.#labels(points) });
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
    return new Map([...heaviest].map(([classId, point]) => [point.index, this.#names.classes[classId] ?? String(classId)]));
  }

  #fit() {
    const width = Math.floor(this.pointer.clientWidth);
    if (width < 10) return;
    const height = Math.round(Math.min(Math.max(width * 0.62, 300), 560));
    if (!this.canvas.resize(width, height) || !this.#map) return;
    const [wide, high] = this.canvas.room;
    this.canvas.view = viewFor(pointsOf(this.#map, this.#names), wide, high);
    this.#move = null;
    this.#draw();
  }

  #recolour() {
    this.canvas.recolour();
    this.#draw();
  }

  #drawLegends() {
    const map = this.#map;
    if (!map) return;
    const present = [...new Set(map.prototypes.map((each) => each.class_id))];
    const known = [...new Set([...present, ...this.#hidden.classes])].sort((one, other) => one - other);
    const name = (/** @type {number} */ id) => this.#names.classes[id] ?? String(id);
    const longest = Math.max(...known.map((id) => name(id).length), 1);
    this.classes.style.setProperty("--legend-name", `${Math.min(longest, 20)}ch`);
    keyed(
      this.classes,
      known,
      (id) => id,
      (id) => this.#legendItem("classes", id, name(id), swatch(shape(0).path, colour(id))),
      (element, id) => element.setAttribute("aria-pressed", String(!this.#hidden.classes.has(id))),
    );
    keyed(
      this.domains,
      this.#names.domains,
      (domain) => domain,
      (domain) => {
        const index = this.#names.domains.indexOf(domain);
        return this.#legendItem("domains", index, domain, swatch(shape(index).path, "var(--text-muted)"));
      },
      (element, domain) => {
        element.setAttribute("aria-pressed", String(!this.#hidden.domains.has(this.#names.domains.indexOf(domain))));
      },
    );
  }

  /**
   * @param {"classes" | "domains"} kind
   * @param {number} index
   * @param {string} label
   * @param {SVGElement} mark
   */
  #legendItem(kind, index, label, mark) {
    const click = () => {
      const hidden = this.#hidden[kind];
      if (!hidden.delete(index)) hidden.add(index);
      this.#switched();
    };
    return h("button", { type: "button", class: "legend-item", on: { click } }, mark, label);
  }

  /**
   * @param {"classes" | "domains"} kind
   * @param {boolean} isOn
   */
  #switchAll(kind, isOn) {
    const all = this.#map?.prototypes.map((each) => each.class_id) ?? [];
    this.#hidden[kind] = new Set(isOn ? [] : all);
    this.#switched();
  }

  #switched() {
    this.#drawLegends();
    this.#choose(-1);
    this.#draw();
  }

  #drawTable() {
    if (!this.#map || !this.numbers.open || !this.#isTableStale) return;
    this.#isTableStale = false;
    const { head, rows } = tableOf(this.#map, this.#names);
    this.table.replaceChildren(
      h("caption", { class: "visually-hidden" }, `Prototypes of round ${this.#map.round} by class`),
      h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col" }, text)))),
      h(
        "tbody",
        null,
        rows.map(([first, ...rest]) => h("tr", null, h("th", { scope: "row" }, first), rest.map((text) => h("td", null, text)))),
      ),
    );
  }
}

/**
 * A legend under its heading.
 *
 * @param {string} title
 * @param {HTMLElement} items
 * @param {(isOn: boolean) => void} [switchAll]
 */
function legendOf(title, items, switchAll) {
  const button = (/** @type {string} */ label, /** @type {boolean} */ isOn) =>
    h("button", { type: "button", class: "map-all", on: { click: () => switchAll?.(isOn) } }, label);
  return h(
    "div",
    { class: "map-legend" },
    h("h3", null, title, switchAll && h("span", { class: "map-alls" }, button("All", true), button("None", false))),
    items,
  );
}

/** What large and small marks are. */
function keyOf() {
  const kind = (/** @type {SVGElement} */ mark, /** @type {string} */ label) =>
    h("p", null, svg("svg", { class: "map-kind", viewBox: "-10 -10 20 20", "aria-hidden": "true" }, mark), label);
  return h(
    "div",
    { class: "map-kinds" },
    kind(svg("circle", { r: 8, class: "map-kind-global" }), "global, by weight in its class"),
    kind(svg("path", { d: shape(2).path, transform: "scale(4.5)", class: "map-kind-local" }), "local, by samples"),
  );
}

/**
 * @param {string} path
 * @param {string} fill
 */
function swatch(path, fill) {
  return svg(
    "svg",
    { class: "map-swatch", viewBox: "-1.6 -1.6 3.2 3.2", "aria-hidden": "true" },
    svg("path", { d: path, style: { fill } }),
  );
}
