// @ts-check
/**
 * What is looked for among runs, as the address of the overview has it and as the gateway is asked for it. Pure.
 */

/** Statuses of runs that have not ended. */
export const OPEN = ["pending", "running", "paused"];
const ENDED = ["completed", "stopped", "failed"];
/** Longest text of the address; the gateway has its own bounds. */
const MAX_TEXT = 128;

/** Kinds of runs, and what the gateway is asked for. @type {Record<string, {status: string[], show?: string}>} */
const KINDS = {
  all: { status: ENDED },
  open: { status: OPEN },
  completed: { status: ["completed"] },
  stopped: { status: ["stopped"] },
  failed: { status: ["failed"] },
  archived: { status: [], show: "archived" },
  deleted: { status: [], show: "deleted" },
};
export const KIND_NAMES = Object.keys(KINDS);
/** Orders of the gateway, by their words; a hyphen turns one round. @type {Record<string, string>} */
export const ORDERS = {
  newest: "newest first",
  oldest: "oldest first",
  updated: "last changed first",
  "-updated": "last changed last",
  name: "name",
  "-name": "name, backwards",
  status: "status",
  "-status": "status, backwards",
  method: "method",
  "-method": "method, backwards",
  rounds: "most rounds first",
  "-rounds": "fewest rounds first",
  mean: "best mean first",
  "-mean": "least mean first",
  worst: "best worst domain first",
  "-worst": "least worst domain first",
  took: "longest first",
  "-took": "shortest first",
};

/** @typedef {{show: string, name: string, tag: string, method: string, order: string}} Search */

/**
 * The search of an address; what is not known is left out.
 *
 * @param {string | undefined} query Such as "show=open&name=digits".
 * @returns {Search}
 */
export function searchOf(query) {
  const found = new URLSearchParams(query ?? "");
  const text = (/** @type {string} */ key) => (found.get(key) ?? "").trim().slice(0, MAX_TEXT);
  const show = text("show");
  const order = text("order");
  return {
    show: Object.hasOwn(KINDS, show) ? show : "all",
    name: text("name"),
    tag: text("tag"),
    method: text("method"),
    order: Object.hasOwn(ORDERS, order) ? order : "newest",
  };
}

/**
 * The overview's address with a search.
 *
 * @param {Search} search
 */
export function addressOf(search) {
  const given = Object.entries(search).filter(([key, value]) => value && value !== searchOf("")[/** @type {keyof Search} */ (key)]);
  return given.length ? `#/?${new URLSearchParams(given)}` : "#/";
}

/**
 * Path of the runs of a search.
 *
 * @param {Search} search
 * @param {number} size
 * @param {string} token
 */
export function pathOf({ show, name, tag, method, order }, size, token) {
  const kind = KINDS[show];
  const query = new URLSearchParams({ page_size: String(size) });
  for (const status of kind.status) query.append("status", status);
  const isReversed = order.startsWith("-");
  const asked = { show: kind.show, name, tag, method, order: isReversed ? order.slice(1) : order, reverse: isReversed ? "true" : "", page_token: token };
  for (const [key, value] of Object.entries(asked)) if (value) query.set(key, value);
  return `/v1/runs?${query}`;
}

/** @param {Search} search */
export function isEverything(search) {
  return addressOf(search) === "#/";
}
