// @ts-check
/**
 * Events as sentences. Pure. The words are those of the command line.
 */

import { counted, listed, percent, words } from "./format.js";

/** @typedef {import("./run_state.js").RunEvent} RunEvent */

/** @type {Record<string, (event: RunEvent) => string>} */
const SENTENCES = {
  run_created: () => "The run was created",
  run_started: () => "The run started: its clients are here",
  run_recovered: () => "The run goes on after an interruption",
  run_paused: ({ data }) => because("The run is paused", data.reason),
  run_parked: ({ data }) => because("The run is paused by an error in its own step", data.reason),
  run_resumed: () => "The run goes on",
  run_stopping: () => "The run is being stopped",
  run_stopped: ({ data }) => because("The run was stopped", data.reason),
  run_completed: ({ data }) => because("The run is complete", data.reason),
  run_extended: ({ data }) => `The run goes on to ${counted(data.rounds, "round")}`,
  run_failed: ({ data }) => because("The run failed", data.reason),
  run_labelled: ({ data }) => (data.is_archived ? "The run is archived" : "What is noted about the run has changed"),
  pause_requested: () => "The run pauses when the open round has committed",
  pause_withdrawn: () => "The run does not pause",
  environments_differ: () =>
    "The clients compute on different machine types: the same run elsewhere may give other last bits",
  environment_changed: ({ client_id }) =>
    `Client ${client_id} computes on another machine type now; last bits may differ from here on`,
  client_data_changed: ({ client_id, data }) =>
    `Client ${client_id} says that it has ${counted(data.num_examples, "sample")} now, not ${data.before ?? "as many"} as before`,
  clients_admitted: ({ data }) => admitted(data),
  round_opened: ({ round, data }) =>
    data.phase === "initialising"
      ? `Round ${round} opened: ${listed(data.cohort ?? [])} makes the first model`
      : `Round ${round} opened with ${counted((data.cohort ?? []).length, "client")}`,
  round_collecting: ({ round }) => `Round ${round}: training`,
  round_aggregating: ({ round }) => `Round ${round}: all updates are here; aggregating`,
  round_evaluating: ({ round }) => `Round ${round}: aggregated; evaluating`,
  round_committed: ({ round, data }) => committed(round, data.metrics),
  best_round: ({ round, data }) => `Round ${round} is the best one so far: ${percent(data.accuracy)} on validation images`,
  aggregation_failed: ({ data }) => because("An error kept a round from being aggregated", data.detail),
  update_committed: ({ client_id, data }) => update(client_id, data),
  update_damaged: ({ client_id }) =>
    `The stored update of client ${client_id} is damaged: the client is asked to send it again`,
  update_far: ({ client_id }) =>
    `The update of client ${client_id} counts, and is far from those of the others: ask its site, or quarantine it`,
  first_model_uncompared: ({ data }) => because("Nobody can compare the first model with another", data.detail),
  evaluation_reported: ({ client_id }) => `Client ${client_id} reported its evaluation`,
  update_removed: ({ round, client_id }) => `Round ${round} goes on without the update of client ${client_id}`,
  report_removed: ({ round, client_id }) => `Round ${round} goes on without the report of client ${client_id}`,
  update_refused: ({ client_id, data }) => because(`An update of client ${client_id} was refused`, data.detail),
  report_refused: ({ client_id, data }) => because(`A report of client ${client_id} was refused`, data.detail),
  client_problem: ({ client_id, data }) =>
    because(
      data.reason === "AWAITS_APPROVAL"
        ? `The run waits for ${client_id}'s approval`
        : `Client ${client_id} has a problem`,
      [data.detail, data.hint].filter(Boolean).join("; "),
    ),
  client_quarantined: ({ client_id, data }) => because(`Client ${client_id} is quarantined`, data.reason),
  client_released: ({ client_id }) => `Client ${client_id} takes part again`,
  client_admitted: ({ client_id }) => `Client ${client_id} is admitted; it may take part from the next round on`,
  client_retired: ({ client_id, data }) =>
    `Client ${client_id} is retired${data.forgets ? "; what it sent before leaves later pools" : ""}`,
  client_without_data: ({ client_id, data }) =>
    `Client ${client_id} has no image of ${data.stage ? `stage ${data.stage}` : "a stage"}, and is in none of its rounds`,
  stage_ended: ({ data }) =>
    data.stage ? `Stage ${data.stage} ends; round ${data.first_round} begins the next one` : "A stage ends",
  client_dropped: ({ round, client_id, data }) =>
    because(`Round ${round} goes on without client ${client_id}`, [data.reason, data.detail].filter(Boolean).join(": ")),
  client_returned: ({ round, client_id }) => `Round ${round} waits for client ${client_id} again`,
  client_asked: ({ round, client_id }) => `Round ${round} asks client ${client_id} too`,
  quorum_missing: ({ data }) => (data.clients ? `The run ${data.reason}` : because("Waiting", data.reason)),
  quorum_regained: () => "Enough clients are here again",
};

