// @ts-check
/**
 * The state of a run's page, a pure function of documents and events: `reduce(state, action)`.
 *
 * Documents show the run at one time; events tell later changes. Both may repeat each other and come in any order: rounds are
 * kept by number and events by sequence, so that doing it twice equals doing it once. Unchanged parts stay the same objects,
 * so that a section can compare with `===`.
 */

/** Events that are kept; older ones are read from the gateway, page by page. */
export const MAX_EVENTS = 50;
/** Commits that the estimate of the remaining time looks at. */
const MAX_COMMITS = 6;

/**
 * @typedef {Record<string, any>} Document A JSON document of the gateway, as its OpenAPI description has it.
 * @typedef {{sequence: number, time: string, type: string, run_id: string | null, round: number | null,
 *   client_id: string | null, data: Record<string, any>}} RunEvent
 * @typedef {import("./api.js").Connection | {state: "loading"} | {state: "ended"}} Connection
 * @typedef {{
 *   runId: string,
 *   run: Document | null,
 *   rounds: readonly Document[],
 *   phase: string | null,
 *   phaseSince: string | null,
 *   doneClients: readonly string[],
 *   dropped: readonly {client_id: string, reason: string, detail: string}[],
 *   clients: ReadonlyMap<string, Document>,
 *   areClientsKnown: boolean,
 *   events: readonly RunEvent[],
 *   lastSequence: number,
 *   result: {round: number, model: {sha256: string, size_bytes: number}, prototypes: {sha256: string, size_bytes: number}} | null,
 *   commits: readonly {round: number, time: string}[],
 *   connection: Connection,
 * }} RunState
 *
 * `run` is the run's document, kept up to date by events. `rounds` are the metrics of the committed rounds in order (round 0
 * has none). `dropped` are clients that the open round does not wait for. `events` are the newest ones, newest first.
 * `result` names the files of the last committed round.
 *
 * @typedef {{type: "run", run: Document} | {type: "rounds", rounds: Document[]} | {type: "clients", clients: Document[]} |
 *   {type: "events", events: RunEvent[]} | {type: "connection", connection: Connection}} Action
 *
 * @typedef {{runId: string, api: typeof import("./api.js"), take: (action: Action) => void,
 *   range?: import("./round_range.js").RoundRange}} Context What a section of the run's page gets; `take` hands on a
 *   document, such as the answer to a request; `range` are the rounds that its charts show.
 * @typedef {{element: HTMLElement, update: (state: RunState) => void, close?: () => void}} Section
 * @typedef {(context: Context) => Section} MakeSection
 */

/** Statuses after which nothing happens to a run any more. */
const FINAL = new Set(["completed", "stopped", "failed"]);

/** @type {Record<string, string>} */
const STATUS_OF = {
  run_started: "running",
  run_resumed: "running",
  run_paused: "paused",
  run_parked: "paused",
  run_stopping: "stopping",
  run_stopped: "stopped",
  run_completed: "completed",
  run_failed: "failed",
};

/**
 * @param {string} runId
 * @returns {RunState}
 */
export function initialState(runId) {
  return {
    runId,
    run: null,
    rounds: [],
    phase: null,
    phaseSince: null,
    doneClients: [],
    dropped: [],
    clients: new Map(),
    areClientsKnown: false,
    events: [],
    lastSequence: 0,
    result: null,
    commits: [],
    connection: { state: "loading" },
  };
}

/**
 * Whether a run has ended.
 *
 * @param {Document | null} run
 */
export function hasEnded(run) {
  return run !== null && FINAL.has(run.status);
}

/**
 * Commands that a run's status allows; the aggregator decides.
 *
 * @param {Document | null} run
 * @returns {{pause: boolean, resume: boolean, stop: boolean, steer: boolean}}
 */
export function allowed(run) {
  const status = run?.status;
  const isOpen = run !== null && !hasEnded(run) && status !== "stopping";
  return {
    pause: status === "running",
    resume: status === "paused" || (status === "running" && run?.is_pause_requested === true),
    stop: isOpen,
    steer: isOpen,
  };
}

/**
 * The state after a document or events.
 *
 * @param {RunState} state
 * @param {Action} action
 * @returns {RunState}
 */
export function reduce(state, action) {
  switch (action.type) {
    case "run":
      return withRun(state, action.run);
    case "rounds":
      return withRounds(state, action.rounds);
    case "clients":
      return withClients(state, action.clients);
    case "events":
      return withEvents(state, action.events);
    case "connection":
      return hasEnded(state.run) ? state : { ...state, connection: action.connection };
  }
}

/** A round that takes so many times the usual one, and some seconds, has stalled. */
const STALLED_FACTOR = 3;
const STALLED_SECONDS = 5;

