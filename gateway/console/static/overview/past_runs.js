// @ts-check
/**
 * The table of earlier runs: what they came to, narrowed to those of one kind, turned like pages.
 */

import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, dateTime, duration, percent } from "../lib/format.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";
import { hasEnded } from "../lib/run_state.js";
import { EveryRun, RunSearch } from "./run_pages.js";

/** @typedef {Record<string, any>} Run */

const ALL = "all";
/** Kinds of runs that can be looked for. @type {Record<string, (run: Run) => boolean>} */
const KINDS = {
  open: (run) => !hasEnded(run),
  completed: (run) => run.status === "completed",
  stopped: (run) => run.status === "stopped",
  failed: (run) => run.status === "failed",
};
const HEADINGS = [["Run"], ["Status"], ["Method"], ["Rounds", "number"], ["Mean", "number"], ["Worst", "number"], ["Took", "number"], ["Ended"]];

/**
 * @param {string | undefined} kind What to begin with; all if there is no such kind.
 * @param {() => void} onTurn Somebody wants other runs.
 */
export function pastRuns(kind, onTurn) {
  const body = h("tbody");
  // Takes the focus when a page is turned: the button that was pressed may be of no use then.
  const heading = h("h2", { id: "past-runs", tabindex: -1 }, "Earlier runs");
  const choice = h("select", { on: { change: () => choose() } }, [ALL, ...Object.keys(KINDS)].map((name) => h("option", null, name)));
  if (kind && Object.hasOwn(KINDS, kind)) choice.value = kind;
  const newest = h("button", { class: "button button-small", type: "button", disabled: true, on: { click: () => leaf(() => pages.first()) } }, "Newest");
  const older = h("button", { class: "button button-small", type: "button", disabled: true, on: { click: () => leaf(() => pages.older()) } }, "Older");
  const pager = h("div", { class: "pager" }, newest, older);
  const table = h("table", { class: "stacking" }, h("thead", null, h("tr", null, HEADINGS.map(([name, of]) => h("th", { scope: "col", class: of }, name)))), body);
  const said = h("p", { class: "muted small", role: "status" });
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "past-runs", hidden: true },
    h("div", { class: "card-head" }, heading, said, h("div", { class: "filters" }, h("label", null, "Show", choice))),
    table,
    pager,
  );
  let pages = pagesOf(choice.value);

  function choose() {
    pages.close();
    pages = pagesOf(choice.value);
    setText(said, "Looking …");
    // Who comes back from a run finds the same runs again.
    history.replaceState(null, "", choice.value === ALL ? "#/" : `#/?show=${choice.value}`);
    onTurn();
  }

  /** @param {() => void} turn */
  function leaf(turn) {
    turn();
    heading.focus({ preventScroll: true });
    onTurn();
  }

  /**
   * @param {import("./run_pages.js").Page} page
   * @param {import("./results.js").Results} results
   */
  function draw({ runs, isTurned, hasOlder, text }, results) {
    const isAll = choice.value === ALL;
    setAttribute(element, "hidden", isAll && !runs.length && !isTurned && !hasOlder);
    setAttribute(table, "hidden", !runs.length);
    setAttribute(pager, "hidden", !isTurned && !hasOlder);
    setAttribute(newest, "disabled", !isTurned);
    setAttribute(older, "disabled", !hasOlder);
    setText(said, runs.length || isAll ? text : "No run is like this.");
    keyed(body, runs, (run) => run.run_id, createRow, (line, run) => updateRow(line, run, results.of(run)));
  }

  return {
    element,
    /**
     * Read the runs that are to be shown.
     *
     * @param {import("./run_pages.js").Answer} answer The newest runs.
     * @param {AbortSignal} signal
     * @returns {Promise<{runs: Run[], draw: (results: import("./results.js").Results) => void}>} `draw` does nothing once
     *   somebody wants others.
     */
    async read(answer, signal) {
      const asked = pages;
      const page = await asked.read(answer, signal);
      return { runs: page.runs, draw: (results) => asked === pages && draw(page, results) };
    },
  };
}

/**
 * @param {string} kind
 * @returns {import("./run_pages.js").Pages}
 */
function pagesOf(kind) {
  return kind === ALL ? new EveryRun() : new RunSearch(KINDS[kind]);
}

/** @param {Run} run */
function createRow(run) {
  const link = h("a", { href: `#/runs/${run.run_id}` }, run.name || run.run_id);
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, link, h("div", { class: "muted small mono" }, run.run_id)),
    h("td", { "data-label": "Status" }, statusBadge(run.status)),
    h("td", { "data-label": "Method" }, run.method),
    h("td", { "data-label": "Rounds", class: "number" }, h("span")),
    h("td", { "data-label": "Mean", class: "number" }, h("span")),
    h("td", { "data-label": "Worst", class: "number" }, h("span")),
    h("td", { "data-label": "Took", class: "number" }, h("span")),
    h("td", { "data-label": "Ended" }, h("time")),
  );
}

/**
 * @param {Element} line
 * @param {Run} run
 * @param {Run | null} metrics
 */
function updateRow(line, run, metrics) {
  const cells = line.children;
  const accuracy = metrics?.accuracy ?? {};
  const isOpen = !hasEnded(run);
  updateStatusBadge(/** @type {Element} */ (cells[1].firstElementChild), run.status);
  const texts = [
    `${Math.max(run.phase === "committed" ? run.round : run.round - 1, 0)} of ${run.total_rounds}`,
    percent(accuracy.mean),
    percent(accuracy.worst),
    isOpen ? "" : duration((Date.parse(run.updated_at) - Date.parse(run.created_at)) / 1000),
  ];
  texts.forEach((text, index) => setText(/** @type {Element} */ (cells[index + 3].firstElementChild), text));
  const ended = /** @type {HTMLTimeElement} */ (cells[7].firstElementChild);
  setAttribute(ended, "datetime", isOpen ? null : run.updated_at);
  setAttribute(ended, "title", isOpen ? null : dateTime(run.updated_at));
  setText(ended, isOpen ? "" : ago(run.updated_at, Date.now()));
}
