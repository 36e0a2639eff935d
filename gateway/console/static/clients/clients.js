// @ts-check
/**
 * Every client of the federation: what it does, on what, when it was last heard of, and what is wrong with whom.
 */

import { allClients, newKey, remove } from "../lib/api.js";
import { siteSteps } from "../lib/commands.js";
import { ask } from "../lib/dialog.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, count, counted, dateTime, percent, reading } from "../lib/format.js";
import { repeat } from "../lib/shell.js";
import { sortedBy } from "../lib/sorting.js";
import { staleNotice } from "../lib/stale_notice.js";
import { siteLogs } from "./logs.js";
import { besideId, isFound, isWorking, stateOf } from "./state.js";
import { byTrouble } from "./summary.js";

/** Pause between two reads of the clients. */
const INTERVAL_MS = 2000;
/** Clients of a page. */
const PAGE_SIZE = 50;
/** With more clients than these the table leaves machines and readings out, unless somebody looks for one. */
const FEW = 12;

/** @typedef {Record<string, any>} Client */

/** Columns of the table. Those that are connected were all seen now, and go before the others. */
const HEADINGS = /** @type {import("../lib/sorting.js").Heading<Client>[]} */ ([
  { name: "Client", by: (client) => client.client_id },
  { name: "State", by: (client) => stateOf(client).state },
  { name: "Problem" },
  { name: "Samples", kind: "number", by: (client) => client.num_examples },
  { name: "Machine", by: (client) => client.environment.device },
  { name: "Readings" },
  { name: "Last seen", by: (client) => (client.is_connected ? 0 : client.last_seen_at && Date.now() - Date.parse(client.last_seen_at)) },
]);

/** @param {HTMLElement} root */
export function show(root) {
  const notice = staleNotice();
  const search = h("input", { type: "search", placeholder: "Client or domain", on: { input: () => turn(0) } });
  const choice = h(
    "select",
    { on: { change: () => turn(0) } },
    ["everyone", "with a problem", "connected", "working", "not connected"].map((name) => h("option", null, name)),
  );
  const summary = h("p", { class: "muted small", role: "status" });
  const body = h("tbody");
  const newer = h("button", { class: "button button-small", type: "button", on: { click: () => leaf(page - 1) } }, "Before");
  const older = h("button", { class: "button button-small", type: "button", on: { click: () => leaf(page + 1) } }, "After");
  const where = h("p", { class: "muted small" });
  const pager = h("div", { class: "pager", hidden: true }, newer, older, where);
  const order = sortedBy(HEADINGS, byTrouble, () => turn(0));
  const table = h(
    "table",
    { class: "stacking", tabindex: -1 },
    h("thead", null, order.element),
    body,
  );
  const none = h("p", { class: "muted", hidden: true }, "No client is like this.");
  const nobody = h("div", { hidden: true }, h("p", { class: "muted" }, "No client has ever joined. One comes in like this:"), siteSteps());
  const logs = siteLogs();
  const card = h(
    "section",
    { class: "card", "aria-label": "Clients", hidden: true },
    h("div", { class: "card-head" }, h("div", { class: "filters" }, h("label", null, "Find", search), h("label", null, "Show", choice), order.choice), summary),
    table,
    none,
    nobody,
    pager,
  );
  root.append(h("div", { class: "page-head" }, h("h1", null, "Clients"), h("a", { href: "#/messages" }, "Messages to people")), notice.element, card, logs.element);

  /** @type {Client[]} */
  let clients = [];
  let page = 0;

  /** @param {number} to */
  function turn(to) {
    page = to;
    draw();
  }

  /** Turn to a page for who pressed a button below it: the button may be of no use there. @param {number} to */
  function leaf(to) {
    turn(to);
    table.focus({ preventScroll: true });
    card.scrollIntoView({ block: "start" });
  }

  function draw() {
    const found = clients.filter((client) => isWanted(client, choice.value, search.value)).sort(order.compare);
    const pages = Math.max(Math.ceil(found.length / PAGE_SIZE), 1);
    page = Math.min(page, pages - 1);
    const begin = page * PAGE_SIZE;
    keyed(body, found.slice(begin, begin + PAGE_SIZE), (client) => client.client_id, createRow, updateRow);
    const here = clients.filter((client) => client.is_connected).length;
    setAttribute(table, "data-brief", found.length > FEW ? "true" : null);
    setText(summary, `${count(here)} of ${counted(clients.length, "client")} connected`);
    setAttribute(table, "hidden", !found.length);
    setAttribute(none, "hidden", found.length > 0 || !clients.length);
    setAttribute(nobody, "hidden", clients.length > 0);
    setAttribute(pager, "hidden", pages === 1);
    setAttribute(newer, "disabled", page === 0);
    setAttribute(older, "disabled", page === pages - 1);
    setText(where, `${count(begin + 1)} to ${count(Math.min(begin + PAGE_SIZE, found.length))} of ${count(found.length)}`);
  }

  const read = async (/** @type {AbortSignal} */ signal) => {
    clients = await allClients({ signal });
    setAttribute(card, "hidden", false);
    logs.update(clients);
    draw();
  };
  const { stop } = repeat((signal) => notice.during(() => read(signal)), INTERVAL_MS);
  return () => {
    stop();
    logs.end();
  };
}

