// @ts-check
/**
 * Feed of one run's state: first reads, then the event stream. A thin shell around lib/run_state.js.
 *
 * Only the last page of the history is read; curves come from the rounds. All reads start at once, for a fast page. Newer
 * rounds are read once more, so that rounds are at least as new as the events; the stream begins after the last event. So
 * nothing is missed.
 */

import { ApiError, allClients, followRun, get, roundPages, runPath } from "../lib/api.js";
import { opening } from "./opening.js";
import { hasEnded, initialState, reduce } from "../lib/run_state.js";
import { repeat } from "../lib/shell.js";

/** Pause between two reads of the clients: the history does not have their activities. */
const CLIENTS_MS = 2000;
/** Delay between an event and one read of the run's document for all events of that time. */
const DOCUMENT_MS = 200;
/** Pause before what could not be read is read again. */
const RETRY_MS = 2000;

/**
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("../lib/run_state.js").Action} Action
 */

export class RunFeed {
  #state;
  #onState;
  #onRefused;
  #ended = new AbortController();
  #isShowing = false;
  /** @type {(() => void)[]} */
  #stops = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #asking;
  #isStale = false;

  /**
   * @param {string} runId
   * @param {(state: RunState) => void} onState At most once per frame.
   * @param {(error: ApiError) => void} onRefused The run cannot be shown, and asking again would not help.
   */
  constructor(runId, onState, onRefused) {
    this.#state = initialState(runId);
    this.#onState = onState;
    this.#onRefused = onRefused;
    void this.#begin();
  }

  /** The present state. */
  get state() {
    return this.#state;
  }

  /** End it. */
  stop() {
    this.#ended.abort();
    clearTimeout(this.#asking);
    for (const stop of this.#stops) stop();
  }

  /**
   * Take a document of the run that somebody else got, such as the answer to a wish.
   *
   * @param {Action} action
   */
  take(action) {
    this.#state = reduce(this.#state, action);
    if (this.#isShowing) return;
    this.#isShowing = true;
    // A hidden page has no frames; its state goes on all the same.
    requestAnimationFrame(() => {
      this.#isShowing = false;
      if (!this.#ended.signal.aborted) this.#onState(this.#state);
    });
  }

  async #begin() {
    const { runId } = this.#state;
    const options = { signal: this.#ended.signal };
    while (!this.#ended.signal.aborted) {
      try {
        const { page, run, rounds } = await opening(runId, options);
        if (this.#ended.signal.aborted) return;
        this.take({ type: "run", run });
        this.take({ type: "events", events: page.events.reverse() });
        this.take({ type: "rounds", rounds });
        const known = rounds.at(-1)?.round ?? -1;
        for await (const newer of roundPages(runId, known, options)) this.take({ type: "rounds", rounds: newer });
        this.#goOn();
        return;
      } catch (error) {
        if (this.#ended.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        if (!error.mayPass) return this.#onRefused(error);
        const retryAt = Date.now() + RETRY_MS;
        this.take({ type: "connection", connection: { state: "lost", reason: error.message, retryAt } });
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  #goOn() {
    if (this.#ended.signal.aborted) return;
    const { runId } = this.#state;
    const clients = repeat(async (signal) => {
      try {
        this.take({ type: "clients", clients: await allClients({ signal }) });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
      if (hasEnded(this.#state.run)) clients.stop();
    }, CLIENTS_MS);
    this.#stops.push(clients.stop);
    const stopFollowing = followRun(runId, {
      after: this.#state.lastSequence,
      onEvents: (events) => {
        this.take({ type: "events", events });
        this.refresh();
      },
      onEnd: (run) => {
        this.take({ type: "run", run });
        this.refresh();
      },
      onConnection: (connection) => this.take({ type: "connection", connection }),
      onRefused: this.#onRefused,
    });
    this.#stops.push(stopFollowing);
    // It was read beside the events, and may be older than the newest of them.
    if (!hasEnded(this.#state.run)) this.refresh();
  }

  /** Have the run's document read again soon, once for all who ask for it until then. */
  refresh() {
    this.#isStale = true;
    this.#asking ??= setTimeout(() => void this.#askForDocument(), DOCUMENT_MS);
  }

  /** The run and its last rounds as they are: what events do not tell, such as sizes of files. */
  async #askForDocument() {
    const { runId } = this.#state;
    const options = { signal: this.#ended.signal };
    this.#isStale = false;
    try {
      const run = await get(runPath(runId), options);
      this.take({ type: "run", run });
      const known = this.#state.result?.round ?? -1;
      for await (const rounds of roundPages(runId, Math.max(Math.min(known, run.round - 1), -1), options)) {
        this.take({ type: "rounds", rounds });
      }
    } catch (error) {
      if (this.#ended.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (error.mayPass) {
        this.#isStale = true; // the run's last event may have been the last one that asks
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    } finally {
      this.#asking = undefined;
      if (this.#isStale && !this.#ended.signal.aborted) this.refresh();
    }
  }
}
