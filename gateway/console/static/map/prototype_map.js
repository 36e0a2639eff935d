// @ts-check
/**
 * The prototype map of a run, round by round: coloured by class, shaped by domain, sized by weight. It follows the newest
 * round until somebody goes back to another, and plays rounds one after the other.
 */

import { h, setText } from "../lib/dom.js";
import { foldingCard } from "../lib/folding.js";
import { MapLegend } from "./legend.js";
import { MapPlot } from "./plot.js";
import { MapRounds } from "./rounds.js";
import { domainsOf, missingFrom, summaryOf, tableOf } from "./view.js";

/**
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("../lib/run_state.js").Context} Context
 * @typedef {import("./view.js").MapDocument} MapDocument
 * @typedef {import("./view.js").Names} Names
 */

/** Duration of a round while the rounds play. */
const STEP_MS = 900;

/**
 * The section of the prototype map of a run's page.
 *
 * @param {Context} context
 * @returns {{element: HTMLElement, update: (state: RunState) => void, close: () => void}}
 */
export function section(context) {
  const rounds = new MapRounds(context, changed);
  const legend = new MapLegend(() => plot.switched());
  const plot = new MapPlot((point) => legend.isOn(point));
  const note = h("p", { class: "muted" }, "The map begins when round 1 has committed.");
  const failure = h("p", { class: "notice", hidden: true, role: "status", data: { tone: "warning" } });
  const summary = h("p");
  const missing = h("p", { class: "small muted" });
  const slider = h("input", {
    type: "range",
    class: "map-slider",
    min: 0,
    "aria-label": "Round of the map",
    on: { input: () => scrubbed() },
  });
  const at = h("output", { class: "map-at" });
  const play = h("button", { type: "button", class: "button button-small", on: { click: () => togglePlay() } });
  const newest = h("button", { type: "button", class: "button button-small", on: { click: () => goToNewest() } }, "Newest");
  const table = h("table");
  const numbers = h(
    "details",
    { class: "chart-table", on: { toggle: () => drawTable() } },
    h("summary", null, "Numbers in a table"),
    h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Prototypes by class" }, table),
  );
  const time = h("div", { class: "map-time" }, play, slider, at, newest);
  const body = h(
    "div",
    { class: "map-body", hidden: true },
    summary,
    missing,
    h("div", { class: "map-columns" }, h("div", { class: "map-plot" }, plot.element, time), legend.element),
    numbers,
  );
  const { element, fold } = foldingCard(
    { id: "prototype-map-heading", title: "Prototype map", hint: "Prototypes in a plane, round by round.", class: "map", onToggle: () => opened() },
    note,
    failure,
    body,
  );
  /** The map on the page. @type {MapDocument | null} */
  let map = null;
  /** The map in the table. @type {MapDocument | null} */
  let tabled = null;
  /** @type {Names} */
  let names = { classes: [], domains: [] };
  /** @type {RunState | null} */
  let latest = null;
  /** Lines of metrics.jsonl. @type {RunState["rounds"]} */
  let metrics = [];
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let playing;

  function opened() {
    if (fold.open && latest) update(latest);
  }

  /** Nothing is read while nobody looks. @param {RunState} state */
  function update(state) {
    latest = state;
    const last = state.rounds.at(-1);
    if (!fold.open || state.rounds === metrics || !last) return;
    metrics = state.rounds;
    names = { ...names, classes: state.run?.config?.data?.classes ?? [] };
    if (!metrics.some((each) => each.prototypes?.local || each.prototypes?.global)) {
      setText(note, `There is nothing to map: no client of this ${state.run?.method ?? ""} run sends prototypes.`);
      return;
    }
    if (!map) setText(note, "Reading the prototypes …");
    rounds.committed(last.round);
  }

  /** Show what there is now of what is to be shown. */
  function changed() {
    setText(failure, rounds.failure);
    failure.hidden = !rounds.failure;
    note.hidden = map !== null || rounds.map !== null || !failure.hidden;
    if (rounds.map && rounds.map !== map) show(rounds.map);
    showTime();
  }

  /** @param {MapDocument} next */
  function show(next) {
    map = next;
    names = { ...names, domains: domainsOf(metrics, rounds.maps) };
    body.hidden = false;
    setText(summary, summaryOf(map));
    setText(missing, missingFrom(map));
    missing.hidden = !missing.textContent;
    legend.update(map, names);
    plot.show(map, names);
    drawTable();
  }

  function showTime() {
    const { all, place } = rounds;
    slider.max = String(Math.max(all.length - 1, 0));
    slider.value = String(place);
    slider.disabled = play.disabled = all.length < 2;
    slider.setAttribute("aria-valuetext", `Round ${all[place] ?? 0}`);
    // Until a round's map has come, the one that is drawn is another's.
    if (all.length) setText(at, `Round ${all[place]}${map?.round === all[place] ? "" : " …"}`);
    plot.setBusy(map?.round !== all[place]);
    newest.setAttribute("aria-pressed", String(rounds.isFollowing));
    setText(play, playing ? "Stop" : "Play");
  }

  function scrubbed() {
    const place = Number(slider.value);
    stopPlaying();
    rounds.goTo(place);
  }

  function goToNewest() {
    stopPlaying();
    rounds.goTo(Infinity);
  }

  function togglePlay() {
    if (playing) {
      stopPlaying();
    } else {
      playing = setInterval(playOn, STEP_MS);
      rounds.isGoingOn = true;
      if (rounds.isFollowing) rounds.goTo(0);
    }
    showTime();
  }

  /** Go on to the next round, once this one is shown. */
  function playOn() {
    if (document.hidden || map === null || map.round !== rounds.all[rounds.place]) return;
    const place = rounds.place + 1;
    if (place >= rounds.all.length - 1) stopPlaying();
    rounds.goTo(place);
  }

  function stopPlaying() {
    clearInterval(playing);
    playing = undefined;
    rounds.isGoingOn = false;
  }

  function drawTable() {
    if (!map || !numbers.open || tabled === map) return;
    tabled = map;
    const { head, rows } = tableOf(map, names);
    const body = rows.map(([first, ...rest]) => [h("th", { scope: "row" }, first), rest.map((text) => h("td", null, text))]);
    table.replaceChildren(
      h("caption", { class: "visually-hidden" }, `Prototypes of round ${map.round} by class`),
      h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", null, body.map((cells) => h("tr", null, cells.flat()))),
    );
  }

  function close() {
    clearInterval(playing);
    rounds.close();
    plot.close();
  }

  return { element, update, close };
}