/** Types of events that have a sentence of their own. */
export const KNOWN_TYPES = Object.freeze(Object.keys(SENTENCES));

/** Types of events that say that something is wrong, or that somebody should know. */
const WARNINGS = new Set([
  "update_damaged",
  "update_far",
  "update_refused",
  "report_refused",
  "client_problem",
  "client_quarantined",
  "client_dropped",
  "aggregation_failed",
  "quorum_missing",
  "run_recovered",
  "run_parked",
  "environment_changed",
  "client_data_changed",
  "environments_differ",
]);

/** Kinds that the list of events can be narrowed to, and their types. */
export const KINDS = Object.freeze({
  problems: [...WARNINGS, "run_failed"],
  rounds: ["round_opened", "round_collecting", "round_aggregating", "round_evaluating", "round_committed", "best_round", "aggregation_failed", "first_model_uncompared"],
  clients: [
    "update_committed",
    "evaluation_reported",
    "update_damaged",
    "update_far",
    "update_removed",
    "report_removed",
    "update_refused",
    "report_refused",
    "client_problem",
    "client_quarantined",
    "client_released",
    "client_admitted",
    "client_retired",
    "client_without_data",
    "client_dropped",
    "client_returned",
    "client_asked",
    "clients_admitted",
    "environment_changed",
    "client_data_changed",
  ],
  run: [
    "run_created",
    "run_started",
    "run_recovered",
    "run_paused",
    "run_parked",
    "run_resumed",
    "run_stopping",
    "run_stopped",
    "run_completed",
    "run_extended",
    "run_failed",
    "pause_requested",
    "pause_withdrawn",
    "stage_ended",
    "run_labelled",
    "quorum_missing",
    "quorum_regained",
    "environments_differ",
  ],
});

/**
 * The sentence of an event; for an unknown type, its name in words.
 *
 * @param {RunEvent} event
 */
export function sentenceOf(event) {
  return Object.hasOwn(SENTENCES, event.type) ? SENTENCES[event.type](event) : named(event);
}

/**
 * Weight of an event: "bad", "warning", "good" or "plain".
 *
 * @param {RunEvent} event
 */
export function weightOf(event) {
  const isFatal = event.type === "client_problem" && event.data.is_fatal && event.data.reason !== "AWAITS_APPROVAL";
  if (event.type === "run_failed" || isFatal) return "bad";
  if (WARNINGS.has(event.type)) return "warning";
  return ["round_committed", "run_completed"].includes(event.type) ? "good" : "plain";
}

/**
 * @param {string} sentence
 * @param {string | undefined} reason
 */
function because(sentence, reason) {
  return reason ? `${sentence}: ${reason}` : sentence;
}

/** @param {Record<string, any>} data */
function admitted(data) {
  const names = Object.keys(data.clients ?? {});
  return names.length ? `${names.length === 1 ? "Client" : "Clients"} ${listed(names)} joined the run` : "Clients joined";
}

/**
 * @param {number | null} round
 * @param {Record<string, any> | undefined} metrics
 */
function committed(round, metrics) {
  const accuracy = metrics?.accuracy ?? {};
  if (accuracy.mean === undefined || accuracy.mean === null) return `Round ${round} committed`;
  return `Round ${round} committed: mean accuracy ${percent(accuracy.mean)}, worst domain ${percent(accuracy.worst)}`;
}

/**
 * @param {string | null} client
 * @param {Record<string, any>} data
 */
function update(client, data) {
  if (!data.num_examples) return `Client ${client} committed its part`;
  const prototypes = data.num_prototypes ? `, ${counted(data.num_prototypes, "prototype")}` : "";
  return `Client ${client} committed its update: ${counted(data.num_examples, "sample")}${prototypes}`;
}

/** @param {RunEvent} event */
function named(event) {
  const text = words(event.type);
  const about = event.client_id ? ` (client ${event.client_id})` : "";
  return text.charAt(0).toUpperCase() + text.slice(1) + about;
}
