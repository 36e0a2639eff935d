// @ts-check
/**
 * The clients of a run: their activities in the open round, their problems, and quarantine.
 */

import { askQuarantine, askRelease } from "./controls.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, count, counted, listed, percent } from "../lib/format.js";
import { allowed } from "../lib/run_state.js";
import { sortedBy } from "../lib/sorting.js";
import { byTrouble, rowsOf } from "./client_rows.js";

/** Rows that are shown until somebody asks for all. */
const FIRST_ROWS = 50;
/** Columns of the table. */
const HEADINGS = /** @type {import("../lib/sorting.js").Heading<import("./client_rows.js").ClientRow>[]} */ ([
  { name: "Client", by: (row) => row.clientId },
  { name: "Domain", by: (row) => row.domain },
  { name: "State", by: (row) => row.state },
  { name: "Samples", kind: "number", by: (row) => row.numExamples },
  { name: "Last error" },
]);

/** @type {import("../lib/run_state.js").MakeSection} */
export function section(context) {
  const body = h("tbody");
  const summary = h("p", { class: "muted small" });
  const worth = h("p", { class: "muted small" });
  const more = h("button", { class: "button", type: "button", hidden: true, on: { click: () => showAll() } });
  const order = sortedBy(HEADINGS, byTrouble, () => last && update(last));
  order.element.append(h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Steering")));
  const table = h("table", { class: "stacking", role: "table", tabindex: -1 }, h("thead", null, order.element), body);
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "run-clients" },
    h("div", { class: "card-head" }, h("h2", { id: "run-clients" }, "Clients"), h("div", { class: "filters" }, order.choice), summary),
    worth,
    table,
    more,
  );
  let most = FIRST_ROWS;
  /** @type {import("../lib/run_state.js").RunState | null} */
  let last = null;

  function showAll() {
    most = Infinity;
    if (last) update(last);
    // The button is gone.
    table.focus({ preventScroll: true });
  }

  /** @param {import("../lib/run_state.js").RunState} state */
  function update(state) {
    last = state;
    if (!state.run) return;
    const rows = rowsOf(state).sort(order.compare);
    setText(summary, state.areClientsKnown ? summaryOf(rows) : "");
    setText(worth, joiningOf(state));
    setAttribute(more, "hidden", rows.length <= most);
    setText(more, `Show all ${count(rows.length)} clients`);
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    keyed(body, rows.slice(0, most), (row) => row.clientId, createRow, (line, row) => updateRow(line, row, state));
    // The buttons disappear when the run ends.
    if (focused?.hasAttribute("hidden")) table.focus({ preventScroll: true });
  }

  /** @param {import("./client_rows.js").ClientRow} row */
  function createRow(row) {
    const steer = h("button", { class: "button button-small", type: "button" });
    steer.addEventListener("click", () => {
      const { reason } = steer.dataset;
      void (reason === undefined ? askQuarantine(context, row.clientId) : askRelease(context, row.clientId, reason));
    });
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, row.clientId, h("div", { class: "muted small", dir: "auto" })),
      h("td", { "data-label": "Domain" }),
      h("td", { "data-label": "State", class: "state-cell" }, h("span", { class: "badge" }), h("progress", { max: 1, "aria-label": "Progress" }), h("span", { class: "stat-note" })),
      h("td", { "data-label": "Samples", class: "number" }),
      h("td", { "data-label": "Last error", class: "problem" }, h("p", { class: "error" }), h("p", { class: "muted small" })),
      h("td", { class: "steer-cell" }, steer),
    );
  }

  return { element, update };
}

/**
 * @param {Element} line
 * @param {import("./client_rows.js").ClientRow} row
 * @param {import("../lib/run_state.js").RunState} state
 */
function updateRow(line, row, state) {
  const [name, domain, stateCell, samples, problem, steerCell] = line.children;
  const [badge, bar, seen] = stateCell.children;
  const [error, hint] = problem.children;
  const steer = /** @type {Element} */ (steerCell.firstElementChild);
  setText(/** @type {Element} */ (name.lastElementChild), row.displayName);
  setText(domain, row.domain);
  setText(badge, row.state);
  setAttribute(badge, "data-tone", row.tone);
  setAttribute(bar, "hidden", row.progress === null);
  if (row.progress !== null) {
    setAttribute(bar, "value", row.progress);
    setAttribute(bar, "aria-label", `${row.state} ${percent(row.progress)}`);
  }
  setText(seen, row.isConnected ? "" : row.lastSeenAt ? `seen ${ago(row.lastSeenAt, Date.now())}` : "");
  setText(samples, count(row.numExamples));
  setText(error, row.error);
  setText(hint, row.hint);
  setAttribute(problem, "data-empty", !row.error);
  const maySteer = allowed(state.run).steer;
  const wish = row.isQuarantined ? "Release …" : "Quarantine …";
  setText(steer, wish);
  setAttribute(steer, "aria-label", `${wish} ${row.clientId}`);
  setAttribute(steer, "data-reason", row.isQuarantined ? row.error : null);
  setAttribute(steer, "hidden", !maySteer);
  setAttribute(steerCell, "data-empty", !maySteer);
}

/**
 * What joining is worth to each client, in points of accuracy of its own model over its images alone; empty where nobody says.
 *
 * @param {import("../lib/run_state.js").RunState} state
 */
function joiningOf(state) {
  const latest = state.rounds.findLast((each) => Object.keys(each.joining ?? {}).length > 0);
  if (!latest) return "";
  const gains = Object.entries(latest.joining).sort().map(([clientId, gain]) => `${clientId} ${gain < 0 ? "" : "+"}${(100 * gain).toFixed(1)}`);
  return `Joining is worth, in points: ${listed(gains, FIRST_ROWS)}`;
}

/** @param {import("./client_rows.js").ClientRow[]} rows */
function summaryOf(rows) {
  const connected = rows.filter((row) => row.isConnected).length;
  const bad = rows.filter((row) => row.error).length;
  return `${connected} of ${counted(rows.length, "client")} connected${bad ? `, ${count(bad)} with a problem` : ""}`;
}
