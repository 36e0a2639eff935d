// @ts-check
/**
 * Rows of a run's clients, from the run, its open round and the clients' own reports. Pure.
 */

import { isWorking, stateOf } from "../clients/state.js";
import { hasEnded } from "../lib/run_state.js";

/**
 * @typedef {{
 *   clientId: string, displayName: string, domain: string, state: string, tone: string, progress: number | null, isConnected: boolean,
 *   isQuarantined: boolean, lastSeenAt: string | null, numExamples: number | null, error: string, hint: string, rank: number,
 * }} ClientRow
 * `progress` is that of the present activity, null where there is none. `rank` sorts: those with problems first.
 */

/**
 * @param {import("../lib/run_state.js").RunState} state
 * @returns {ClientRow[]}
 */
export function rowsOf(state) {
  const { run, areClientsKnown } = state;
  if (!run) return [];
  const names = new Set([...run.roster, ...run.cohort]);
  const quarantined = new Map(run.quarantined.map((/** @type {any} */ entry) => [entry.client_id, entry.reason]));
  const retired = new Map((run.retired ?? []).map((/** @type {any} */ entry) => [entry.client_id, entry]));
  const rejections = new Map(run.rejections.map((/** @type {any} */ entry) => [entry.client_id, entry]));
  const dropped = new Map(state.dropped.map((entry) => [entry.client_id, entry]));
  const cohort = new Set(run.cohort);
  const done = new Set(state.doneClients);
  const rows = [...names].map((clientId) => {
    const client = state.clients.get(clientId);
    const isQuarantined = quarantined.has(clientId);
    const drop = dropped.get(clientId);
    const rejected = rejections.get(clientId);
    const retirement = retired.get(clientId);
    const works = isWorking(client) && client?.run_id === run.run_id;
    /** @type {ClientRow} */
    const row = {
      clientId,
      displayName: client?.display_name ?? "",
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
    Object.assign(row, stateIn(run, { clientId, client, works, drop, isQuarantined, retirement, cohort, done, areClientsKnown }));
    if (works && !isQuarantined && !hasEnded(run)) row.progress = client?.progress ?? null;
    Object.assign(row, problemOf(client, retirement ? undefined : drop, rejected, isQuarantined ? quarantined.get(clientId) : null));
    row.rank = isQuarantined ? 0 : row.error ? 1 : row.isConnected ? 3 : 2;
    return row;
  });
  return rows.sort(byTrouble);
}

/**
 * Order of rows: those with problems first.
 *
 * @param {ClientRow} one
 * @param {ClientRow} other
 */
export function byTrouble(one, other) {
  return one.rank - other.rank || (one.clientId < other.clientId ? -1 : 1);
}

/**
 * State of a client in this run: by the run's document, else by the client's own activity.
 *
 * @param {import("../lib/run_state.js").Document} run
 * @param {any} about
 * @returns {import("../clients/state.js").State}
 */
function stateIn(run, { clientId, client, works, drop, isQuarantined, retirement, cohort, done, areClientsKnown }) {
  if (isQuarantined) return { state: "quarantined", tone: "bad" };
  if (retirement) return { state: retiredInWords(retirement), tone: "neutral" };
  if (drop && !hasEnded(run)) return { state: `left out: ${drop.reason}`, tone: "warning" };
  if (!client && !areClientsKnown) return { state: "…", tone: "neutral" };
  const own = stateOf(client);
  if (hasEnded(run)) return { state: client?.is_connected ? "connected" : own.state, tone: "neutral" };
  if (works || own.tone === "warning" || own.tone === "bad") return own;
  if (run.phase !== "committed" && cohort.has(clientId)) {
    if (done.has(clientId)) return { state: "done", tone: "good" };
    if (!isWorking(client)) return { state: "waiting", tone: "neutral" };
  }
  if (isWorking(client)) return { state: "busy with another run", tone: "info" };
  return client?.num_examples === 0 && client.is_connected ? { state: "evaluates only", tone: "neutral" } : own;
}

/**
 * When a client was retired, and whether what it sent is forgotten.
 *
 * @param {{round: number, is_forgotten: boolean}} entry
 */
function retiredInWords({ round, is_forgotten: isForgotten }) {
  const when = round > 0 ? `in round ${round}` : "before round 1";
  return `retired ${when}${isForgotten ? ", forgotten" : ""}`;
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
