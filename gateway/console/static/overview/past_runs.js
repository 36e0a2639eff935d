// @ts-check
/**
 * The table of earlier runs: what they came to, narrowed by a search that the address keeps, turned like pages.
 */

import { ApiError, get } from "../lib/api.js";
import { MAX_RUNS, compareLink } from "../lib/compare_link.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, count, counted, dateTime, duration, percent, sentence } from "../lib/format.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";
import { hasEnded } from "../lib/run_state.js";
import { orderHeadings } from "./order_headings.js";
import { KIND_NAMES, ORDERS, addressOf, isEverything, pathOf, searchOf } from "./search.js";

/**
 * @typedef {Record<string, any>} Run
 * @typedef {{runs: Run[], total: number, next_page_token: string | null, problem: string}} Answer
 */

/** Runs of a page. */
const PAGE_SIZE = 20;
/** Pause after a letter, so that a word is one search. */
const TYPING_MS = 250;
/** Columns of the table behind the boxes to tick, and the orders of the gateway that they stand for. */
const HEADINGS = [
  { name: "Run", rising: "name", falling: "-name" },
  { name: "Status", rising: "status", falling: "-status" },
  { name: "Method", rising: "method", falling: "-method" },
  { name: "Rounds", kind: "number", rising: "-rounds", falling: "rounds" },
  { name: "Mean", kind: "number", rising: "-mean", falling: "mean" },
  { name: "Worst", kind: "number", rising: "-worst", falling: "worst" },
  { name: "Took", kind: "number", rising: "-took", falling: "took" },
  { name: "Ended", rising: "-updated", falling: "updated" },
];

/**
 * @param {import("./search.js").Search} begin What to look for at first.
 * @param {() => void} onTurn Somebody wants other runs.
 */
export function pastRuns(begin, onTurn) {
  const body = h("tbody");
  // Takes the focus when a page is turned: the button that was pressed may be of no use then.
  const heading = h("h2", { id: "past-runs", tabindex: -1 }, "Earlier runs");
  const name = textField(begin.name);
  const tag = textField(begin.tag);
  const method = textField(begin.method);
  const choice = h("select", { on: { change: () => choose() } }, KIND_NAMES.map((kind) => h("option", null, kind)));
  const order = h("select", { on: { change: () => choose() } }, Object.entries(ORDERS).map(([value, words]) => h("option", { value }, words)));
  const clear = h("button", { class: "button button-small", type: "button", on: { click: () => show(searchOf("")) } }, "Clear");
  const first = h("button", { class: "button button-small", type: "button", disabled: true, on: { click: () => leaf("", 0) } }, "First page");
  const following = h("button", { class: "button button-small", type: "button", disabled: true, on: { click: () => leaf(next, page + 1) } }, "Next page");
  const pager = h("div", { class: "pager" }, first, following);
  const sorted = orderHeadings(HEADINGS, "newest", (wanted) => {
    order.value = wanted;
    choose();
  });
  sorted.element.prepend(h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Compare")));
  const table = h("table", { class: "stacking" }, h("thead", null, sorted.element), body);
  const compare = h("a", { class: "button button-small", href: compareLink([]) }, "Compare …");
  const said = h("p", { class: "muted small", role: "status" });
  /** @type {[string, HTMLElement][]} */
  const labels = [["Show", choice], ["Name or id", name], ["Tag", tag], ["Method", method], ["Sort by", order]];
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "past-runs", hidden: true },
    h("div", { class: "card-head" }, heading, said, compare),
    h("div", { class: "filters run-search", role: "search", "aria-label": "Earlier runs" }, labels.map(([label, field]) => h("label", null, label, field)), clear),
    table,
    pager,
  );
  /** Runs that are ticked, also on other pages. @type {Set<string>} */
  const ticked = new Set();
  let search = begin;
  let token = "";
  let next = "";
  let page = 0;
  /** Searches so far: an answer to an earlier one is not shown. */
  let turns = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  [choice.value, order.value] = [begin.show, begin.order];

  /** @param {string} value */
  function textField(value) {
    const field = h("input", { type: "search", maxlength: 100, autocomplete: "off", spellcheck: "false", on: { input: () => later() } });
    field.value = value;
    return field;
  }

  function later() {
    clearTimeout(typing);
    typing = setTimeout(choose, TYPING_MS);
  }

  function choose() {
    clearTimeout(typing);
    take(searchOf(String(new URLSearchParams({ show: choice.value, name: name.value, tag: tag.value, method: method.value, order: order.value }))));
  }

  /** @param {import("./search.js").Search} wanted */
  function show(wanted) {
    [name.value, tag.value, method.value, choice.value, order.value] = [wanted.name, wanted.tag, wanted.method, wanted.show, wanted.order];
    take(wanted);
    name.focus();
  }

  /** @param {import("./search.js").Search} wanted */
  function take(wanted) {
    search = wanted;
    [token, next, page] = ["", "", 0];
    turns += 1;
    setText(said, "Looking …");
    // Who comes back from a run finds the same runs again.
    history.replaceState(null, "", addressOf(search));
    onTurn();
  }

  /**
   * @param {string} to
   * @param {number} number
   */
  function leaf(to, number) {
    [token, page] = [to, number];
    turns += 1;
    heading.focus({ preventScroll: true });
    onTurn();
  }

  /** @param {Answer} answer */
  function draw(answer) {
    const { runs, total, next_page_token: after, problem } = answer;
    sorted.show(search.order);
    next = after ?? "";
    const isAll = isEverything(search);
    setAttribute(element, "hidden", isAll && !runs.length && !page && !next);
    setAttribute(table, "hidden", !runs.length);
    setAttribute(clear, "hidden", isAll);
    setAttribute(pager, "hidden", !page && !next);
    setAttribute(first, "disabled", !page);
    setAttribute(following, "disabled", !next);
    setText(said, problem || textOf(runs.length, total, page));
    keyed(body, runs, (run) => run.run_id, (run) => createRow(run, tickBox(run)), updateRow);
  }

  /** @param {Run} run */
  function tickBox(run) {
    const box = h("input", { type: "checkbox", "aria-label": `Compare ${run.name || run.run_id}`, disabled: run.is_deleted });
    box.checked = ticked.has(run.run_id);
    box.addEventListener("change", () => {
      if (box.checked && ticked.size === MAX_RUNS) box.checked = false;
      else if (box.checked) ticked.add(run.run_id);
      else ticked.delete(run.run_id);
      setAttribute(compare, "href", compareLink([...ticked]));
      setText(compare, ticked.size ? `Compare ${counted(ticked.size, "run")}${ticked.size === MAX_RUNS ? ", the most" : ""} …` : "Compare …");
    });
    return box;
  }

  return {
    element,
    /**
     * Read the runs that are to be shown.
     *
     * @param {AbortSignal} signal
     * @returns {Promise<{search: import("./search.js").Search, total: number, draw: () => void}>} `draw` does nothing once
     *   somebody wants others.
     */
    async read(signal) {
      const [asked, wanted] = [turns, search];
      const answer = await runsOf(pathOf(wanted, PAGE_SIZE, token), signal);
      return { search: wanted, total: answer.total, draw: () => asked === turns && draw(answer) };
    },
  };
}

