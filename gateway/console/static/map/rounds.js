// @ts-check
/**
 * The rounds that a prototype map can show, the one that it is to show, and their maps as they come from the gateway.
 *
 * A round is asked for when it is to be shown, and those beside it while nothing else is under way; what came is kept, so
 * that going back and forth asks for nothing twice.
 */

import { ApiError } from "../lib/api.js";
import { sentence } from "../lib/format.js";
import { roundsOf } from "./view.js";

/** Pause before what could not be read is read again. */
const RETRY_MS = 3000;
/** Maps that are kept, those that came last. */
const MOST_KEPT = 400;

/**
 * @typedef {import("../lib/run_state.js").Context} Context
 * @typedef {import("./view.js").MapDocument} MapDocument
 */

export class MapRounds {
  /** Reason why there is no map, or no other round's map; empty without a problem. */
  failure = "";
  /** Whether the rounds after the one shown will be wanted soon. */
  isGoingOn = false;
  #context;
  #onChange;
  #closed = new AbortController();
  /** Maps by round. @type {Map<number, MapDocument>} */
  #maps = new Map();
  /** Rounds that can be shown, rising. @type {number[]} */
  #rounds = [];
  /** The round to show; null for the newest. @type {number | null} */
  #wanted = null;
  /** The last one that has committed; 0 for none. */
  #newest = 0;
  #isAsking = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retrying;

  /**
   * @param {Context} context
   * @param {() => void} onChange Something here has changed.
   */
  constructor(context, onChange) {
    this.#context = context;
    this.#onChange = onChange;
    const { signal } = this.#closed;
    document.addEventListener("visibilitychange", () => void this.#load(), { signal });
  }

  close() {
    this.#closed.abort();
    clearTimeout(this.#retrying);
  }

  /** Rounds that can be shown, rising. */
  get all() {
    return this.#rounds;
  }

  /** Maps that have come. */
  get maps() {
    return this.#maps.values();
  }

  /** Place of the round that is to be shown, among those that can be. */
  get place() {
    const place = this.#wanted === null ? -1 : this.#rounds.indexOf(this.#wanted);
    return place < 0 ? this.#rounds.length - 1 : place;
  }

  /** The map of the round that is to be shown, if it has come. */
  get map() {
    return this.#maps.get(this.#rounds[this.place]) ?? null;
  }

  /** Whether the newest round is shown, whichever that is. */
  get isFollowing() {
    return this.#wanted === null;
  }

  /** @param {number} round It has committed, as all before it have. */
  committed(round) {
    if (round <= this.#newest) return;
    this.#newest = round;
    if (this.#rounds.length) this.#rounds = [...this.#rounds, round];
    this.#onChange();
    void this.#load();
  }

  /**
   * Have a round shown; the last one from now on, whichever that is.
   *
   * @param {number} place Among the rounds that can be shown; beyond their ends, the first or the last.
   */
  goTo(place) {
    const last = this.#rounds.length - 1;
    this.#wanted = place >= last ? null : this.#rounds[Math.max(place, 0)];
    this.#onChange();
    void this.#load();
  }

  /** Ask for what is missing, one map at a time. */
  async #load() {
    const round = this.#missing();
    if (this.#isAsking || round === null || document.hidden || this.#closed.signal.aborted) return;
    clearTimeout(this.#retrying);
    const { runId, api } = this.#context;
    this.#isAsking = true;
    let isDone = true;
    try {
      const path = api.runPath(runId, `/prototype-map${round ? `?round=${round}` : ""}`);
      const map = await api.get(path, { signal: this.#closed.signal });
      this.#arrived(map);
      isDone = !round || map.round === round; // what answers otherwise is not asked again and again
    } catch (error) {
      if (this.#closed.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      isDone = this.#refused(error);
    } finally {
      this.#isAsking = false;
    }
    this.#onChange();
    if (isDone) void this.#load();
  }

  /** The round to ask for next, 0 for the newest that there is; null for none. */
  #missing() {
    if (!this.#newest) return null;
    if (!this.#rounds.length) return 0;
    const steps = this.isFollowing && !this.isGoingOn ? [0, -1] : [0, 1, 2, -1];
    const wanted = steps.map((step) => this.#rounds[this.place + step]);
    return wanted.find((round) => round && !this.#maps.has(round)) ?? null;
  }

  /** @param {MapDocument} map */
  #arrived(map) {
    // The aggregator has begun anew: what came before is turned otherwise.
    if ([...this.#maps.values()].some((known) => known.aligned_from !== map.aligned_from)) this.#maps.clear();
    this.#maps.set(map.round, map);
    for (const round of this.#maps.keys()) {
      if (this.#maps.size > MOST_KEPT) this.#maps.delete(round);
    }
    const there = roundsOf(map.rounds);
    const later = this.#rounds.filter((round) => round > (there.at(-1) ?? 0));
    this.#rounds = [...there, ...later];
    if (this.#wanted !== null && this.#wanted < this.#rounds[0]) this.#wanted = this.#rounds[0];
    this.failure = "";
  }

  /**
   * Whether to go on at once.
   *
   * @param {ApiError} error
   */
  #refused(error) {
    const isGone = error.problem?.code === "BLOB_NOT_FOUND" && this.#rounds.length > 0;
    if (isGone) {
      // It was collected a moment ago: those that are there are named beside the newest one.
      this.#rounds = [];
      this.#maps.clear();
      this.#wanted = null;
    }
    const isTriedAgain = isGone || error.mayPass;
    if (isTriedAgain) this.#retrying = setTimeout(() => void this.#load(), RETRY_MS);
    this.failure = `${sentence(error.message)}${isTriedAgain ? " Trying again …" : ""}`;
    return false;
  }
}
