// @ts-check
/**
 * State of a client in one or two words, and its tone. Pure. Every page that shows a client takes its words from here.
 */

/**
 * @typedef {Record<string, any>} Client A client of GET /v1/clients.
 * @typedef {{state: string, tone: string}} State
 */

/**
 * Whether it works on a run's task; `progress` is of that.
 *
 * @param {Client | undefined} client
 */
export function isWorking(client) {
  return client?.is_connected === true && client.activity !== "idle" && !client.problem?.is_fatal;
}

/**
 * State of a client.
 *
 * @param {Client | undefined} client Undefined for one that nobody has seen.
 * @returns {State}
 */
export function stateOf(client) {
  if (!client) return { state: "has not joined yet", tone: "warning" };
  if (client.is_revoked) return { state: "revoked", tone: "neutral" };
  if (!client.is_connected) return { state: "not connected", tone: "warning" };
  if (client.problem?.is_fatal) return { state: "cannot work", tone: "bad" };
  return isWorking(client) ? { state: client.activity, tone: "info" } : { state: "idle", tone: "neutral" };
}

/**
 * What stands beside a client's id: its name for people, and its domain where that is not the id.
 *
 * @param {Client | undefined} client Undefined for one that nobody has seen.
 */
export function besideId(client) {
  if (!client) return "";
  // Isolates keep a name that reads from right to left from turning the rest.
  const name = client.display_name && `\u2068${client.display_name}\u2069`;
  return [name, client.domain === client.client_id ? "" : client.domain].filter(Boolean).join(" · ");
}

/**
 * Whether a client's id, name or domain has a text in it.
 *
 * @param {Client | undefined} client
 * @param {string} id
 * @param {string} text
 */
export function isFound(client, id, text) {
  const wanted = text.trim().toLowerCase();
  return [id, client?.display_name, client?.domain].some((found) => found?.toLowerCase().includes(wanted));
}