/**
 * @param {Client} client
 * @param {string} choice
 * @param {string} text
 */
function isWanted(client, choice, text) {
  if (!isFound(client, client.client_id, text)) return false;
  switch (choice) {
    case "with a problem":
      return client.problem !== null;
    case "connected":
      return client.is_connected;
    case "working":
      return isWorking(client);
    case "not connected":
      return !client.is_connected;
    default:
      return true;
  }
}

/** @param {string} clientId */
function askForget(clientId) {
  const key = newKey();
  return ask({
    title: `Forget client ${clientId}?`,
    text: "It leaves the list; the runs that it took part in stay as they are. If it joins again, it is new. A client of an open run cannot be forgotten.",
    confirm: "Forget",
    kind: "danger",
    act: async () => {
      await remove(`/v1/clients/${encodeURIComponent(clientId)}`, { key });
    },
  });
}

/** @param {Client} client */
function createRow(client) {
  const forget = h("button", { class: "button button-small", type: "button", "aria-label": `Forget ${client.client_id}`, on: { click: () => void askForget(client.client_id) } }, "Forget …");
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, client.client_id, h("div", { class: "muted small" })),
    h("td", { "data-label": "State", class: "state-cell" }, h("span", { class: "badge" }), h("progress", { max: 1 }), h("p", { class: "small" }, h("a"))),
    h("td", { "data-label": "Problem", class: "problem" }, h("p", { class: "error" }), h("p", { class: "muted small" })),
    h("td", { "data-label": "Samples", class: "number" }, h("span")),
    h("td", { "data-label": "Machine", class: "machine-cell" }, h("p"), h("p", { class: "small" }), h("details", { class: "small" }, h("summary", null, "Packages"), h("dl", { class: "readings" }))),
    h("td", { "data-label": "Readings", class: "readings-cell" }, h("dl", { class: "readings" })),
    h("td", { "data-label": "Last seen" }, h("div", { class: "seen" }, h("time"), forget)),
  );
}

/**
 * @param {Element} line
 * @param {Client} client
 */
function updateRow(line, client) {
  const [name, state, problem, samples, machine, readings, seen] = line.children;
  setText(/** @type {Element} */ (name.lastElementChild), besideId(client));
  updateState(state, client);
  const [error, hint] = problem.children;
  setText(error, client.problem ? client.problem.detail || client.problem.reason : "");
  setText(hint, client.problem?.hint ?? "");
  setAttribute(problem, "data-empty", !client.problem);
  setText(/** @type {Element} */ (samples.firstElementChild), client.num_examples ? count(client.num_examples) : "evaluates only");
  const [device, model, packages] = machine.children;
  const { environment } = client;
  setText(device, [...new Set([environment.device, environment.cpu, environment.platform])].filter(Boolean).join(", "));
  setText(model, client.model_kind ? `its own model: ${client.model_kind}` : "");
  setAttribute(model, "hidden", !client.model_kind);
  const versions = Object.entries(environment.packages).sort();
  setAttribute(packages, "hidden", !versions.length);
  fill(/** @type {Element} */ (packages.lastElementChild), versions);
  /** @type {[string, number][]} */
  const held = client.held_bytes ? [["uploads_bytes", client.held_bytes]] : [];
  const values = [...held, ...Object.entries(client.readings).sort()].map(([key, value]) => reading(key, value));
  setAttribute(readings, "data-empty", !values.length);
  fill(/** @type {Element} */ (readings.firstElementChild), values);
  const time = /** @type {Element} */ (seen.firstElementChild?.firstElementChild);
  setText(time, client.is_connected ? "now" : ago(client.last_seen_at, Date.now()));
  setAttribute(time, "title", dateTime(client.last_seen_at));
}

/**
 * @param {Element} cell
 * @param {Client} client
 */
function updateState(cell, client) {
  const [badge, bar, work] = cell.children;
  const { state, tone } = stateOf(client);
  const works = isWorking(client);
  setText(badge, state);
  setAttribute(badge, "data-tone", tone);
  setAttribute(bar, "hidden", !works);
  setAttribute(bar, "value", client.progress);
  setAttribute(bar, "aria-label", `${state} ${percent(client.progress)}`);
  const link = /** @type {Element} */ (work.firstElementChild);
  setAttribute(work, "hidden", !works || !client.run_id);
  setAttribute(link, "href", client.run_id ? `#/runs/${client.run_id}` : null);
  const text = client.run_id ? `round ${client.round} of ${client.run_id}` : "";
  setText(link, text);
  setAttribute(link, "title", text || null);
}

/**
 * @param {Element} list
 * @param {[string, string][]} entries
 */
function fill(list, entries) {
  keyed(list, entries, ([name]) => name, ([name]) => h("div", null, h("dt", null, name), h("dd")), (entry, [, value]) =>
    setText(/** @type {Element} */ (entry.lastElementChild), value),
  );
}