/**
 * Runs of a path; a search that the gateway refuses has none, and says why.
 *
 * @param {string} path
 * @param {AbortSignal} signal
 */
async function runsOf(path, signal) {
  try {
    return { ...(await get(path, { signal })), problem: "" };
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 400) throw error;
    return { runs: [], total: 0, next_page_token: null, problem: sentence(error.message) };
  }
}

/**
 * @param {number} shown
 * @param {number} total
 * @param {number} page
 */
function textOf(shown, total, page) {
  if (!total) return "No run is like this.";
  if (total <= PAGE_SIZE && !page) return counted(total, "run");
  const begin = page * PAGE_SIZE;
  return `${count(begin + 1)} to ${count(begin + shown)} of ${count(total)}`;
}

/**
 * @param {Run} run
 * @param {HTMLElement} box
 */
function createRow(run, box) {
  const name = run.name || run.run_id;
  // A deleted run has no page any more.
  const link = run.is_deleted ? h("span", null, name) : h("a", { href: `#/runs/${run.run_id}` }, name);
  return h(
    "tr",
    null,
    h("td", { "data-label": "Compare" }, box),
    h("th", { scope: "row" }, link, h("div", { class: "muted small mono" }, run.run_id), h("ul", { class: "tags", "aria-label": "Tags" })),
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
 */
function updateRow(line, run) {
  const [, ...cells] = line.children;
  const tags = /** @type {Element} */ (cells[0].lastElementChild);
  keyed(tags, run.tags, (/** @type {string} */ tag) => tag, (/** @type {string} */ tag) => h("li", null, tag));
  setAttribute(tags, "hidden", !run.tags.length);
  const isOpen = !hasEnded(run);
  updateStatusBadge(/** @type {Element} */ (cells[1].firstElementChild), run.status);
  const texts = [
    `${Math.max(run.phase === "committed" ? run.round : run.round - 1, 0)} of ${run.total_rounds}`,
    (run.score === "balanced_accuracy" ? "balanced " : "") + percent(run.mean_accuracy),
    percent(run.worst_accuracy),
    isOpen ? "" : duration((Date.parse(run.updated_at) - Date.parse(run.created_at)) / 1000),
  ];
  texts.forEach((text, index) => setText(/** @type {Element} */ (cells[index + 3].firstElementChild), text));
  const ended = /** @type {HTMLTimeElement} */ (cells[7].firstElementChild);
  setAttribute(ended, "datetime", isOpen ? null : run.updated_at);
  setAttribute(ended, "title", isOpen ? null : dateTime(run.updated_at));
  setText(ended, isOpen ? "" : ago(run.updated_at, Date.now()));
}
