// @ts-check
/**
 * What a run's clients are doing, one row each: from the run, its open round and what clients say. Pure.
 */

import { hasEnded } from "./state.js";

/**
 * @typedef {{
 *   clientId: string, domain: string, state: string, tone: string, progress: number | null, isConnected: boolean,
 *   isQuarantined: boolean, lastSeenAt: string | null, numExamples: number | null, error: string, hint: string, rank: number,
 * }} ClientRow
 * `progress` is that of the present activity, null where there is none. `rank` sorts: those with problems first.
 */

/**
 * @param {import("./state.js").RunState} state
 * @returns {ClientRow[]}
 */
export function rowsOf(state) {
  const { run, areClientsKnown } = state;
  if (!run) return [];
  const names = new Set([...run.roster, ...run.cohort]);
  const quarantined = new Map(run.quarantined.map((/** @type {any} */ entry) => [entry.client_id, entry.reason]));
  const rejections = new Map(run.rejections.map((/** @type {any} */ entry) => [entry.client_id, entry]));
  const dropped = new Map(state.dropped.map((entry) => [entry.client_id, entry]));
  const cohort = new Set(run.cohort);
  const done = new Set(state.doneClients);
  const rows = [...names].map((clientId) => {
    const client = state.clients.get(clientId);
    const isQuarantined = quarantined.has(clientId);
    const drop = dropped.get(clientId);
    const rejected = rejections.get(clientId);
    const works = client?.is_connected && client.run_id === run.run_id && client.activity !== "idle";
    /** @type {ClientRow} */
    const row = {
      clientId,
      domain: client?.domain ?? "",
      isConnected: client?.is_connected === true,
      isQuarantined,
      lastSeenAt: client?.last_seen_at ?? null,
      numExamples: client ? client.num_examples : null,
      progress: null,
      state: "",
      tone: "neutral",
      error: "",
      hint: "",
      rank: 3,
    };
    Object.assign(row, stateOf(run, { clientId, client, works, drop, isQuarantined, cohort, done, areClientsKnown }));
    if (works && !isQuarantined && !hasEnded(run)) row.progress = client?.progress ?? null;
    Object.assign(row, problemOf(client, drop, rejected, isQuarantined ? quarantined.get(clientId) : null));
    row.rank = isQuarantined ? 0 : row.error ? 1 : row.isConnected ? 3 : 2;
    return row;
  });
  return rows.sort((one, other) => one.rank - other.rank || (one.clientId < other.clientId ? -1 : 1));
}

/**
 * @param {import("./state.js").Document} run
 * @param {any} about
 * @returns {{state: string, tone: string}}
 */
function stateOf(run, { clientId, client, works, drop, isQuarantined, cohort, done, areClientsKnown }) {
  if (isQuarantined) return { state: "quarantined", tone: "bad" };
  if (drop && !hasEnded(run)) return { state: `left out: ${drop.reason}`, tone: "warning" };
  if (!client && !areClientsKnown) return { state: "…", tone: "neutral" };
  if (!client) return { state: "never seen", tone: hasEnded(run) ? "neutral" : "warning" };
  if (!client.is_connected) return { state: "not connected", tone: hasEnded(run) ? "neutral" : "warning" };
  if (hasEnded(run)) return { state: "connected", tone: "neutral" };
  if (works) return { state: client.activity, tone: "info" };
  if (run.phase !== "committed" && cohort.has(clientId)) {
    if (done.has(clientId)) return { state: "done", tone: "good" };
    return { state: "waiting", tone: "neutral" };
  }
  return { state: "idle", tone: "neutral" };
}

/**
 * @param {any} client
 * @param {any} drop
 * @param {any} rejected
 * @param {string | null | undefined} quarantine
 */
function problemOf(client, drop, rejected, quarantine) {
  if (quarantine !== null && quarantine !== undefined) return { error: quarantine || "quarantined", hint: "" };
  if (client?.problem) return { error: client.problem.detail || client.problem.reason, hint: client.problem.hint };
  if (rejected) {
    const times = rejected.count === 1 ? "1 update was refused" : `${rejected.count} updates were refused`;
    return { error: `${times}, the last one in round ${rejected.round}: ${rejected.detail}`, hint: "" };
  }
  if (drop) return { error: drop.detail, hint: "" };
  return { error: "", hint: "" };
}
