// @ts-check
/**
 * The clients of the federation in short: how many are in which state, and those with problems.
 */

import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, count, counted } from "../lib/format.js";
import { badge } from "../lib/tones.js";
import { besideId, stateOf } from "./state.js";

/** Clients with problems that are named here; the page of clients shows all. */
const MOST = 5;

/** @typedef {Record<string, any>} Client */

/**
 * Order of clients: those with problems, then absent ones, then the others; by id.
 *
 * @param {Client} one
 * @param {Client} other
 */
export function byTrouble(one, other) {
  return rank(one) - rank(other) || (one.client_id < other.client_id ? -1 : 1);
}

/** @param {Client} client */
function rank(client) {
  if (client.problem?.is_fatal) return 0;
  if (client.problem) return 1;
  return client.is_connected ? 3 : 2;
}

/** The section, and what brings it up to date. */
export function clientSummary() {
  const connected = h("p", { class: "muted small" });
  const counts = h("ul", { class: "counts", "aria-label": "Clients by state" });
  const troubled = h("ul", { class: "troubled", "aria-label": "Clients with problems" });
  const none = h("p", { class: "muted" }, "No client has ever joined.");
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "client-summary" },
    h("div", { class: "card-head" }, h("h2", { id: "client-summary" }, h("a", { href: "#/clients" }, "Clients")), connected),
    none,
    counts,
    troubled,
  );

  return {
    element,
    /** @param {Client[]} clients */
    update(clients) {
      const here = clients.filter((client) => client.is_connected).length;
      setText(connected, clients.length ? `${count(here)} of ${counted(clients.length, "client")} connected` : "");
      setAttribute(none, "hidden", clients.length > 0);
      setAttribute(counts, "hidden", !clients.length);
      keyed(
        counts,
        groups(clients),
        ({ name }) => name,
        ({ name, tone }) => h("li", null, badge(name, tone)),
        (item, { name, size }) => setText(/** @type {Element} */ (item.firstElementChild), `${count(size)} ${name}`),
      );
      const bad = clients.filter((client) => client.problem || !client.is_connected).sort(byTrouble);
      setAttribute(troubled, "hidden", !bad.length);
      keyed(troubled, bad.slice(0, MOST), (client) => client.client_id, createTroubled, updateTroubled);
    },
  };
}

/** @param {Client[]} clients */
function groups(clients) {
  /** @type {Map<string, {name: string, tone: string, size: number}>} */
  const found = new Map();
  const withProblem = clients.filter((client) => client.problem).length;
  if (withProblem) found.set("problem", { name: "with a problem", tone: "bad", size: withProblem });
  for (const client of [...clients].sort(byTrouble)) {
    const { state: name, tone } = stateOf(client);
    const group = found.get(name) ?? { name, tone, size: 0 };
    group.size += 1;
    found.set(name, group);
  }
  return [...found.values()];
}

/** @param {Client} client */
function createTroubled(client) {
  return h("li", null, h("p", null, h("strong", null, client.client_id), " ", h("span", { class: "muted small" }), " ", h("span", { class: "muted small" })), h("p", null), h("p", { class: "muted small" }));
}

/**
 * @param {Element} item
 * @param {Client} client
 */
function updateTroubled(item, client) {
  const [head, detail, hint] = item.children;
  const seen = `seen ${ago(client.last_seen_at, Date.now())}`;
  setText(/** @type {Element} */ (head.children[1]), besideId(client));
  setText(/** @type {Element} */ (head.lastElementChild), client.is_connected ? "connected" : `not connected, ${seen}`);
  setText(detail, client.problem ? client.problem.detail || client.problem.reason : "");
  setAttribute(detail, "data-tone", "bad");
  setText(hint, client.problem?.hint ?? "");
  for (const line of [detail, hint]) setAttribute(line, "hidden", !line.textContent);
}