/**
 * Estimated seconds of the remaining rounds, by the median of the last rounds; null without an estimate.
 *
 * @param {RunState} state
 * @param {number} now Milliseconds since the epoch.
 * @returns {number | null}
 */
export function secondsLeft(state, now) {
  const last = state.commits.at(-1);
  const each = secondsOfRound(state);
  if (!last || each === null || state.run?.status !== "running") return null;
  return each * (state.run.total_rounds - last.round) - Math.min(sinceCommit(last, now), each);
}

/**
 * Whether the open round takes far longer than the last ones did.
 *
 * @param {RunState} state
 * @param {number} now Milliseconds since the epoch.
 */
export function isStalled(state, now) {
  const last = state.commits.at(-1);
  const each = secondsOfRound(state);
  if (!last || each === null || state.run?.status !== "running") return false;
  return sinceCommit(last, now) > STALLED_FACTOR * each + STALLED_SECONDS;
}

/**
 * Median seconds of the last rounds; null before two have committed. One long gap does not count.
 *
 * @param {RunState} state
 */
function secondsOfRound({ commits }) {
  const seconds = commits
    .slice(1)
    .map((commit, index) => {
      const before = commits[index];
      return (Date.parse(commit.time) - Date.parse(before.time)) / 1000 / Math.max(commit.round - before.round, 1);
    })
    .sort((a, b) => a - b);
  const middle = seconds.length >> 1;
  if (!seconds.length) return null;
  return seconds.length % 2 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
}

/**
 * @param {{time: string}} commit
 * @param {number} now
 */
function sinceCommit(commit, now) {
  return Math.max(now - Date.parse(commit.time), 0) / 1000;
}

/**
 * @param {RunState} state
 * @param {Document} run
 * @returns {RunState}
 */
function withRun(state, run) {
  if (state.run && Date.parse(run.updated_at) < Date.parse(state.run.updated_at)) return state;
  return follow(state, run);
}

/**
 * The state with a newer document of the run.
 *
 * @param {RunState} state
 * @param {Document} run
 * @returns {RunState}
 */
function follow(state, run) {
  const isSameRound = state.run?.round === run.round;
  const isSamePhase = isSameRound && state.phase === run.phase;
  return {
    ...state,
    run,
    phase: run.phase,
    phaseSince: isSamePhase ? state.phaseSince : null,
    doneClients: isSame(state.doneClients, run.done_clients) ? state.doneClients : run.done_clients,
    dropped: isSameRound || !state.run ? state.dropped : [],
    connection: hasEnded(run) ? { state: "ended" } : state.connection,
  };
}

/**
 * @param {RunState} state
 * @param {Document[]} documents
 * @returns {RunState}
 */
function withRounds(state, documents) {
  const rounds = merged(state.rounds, documents.map((each) => each.metrics).filter(Boolean));
  let { result, dropped } = state;
  for (const each of documents) {
    const isCommitted = each.phase === "committed" && each.model && each.prototypes;
    if (isCommitted && (!result || each.round >= result.round)) {
      result = { round: each.round, model: each.model, prototypes: each.prototypes };
    }
  }
  const open = documents.at(-1);
  if (open && open.round >= (state.run?.round ?? -1)) dropped = open.dropped;
  return { ...state, rounds, result, dropped };
}

/**
 * @param {RunState} state
 * @param {Document[]} clients
 * @returns {RunState}
 */
function withClients(state, clients) {
  return { ...state, areClientsKnown: true, clients: new Map(clients.map((client) => [client.client_id, client])) };
}

/**
 * @param {RunState} before
 * @param {RunEvent[]} events In order.
 * @returns {RunState}
 */
function withEvents(before, events) {
  const news = events.filter((event) => event.sequence > before.lastSequence);
  if (!news.length) return before;
  let state = before;
  for (const event of news) state = happened(state, event);
  const metrics = news.filter((event) => event.type === "round_committed").map((event) => event.data.metrics);
  return {
    ...state,
    rounds: merged(state.rounds, metrics.filter(Boolean)),
    events: [...news.slice(-MAX_EVENTS).reverse(), ...state.events].slice(0, MAX_EVENTS),
    lastSequence: /** @type {RunEvent} */ (news.at(-1)).sequence,
  };
}

/**
 * The change of the run's progress by one event. The document already has events that are older than it.
 *
 * @param {RunState} state
 * @param {RunEvent} event
 * @returns {RunState}
 */
