// @ts-check
/**
 * The history of a run in pages, newest events first. The first page is live; older pages do not change.
 *
 * The browser holds one page of events at a time; the gateway finds older and filtered ones.
 */

import { ApiError, runPath } from "../lib/api.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { count, counted, dateTime, sentence, timeOfDay } from "../lib/format.js";
import { foldingCard } from "../lib/folding.js";
import { MAX_EVENTS, hasEnded } from "../lib/run_state.js";
import { KINDS, sentenceOf, weightOf } from "../lib/sentences.js";

/**
 * @typedef {import("../lib/run_state.js").RunEvent} RunEvent
 * @typedef {import("../lib/run_state.js").RunState} RunState
 */

/** Filters of the list, in the order of the choice. */
const CHOICES = /** @type {[keyof typeof KINDS, string][]} */ ([
  ["problems", "Problems"],
  ["rounds", "Rounds"],
  ["clients", "Clients"],
  ["run", "The run itself"],
]);

/** Rows of a page; a phone shows fewer. */
const PAGE_SIZE = window.matchMedia("(max-width: 40rem)").matches ? 20 : MAX_EVENTS;

/** A mark for each weight, so that colour never stands alone. @type {Record<string, string>} */
const MARKS = { bad: "✕", warning: "!", good: "✓", plain: "·" };
/** @type {Record<string, string>} */
const WORDS = { bad: "Error: ", warning: "Warning: ", good: "", plain: "" };

