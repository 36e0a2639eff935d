// @ts-check
/**
 * Who took part in which round: a kind for each client and round, from the lines of metrics.jsonl and the history. Pure.
 */

import { counted, listed } from "../lib/format.js";

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {import("../lib/run_state.js").RunEvent} RunEvent
 * @typedef {{client: string, after: number, kind: "admitted" | "retired"} | {client: string, after: number, kind: "without data", stage: number}} Change
 *   It counts for the rounds after `after`.
 * @typedef {{clients: string[], rounds: number[], kinds: Uint8Array}} Participation `kinds` are indices of KINDS, client by
 *   client.
 */

/** What a client was in a round, in the order of the legend. */
export const KINDS = ["trained", "dropped", "not drawn", "without data", "not yet admitted", "retired"];
const [TRAINED, DROPPED, NOT_DRAWN, NO_DATA, NOT_YET, RETIRED] = KINDS.keys();

/** Types of events that say who may take part. */
export const TYPES = ["client_admitted", "client_retired", "client_without_data", "clients_admitted"];

/**
 * The changes that an event tells.
 *
 * @param {RunEvent} event
 * @param {number} [next] The round that opened after an event that names none.
 * @returns {Change[]}
 */
export function changesOf({ type, round, client_id: client, data }, next = 1) {
  const after = round ?? -1;
  if (type === "clients_admitted") return Object.keys(data.clients ?? {}).map((name) => ({ client: name, after: next - 1, kind: "admitted" }));
  if (client === null) return [];
  if (type === "client_admitted") return [{ client, after, kind: "admitted" }];
  if (type === "client_retired") return [{ client, after, kind: "retired" }];
  // It leaves the open round's cohort too.
  return type === "client_without_data" && data.stage ? [{ client, after: after - 1, kind: "without data", stage: data.stage }] : [];
}

/**
 * @param {readonly Document[]} rounds Lines of metrics.jsonl.
 * @param {readonly string[]} roster
 * @param {readonly Change[]} changes In the order of the history.
 * @returns {Participation}
 */
export function participation(rounds, roster, changes) {
  const names = new Set([...roster, ...changes.map(({ client }) => client)]);
  for (const { cohort } of rounds) for (const name of cohort) names.add(name);
  const clients = [...names].sort();
  const rows = new Map(clients.map((name, row) => [name, row]));
  const kinds = new Uint8Array(clients.length * rounds.length);
  /** @type {Map<string, Change[]>} */
  const byClient = new Map();
  for (const change of changes) byClient.set(change.client, [...(byClient.get(change.client) ?? []), change]);
  clients.forEach((name, row) => fill(kinds.subarray(row * rounds.length, (row + 1) * rounds.length), rounds, byClient.get(name) ?? []));
  rounds.forEach(({ cohort, dropped = [] }, column) => {
    const at = (/** @type {string} */ name) => (rows.get(name) ?? 0) * rounds.length + column;
    for (const name of cohort) kinds[at(name)] = TRAINED;
    for (const name of dropped) kinds[at(name)] = DROPPED;
  });
  return { clients, rounds: rounds.map(({ round }) => round), kinds };
}

/**
 * How many clients were what in a round, and who those are that did not train: "8 trained, 1 dropped (ann)".
 *
 * @param {Participation} found
 * @param {number} column
 */
export function roundInWords({ clients, rounds, kinds }, column) {
  const parts = KINDS.map((kind, index) => {
    const names = clients.filter((_, row) => kinds[row * rounds.length + column] === index);
    if (!names.length) return "";
    return index === TRAINED ? `${counted(names.length, "client")} trained` : `${names.length} ${kind} (${listed(names, 3)})`;
  });
  return parts.filter(Boolean).join(", ");
}

/**
 * What a client is in rounds whose cohort it is not of.
 *
 * @param {Uint8Array} kinds
 * @param {readonly Document[]} rounds
 * @param {readonly Change[]} changes Of the client.
 */
function fill(kinds, rounds, changes) {
  const comings = changes.filter(({ kind }) => kind !== "without data");
  const lacks = changes.flatMap((change) => (change.kind === "without data" ? [change] : []));
  let state = comings[0]?.kind === "admitted" ? NOT_YET : NOT_DRAWN;
  let next = 0;
  rounds.forEach(({ round, stage }, column) => {
    for (; next < comings.length && comings[next].after < round; next += 1) state = comings[next].kind === "admitted" ? NOT_DRAWN : RETIRED;
    const hasNone = state === NOT_DRAWN && lacks.some((lack) => lack.stage === stage && lack.after < round);
    kinds[column] = hasNone ? NO_DATA : state;
  });
}