function happened(state, event) {
  if (event.type === "round_committed") state = committed(state, event);
  const { run } = state;
  if (!run || Date.parse(event.time) < Date.parse(run.updated_at)) return since(state, event);
  const changes = changesOf(run, event);
  let next = changes ? follow(state, { ...run, ...changes, updated_at: event.time }) : state;
  const client = event.client_id;
  if (event.type === "client_dropped" && client) {
    const others = next.dropped.filter((entry) => entry.client_id !== client);
    const { reason = "", detail = "" } = event.data;
    next = { ...next, dropped: [...others, { client_id: client, reason, detail }] };
  } else if (event.type === "client_returned") {
    next = { ...next, dropped: next.dropped.filter((entry) => entry.client_id !== client) };
  }
  return since(next, event);
}

/**
 * The start of the present phase, if this event tells it.
 *
 * @param {RunState} state
 * @param {RunEvent} event
 * @returns {RunState}
 */
function since(state, event) {
  const phase = event.type === "round_opened" ? event.data.phase : event.type.replace(/^round_/, "");
  const isIt = event.type.startsWith("round_") && phase === state.phase && event.round === state.run?.round;
  return isIt ? { ...state, phaseSince: event.time } : state;
}

/**
 * @param {RunState} state
 * @param {RunEvent} event
 * @returns {RunState}
 */
function committed(state, event) {
  if (event.round === null || state.commits.some((commit) => commit.round === event.round)) return state;
  return { ...state, commits: [...state.commits, { round: event.round, time: event.time }].slice(-MAX_COMMITS) };
}

/**
 * Changes of the run's document by an event; null without one.
 *
 * @param {Document} run
 * @param {RunEvent} event
 * @returns {Document | null}
 */
function changesOf(run, event) {
  const client = event.client_id;
  switch (event.type) {
    case "round_opened":
      return { round: event.round, phase: event.data.phase, cohort: event.data.cohort, done_clients: [] };
    case "client_without_data":
      return { cohort: [...run.cohort.filter((/** @type {string} */ name) => name !== client), ...(event.data.drawn ?? [])].sort() };
    case "round_collecting":
    case "round_evaluating": {
      const asked = [...new Set([...run.cohort, ...(event.data.evaluators ?? [])])].sort();
      return { round: event.round, phase: event.type.slice("round_".length), cohort: asked, done_clients: [] };
    }
    case "round_aggregating":
    case "round_committed":
      return { round: event.round, phase: event.type.slice("round_".length) };
    case "update_committed":
    case "evaluation_reported":
      return { done_clients: withName(run.done_clients, client) };
    case "client_asked":
      return { cohort: withName(run.cohort, client) };
    case "client_quarantined":
      return { quarantined: [...without(run.quarantined, client), { client_id: client, reason: event.data.reason ?? "" }] };
    case "client_released":
      return { quarantined: without(run.quarantined, client) };
    case "client_retired":
      return {
        retired: [
          ...without(run.retired ?? [], client),
          { client_id: client, round: event.round ?? -1, is_forgotten: Boolean(event.data.forgets) },
        ],
      };
    case "client_admitted":
      return { retired: without(run.retired ?? [], client), roster: withName(run.roster, client) };
    case "pause_requested":
      return { is_pause_requested: true };
    case "pause_withdrawn":
      return { is_pause_requested: false };
    case "quorum_missing":
      return { reason: event.data.reason ?? "" };
    case "run_extended":
      return { status: "running", reason: "", total_rounds: event.data.rounds };
    case "quorum_regained":
      return { reason: "" };
    default: {
      const status = STATUS_OF[event.type];
      return status ? { status, reason: event.data.reason ?? "", is_pause_requested: false } : null;
    }
  }
}

/**
 * Rounds with others added, each number once, in order; the same array if nothing is new.
 *
 * @param {readonly Document[]} known
 * @param {Document[]} found
 */
function merged(known, found) {
  const last = known.at(-1)?.round ?? -1;
  const later = found.filter((entry) => entry.round > last);
  if (later.length === found.length && isRising(later)) return later.length ? [...known, ...later] : known;
  const byRound = new Map(known.map((entry) => [entry.round, entry]));
  const before = byRound.size;
  for (const entry of found) if (!byRound.has(entry.round)) byRound.set(entry.round, entry);
  if (byRound.size === before) return known;
  return [...byRound.values()].sort((one, other) => one.round - other.round);
}

/** @param {Document[]} rounds */
function isRising(rounds) {
  return rounds.every((entry, index) => index === 0 || entry.round > rounds[index - 1].round);
}

/**
 * @param {readonly string[]} names Sorted.
 * @param {string | null} name
 */
function withName(names, name) {
  return name === null || names.includes(name) ? names : [...names, name].sort();
}

/**
 * @param {readonly {client_id: string}[]} entries
 * @param {string | null} client
 */
function without(entries, client) {
  return entries.filter((entry) => entry.client_id !== client);
}

/**
 * @param {readonly unknown[]} one
 * @param {readonly unknown[]} other
 */
function isSame(one, other) {
  return one.length === other.length && one.every((value, index) => value === other[index]);
}
