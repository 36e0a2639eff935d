// @ts-check
/**
 * Who took part: a row for each client and a mark for each round. The history is read when somebody opens it.
 */

import { ApiError, runPath } from "../lib/api.js";
import { h, setAttribute, setText, svg } from "../lib/dom.js";
import { count, sentence } from "../lib/format.js";
import { bandsOf, stageName } from "../lib/stages.js";
import { CLIENT_PX, gridOf, markOf } from "./grid.js";
import { KINDS, TYPES, changesOf, participation, roundInWords } from "./participation.js";

/** Most columns and rows of a drawing, and most marks. */
const MAX_COLUMNS = 1000;
const MAX_ROWS = 500;
const MAX_MARKS = 200_000;
/** Least and greatest width of a column. */
const PITCH_PX = [4, 16];
/** Clients that join by themselves whose first round is looked up. */
const MAX_LOOKUPS = 50;

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("./participation.js").Change} Change
 */

/** @type {import("../lib/run_state.js").MakeSection} */
export function section({ runId, api, range }) {
  const said = h("p", { class: "muted small", role: "status" });
  const note = h("p", { class: "muted small" });
  const corner = h("div", { class: "timeline-corner", "aria-hidden": "true" });
  const axis = h("div", { class: "timeline-axis" });
  const names = h("ul", { class: "timeline-names", "aria-hidden": "true" });
  const cursor = h("div", { class: "timeline-cursor", hidden: true });
  const drawing = h("div");
  const slider = h("div", {
    class: "timeline-slider",
    role: "slider",
    tabindex: 0,
    "aria-label": "Round to read in the timeline; up and down change the client",
    on: {
      keydown: (/** @type {KeyboardEvent} */ event) => onKey(event),
      pointermove: (/** @type {PointerEvent} */ event) => onPointer(event),
      pointerdown: (/** @type {PointerEvent} */ event) => onPointer(event),
      pointerleave: (/** @type {PointerEvent} */ event) => event.pointerType === "touch" || choose(null),
      blur: () => choose(null),
    },
  });
  const plot = h("div", { class: "timeline-plot" }, drawing, cursor, slider);
  const frame = h("div", { class: "timeline chart" }, corner, axis, names, plot);
  const at = h("p", { class: "timeline-at" });
  const legend = h("ul", { class: "timeline-legend" }, KINDS.map((kind, index) => h("li", null, markOf(index), kind)));
  const rows = h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Who took part, as a table" });
  const table = h("details", { class: "chart-table", on: { toggle: () => fillTable() } }, h("summary", null, "Table"), rows);
  const body = h("div", { class: "stack", hidden: true }, legend, frame, at, note, table);
  const element = h(
    "details",
    { class: "card disclosure", on: { toggle: () => opened() } },
    h("summary", null, h("h2", null, "Who took part"), h("span", { class: "muted small" }, "A row for each client, a mark for each round.")),
    said,
    body,
  );
  const gone = new AbortController();
  /** @type {readonly Document[]} */
  let lines = [];
  /** @type {readonly string[]} */
  let roster = [];
  /** @type {Change[]} */
  const changes = [];
  let known = 0;
  let isReading = false;
  /** @type {readonly Document[] | null} */
  let read = null;
  let shown = participation([], [], []);
  /** @type {import("../lib/stages.js").Band[]} */
  let bands = [];
  let pitch = PITCH_PX[0];
  /** The chosen place. @type {{row: number, column: number} | null} */
  let chosen = null;

  function opened() {
    if (element.open) void readOn();
  }

  /** Read what came to the history since, and draw. */
  async function readOn() {
    if (isReading) return;
    isReading = true;
    if (!read) setText(said, "Reading the history …");
    try {
      do {
        read = lines;
        await readChanges();
      } while (read !== lines);
      setText(said, "");
    } catch (error) {
      if (gone.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      setText(said, sentence(error.message));
    } finally {
      isReading = false;
    }
    if (!gone.signal.aborted) draw();
  }

  async function readChanges() {
    const options = { signal: gone.signal };
    const types = TYPES.map((type) => `type=${type}`).join("&");
    for (let isMore = true; isMore; ) {
      const page = await api.get(runPath(runId, `/events?${types}&after=${known}&page_size=1000`), options);
      let lookups = 0;
      for (const event of page.events) {
        const isOfNoRound = event.type === "clients_admitted" && (lookups += 1) <= MAX_LOOKUPS;
        const opening = isOfNoRound && (await api.get(runPath(runId, `/events?type=round_opened&after=${event.sequence}&page_size=1`), options));
        changes.push(...changesOf(event, opening ? opening.events[0]?.round : undefined));
        known = event.sequence;
      }
      isMore = page.next_page_token !== null;
    }
  }

  function draw() {
    const [begin, end] = range ? range.within(lines.map(({ round }) => round)) : [0, lines.length];
    const all = participation(lines.slice(begin, end), roster, changes);
    const numRows = Math.min(all.clients.length, MAX_ROWS);
    const numColumns = Math.min(all.rounds.length, MAX_COLUMNS, Math.floor(MAX_MARKS / Math.max(1, numRows)));
    shown = numColumns < all.rounds.length ? participation(lines.slice(end - numColumns, end), roster, changes) : all;
    if (numRows < shown.clients.length) {
      shown = { ...shown, clients: shown.clients.slice(0, numRows), kinds: shown.kinds.slice(0, numRows * numColumns) };
    }
    setAttribute(body, "hidden", numColumns === 0);
    if (numColumns === 0) return setText(said, lines.length ? `There is nothing in ${range?.text}.` : "There is something to see when round 1 has committed.");
    setText(said, "");
    const cuts = [
      numColumns < all.rounds.length ? `the last ${count(numColumns)} of ${count(all.rounds.length)} rounds` : "",
      numRows < all.clients.length ? `the first ${count(numRows)} of ${count(all.clients.length)} clients` : "",
    ];
    setText(note, cuts.some(Boolean) ? `Shown are ${cuts.filter(Boolean).join(" and ")}.` : "");
    note.hidden = !note.textContent;
    drawGrid();
    fillTable();
  }

  function drawGrid() {
    bands = bandsOf(lines);
    names.replaceChildren(...shown.clients.map((name) => h("li", { title: name }, name)));
    const room = frame.clientWidth - names.offsetWidth - 2;
    pitch = Math.max(PITCH_PX[0], Math.min(PITCH_PX[1], Math.floor(room / shown.rounds.length)));
    const { axis: above, titles, body: marks, width, height } = gridOf(shown, bands, pitch);
    const isAtEnd = frame.scrollLeft + frame.clientWidth >= frame.scrollWidth - 2;
    axis.replaceChildren(above);
    corner.replaceChildren(...titles.map((title) => h("span", null, title)), h("span", null, "round"));
    drawing.replaceChildren(
      svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": descriptionOf(shown) }, marks),
    );
    if (isAtEnd) frame.scrollLeft = frame.scrollWidth;
    readOut();
  }

  /** @param {{row: number, column: number} | null} place */
  function choose(place) {
    chosen = place;
    if (shown.rounds.length) readOut();
  }

  function readOut() {
    const last = shown.rounds.length - 1;
    const column = Math.min(chosen?.column ?? last, last);
    const row = Math.min(chosen?.row ?? 0, shown.clients.length - 1);
    const round = shown.rounds[column];
    const where = [`Round ${count(round)}`, stageName(bands, round)].filter(Boolean).join(", ");
    const who = `${shown.clients[row]} ${wordOf(shown.kinds[row * shown.rounds.length + column])}`;
    setText(at, [where, chosen ? who : "", roundInWords(shown, column)].filter(Boolean).join(" · "));
    setAttribute(slider, "aria-valuemin", shown.rounds[0]);
    setAttribute(slider, "aria-valuemax", shown.rounds[last]);
    setAttribute(slider, "aria-valuenow", round);
    setAttribute(slider, "aria-valuetext", `${where}: ${who}; ${roundInWords(shown, column)}`);
    cursor.hidden = chosen === null;
    for (const [side, value] of Object.entries({ left: column * pitch, top: row * CLIENT_PX, width: pitch - 1, height: CLIENT_PX })) {
      cursor.style.setProperty(side, `${value}px`);
    }
  }

  /** @param {PointerEvent} event */
  function onPointer(event) {
    const column = Math.floor(event.offsetX / pitch);
    const row = Math.floor(event.offsetY / CLIENT_PX);
    if (column >= 0 && column < shown.rounds.length && row >= 0 && row < shown.clients.length) choose({ row, column });
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    const [lastRow, lastColumn] = [shown.clients.length - 1, shown.rounds.length - 1];
    const { row, column } = chosen ?? { row: 0, column: lastColumn };
    const leap = Math.max(1, Math.round(shown.rounds.length / 10));
    /** @type {Record<string, [number, number] | null>} */
    const targets = {
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      PageDown: [row, column - leap],
      PageUp: [row, column + leap],
      Home: [row, 0],
      End: [row, lastColumn],
      Escape: null,
    };
    if (!(event.key in targets) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const target = targets[event.key];
    if (!target) return choose(null);
    choose({ row: Math.max(0, Math.min(lastRow, target[0])), column: Math.max(0, Math.min(lastColumn, target[1])) });
    cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function fillTable() {
    if (table.open) rows.replaceChildren(tableOf(shown));
  }

  const resized = new ResizeObserver(() => element.open && shown.rounds.length && drawGrid());
  resized.observe(frame);
  const redraw = () => element.open && read && draw();
  range?.addEventListener("change", redraw);

  return {
    element,
    update(/** @type {RunState} */ state) {
      roster = state.run?.roster ?? [];
      const isNew = state.rounds !== lines;
      lines = state.rounds;
      if (isNew && element.open) void readOn();
    },
    close() {
      gone.abort();
      resized.disconnect();
      range?.removeEventListener("change", redraw);
    },
  };
}

/** @param {number} kind */
function wordOf(kind) {
  return `${kind === KINDS.indexOf("without data") || kind === KINDS.indexOf("trained") ? "" : "was "}${KINDS[kind]}`;
}

/** @param {import("./participation.js").Participation} found */
function descriptionOf({ clients, rounds }) {
  return `Who took part: ${count(clients.length)} clients, rounds ${count(rounds[0])} to ${count(rounds[rounds.length - 1])}; the table below has the counts`;
}

/**
 * Number of rounds of each kind by client.
 *
 * @param {import("./participation.js").Participation} found
 */
function tableOf({ clients, rounds, kinds }) {
  const counts = clients.map((_, row) => {
    const own = KINDS.map(() => 0);
    for (const kind of kinds.subarray(row * rounds.length, (row + 1) * rounds.length)) own[kind] += 1;
    return own;
  });
  return h(
    "table",
    null,
    h("caption", { class: "small muted" }, `Number of rounds, of rounds ${count(rounds[0])} to ${count(rounds[rounds.length - 1])}`),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Client"), KINDS.map((kind) => h("th", { scope: "col", class: "number" }, kind)))),
    h("tbody", null, clients.map((name, row) => h("tr", null, h("th", { scope: "row" }, name), counts[row].map((value) => h("td", { class: "number" }, count(value)))))),
  );
}