/** @type {import("../lib/run_state.js").MakeSection} */
export function section({ runId, api }) {
  const kind = h("select", { on: { change: () => choose() } }, h("option", { value: "" }, "Everything"));
  for (const [value, name] of CHOICES) kind.append(h("option", { value }, name));
  const client = h("select", { on: { change: () => choose() } }, h("option", { value: "" }, "All clients"));
  const list = h("ol", { class: "events", "aria-label": "Events, newest first", tabindex: 0 });
  const note = h("p", { class: "muted small", role: "status" });
  const newest = pagerButton("Newest", () => leaf([]));
  const newer = pagerButton("Newer", () => leaf(cursors.slice(0, -1)));
  const older = pagerButton("Older", () => leaf([...cursors, nextBefore()]));
  const { element, fold } = foldingCard(
    { id: "run-events", title: "Events", hint: "What happened, newest first." },
    h("div", { class: "filters" }, h("label", null, "Show", kind), h("label", null, "Client", client)),
    list,
    h("div", { class: "pager" }, newest, newer, older, note),
  );

  /** Upper bound of the events of each page after the first. @type {number[]} */
  let cursors = [];
  /** The gateway's events for this page, newest first; null while the first page shows the events of the state. */
  let found = /** @type {RunEvent[] | null} */ (null);
  let foundBefore = /** @type {number | null} */ (null);
  /** Up to which sequence a filtered first page is complete. */
  let known = 0;
  let isAsking = false;
  let failure = "";
  let asking = new AbortController();
  let state = /** @type {RunState | null} */ (null);
  let drawn = /** @type {unknown} */ (null);

  const isFiltered = () => Boolean(kind.value || client.value);
  const isFirst = () => cursors.length === 0;

  /** @param {RunEvent} event */
  function matches(event) {
    const types = kind.value ? KINDS[/** @type {keyof typeof KINDS} */ (kind.value)] : null;
    return (!types || types.includes(event.type)) && (!client.value || event.client_id === client.value);
  }

  function nextBefore() {
    return found ? (foundBefore ?? 0) : (state?.events.slice(0, PAGE_SIZE).at(-1)?.sequence ?? 0);
  }

  function choose() {
    void turnTo([]);
  }

  /** Turn to a page for who pressed a button below it: the button may be of no use there. @param {number[]} to */
  async function leaf(to) {
    await turnTo(to);
    list.focus({ preventScroll: true });
    element.scrollIntoView({ block: "start" });
  }

  /** @param {number[]} to */
  async function turnTo(to) {
    asking.abort();
    isAsking = false;
    cursors = to;
    failure = "";
    if (isFirst() && !isFiltered()) {
      found = null;
      setAttribute(list, "aria-busy", null);
      return draw();
    }
    asking = new AbortController();
    const { signal } = asking;
    const query = new URLSearchParams({ order: "newest_first", page_size: String(PAGE_SIZE) });
    const before = to.at(-1);
    if (before) query.set("before", String(before));
    for (const type of kind.value ? KINDS[/** @type {keyof typeof KINDS} */ (kind.value)] : []) query.append("type", type);
    if (client.value) query.set("client", client.value);
    setAttribute(list, "aria-busy", "true");
    known = state?.lastSequence ?? 0;
    isAsking = true;
    try {
      const page = await api.get(runPath(runId, `/events?${query}`), { signal });
      found = page.events;
      foundBefore = page.next_page_token && page.events.at(-1).sequence;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      found = [];
      foundBefore = null;
      failure = sentence(error.message);
    }
    isAsking = false;
    setAttribute(list, "aria-busy", null);
    withNews();
    draw();
  }

  /** Add to a filtered first page what came since and matches; ask again if more came than is kept. */
  function withNews() {
    if (!state || !found || !isFirst() || isAsking || !state.events.length) return;
    const oldest = state.events[state.events.length - 1].sequence;
    if (state.events.length === MAX_EVENTS && oldest > known) return void turnTo([]);
    const last = Math.max(found[0]?.sequence ?? 0, known);
    const news = state.events.filter((event) => event.sequence > last && matches(event));
    known = state.lastSequence;
    if (!news.length) return;
    const all = [...news, ...found];
    found = all.slice(0, PAGE_SIZE);
    if (all.length > PAGE_SIZE) foundBefore = found[PAGE_SIZE - 1].sequence;
  }

  function draw() {
    const rows = found ?? state?.events.slice(0, PAGE_SIZE) ?? [];
    const hasOlder = found ? foundBefore !== null : rows.length > 0 && rows[rows.length - 1].type !== "run_created";
    drawn = found ?? state?.events;
    keyed(list, rows, (event) => event.sequence, row);
    setAttribute(newest, "disabled", isFirst());
    setAttribute(newer, "disabled", isFirst());
    setAttribute(older, "disabled", !hasOlder);
    setText(note, failure || remark(rows));
  }

  /** @param {readonly RunEvent[]} rows */
  function remark(rows) {
    if (!rows.length) return isFiltered() ? "Nothing like this has happened." : "Nothing has happened yet.";
    if (isFirst()) return rows.length === 1 ? "1 event" : `The newest ${count(rows.length)} events`;
    return `${counted(rows.length, "event")} before ${timeOfDay(rows[0].time)}`;
  }

  return {
    element,
    update(next) {
      // While a run goes on, people watch what happens.
      if (state === null) fold.open = !hasEnded(next.run);
      const isNew = next.events !== state?.events;
      state = next;
      if (next.run) fillClients(client, next.run.roster);
      if (!isNew || !isFirst()) return;
      withNews();
      if ((found ?? next.events) !== drawn) draw();
    },
    close() {
      asking.abort();
    },
  };
}

/**
 * @param {HTMLSelectElement} select
 * @param {readonly string[]} names
 */
function fillClients(select, names) {
  if (select.options.length === names.length + 1) return;
  const { value } = select;
  select.replaceChildren(select.options[0], ...names.map((name) => h("option", { value: name }, name)));
  select.value = value;
}

/**
 * @param {string} name
 * @param {() => void} turn
 */
function pagerButton(name, turn) {
  return h("button", { class: "button button-small", type: "button", disabled: true, on: { click: turn } }, name);
}

/** @param {RunEvent} event */
function row(event) {
  const weight = weightOf(event);
  const isToday = new Date(event.time).toDateString() === new Date().toDateString();
  return h(
    "li",
    { class: "event", "data-tone": weight },
    h("time", { datetime: event.time, title: dateTime(event.time) }, isToday ? timeOfDay(event.time) : dateTime(event.time)),
    h("span", { class: "event-mark", "aria-hidden": "true" }, MARKS[weight]),
    h("span", { class: "event-text" }, h("span", { class: "visually-hidden" }, WORDS[weight]), sentenceOf(event)),
  );
}
