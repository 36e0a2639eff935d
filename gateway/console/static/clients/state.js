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
  if (!client.is_connected) return { state: "not connected", tone: "warning" };
  if (client.problem?.is_fatal) return { state: "cannot work", tone: "bad" };
  return isWorking(client) ? { state: client.activity, tone: "info" } : { state: "idle", tone: "neutral" };
}
