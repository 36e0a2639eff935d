// @ts-check
/**
 * Earlier runs, a page at a time: all of them, or those of one kind.
 *
 * Both begin with the newest runs, which the overview has asked for anyway, and are asked again and again: a run that ends or
 * begins meanwhile finds its place.
 */

import { get, runPath } from "../lib/api.js";
import { hasEnded } from "../lib/run_state.js";

/** Runs of a page. */
export const PAGE_SIZE = 20;
/** Runs of an answer where those of one kind are looked for; the most that the gateway gives. */
const SEARCH_SIZE = 200;

/**
 * @typedef {Record<string, any>} Run
 * @typedef {{runs: Run[], next_page_token: string | null}} Answer A page of GET /v1/runs.
 * @typedef {{runs: Run[], isTurned: boolean, hasOlder: boolean, text: string}} Page `isTurned` says that it is not the first.
 * @typedef {{
 *   read: (newest: Answer, signal: AbortSignal) => Promise<Page>, older: () => void, first: () => void, close: () => void,
 * }} Pages
 */

/**
 * The page of runs after a token, or the newest ones.
 *
 * @param {number} size
 * @param {string} token
 * @param {AbortSignal} signal
 * @returns {Promise<Answer>}
 */
export function runsAfter(size, token, signal) {
  return get(`/v1/runs?page_size=${size}${token ? `&page_token=${encodeURIComponent(token)}` : ""}`, { signal });
}

/** All runs, but for the open ones of the first page, which have cards of their own. @implements {Pages} */
export class EveryRun {
  #token = "";
  #next = "";

  /**
   * @param {Answer} newest
   * @param {AbortSignal} signal
   * @returns {Promise<Page>}
   */
  async read(newest, signal) {
    const token = this.#token;
    const page = token ? await runsAfter(PAGE_SIZE, token, signal) : newest;
    this.#next = page.next_page_token ?? "";
    return { runs: token ? page.runs : page.runs.filter(hasEnded), isTurned: token !== "", hasOlder: this.#next !== "", text: "" };
  }

  older() {
    this.#token = this.#next;
  }

  first() {
    this.#token = "";
  }

  close() {}
}

/** Runs of one kind. The gateway knows no kinds: its pages are read until there are enough of them. @implements {Pages} */
export class RunSearch {
  #isWanted;
  /** Runs that were found, newest first. @type {Run[]} */
  #found = [];
  /** Start of the next page. */
  #token = "";
  #isAtEnd = false;
  /** The newest of all runs when it was asked last; empty if there was none. @type {string | undefined} */
  #newest;
  #page = 0;
  #isClosed = false;

  /** @param {(run: Run) => boolean} isWanted Of a run that has ended it must never change. */
  constructor(isWanted) {
    this.#isWanted = isWanted;
  }

  /**
   * @param {Answer} newest
   * @param {AbortSignal} signal
   * @returns {Promise<Page>}
   */
  async read(newest, signal) {
    this.#take(newest.runs);
    await this.#readOpen(newest.runs, signal);
    await this.#find((this.#page + 1) * PAGE_SIZE + 1, signal);
    const number = this.#found.length;
    this.#page = Math.min(this.#page, Math.max(Math.ceil(number / PAGE_SIZE) - 1, 0));
    const begin = this.#page * PAGE_SIZE;
    const runs = this.#found.slice(begin, begin + PAGE_SIZE);
    const isWhole = this.#isAtEnd;
    const text = !number || number <= PAGE_SIZE ? "" : `${begin + 1} to ${begin + runs.length} of ${isWhole ? number : `${number} or more`}`;
    return { runs, isTurned: this.#page > 0, hasOlder: number > begin + PAGE_SIZE, text };
  }

  older() {
    this.#page += 1;
  }

  first() {
    this.#page = 0;
  }

  /** Look no further. */
  close() {
    this.#isClosed = true;
  }

  /** @param {Run[]} newest */
  #take(newest) {
    if (this.#newest !== undefined && !newest.some((run) => run.run_id === this.#newest)) {
      // So many runs are new that some came and went unseen.
      this.#found = [];
      this.#token = "";
      this.#isAtEnd = false;
    }
    this.#newest = newest[0]?.run_id ?? "";
    const ids = new Set(newest.map((run) => run.run_id));
    this.#found = [...newest.filter(this.#isWanted), ...this.#found.filter((run) => !ids.has(run.run_id))];
  }

  /**
   * Runs that were open: they may have ended.
   *
   * @param {Run[]} newest
   * @param {AbortSignal} signal
   */
  async #readOpen(newest, signal) {
    const ids = new Set(newest.map((run) => run.run_id));
    const open = this.#found.filter((run) => !hasEnded(run) && !ids.has(run.run_id)).slice(0, PAGE_SIZE * (this.#page + 1));
    const now = new Map((await Promise.all(open.map((run) => get(runPath(run.run_id), { signal })))).map((run) => [run.run_id, run]));
    this.#found = this.#found.map((run) => now.get(run.run_id) ?? run).filter(this.#isWanted);
  }

  /**
   * @param {number} least
   * @param {AbortSignal} signal
   */
  async #find(least, signal) {
    while (!this.#isAtEnd && !this.#isClosed && this.#found.length < least) {
      const page = await runsAfter(SEARCH_SIZE, this.#token, signal);
      const known = new Set(this.#found.map((run) => run.run_id));
      this.#found.push(...page.runs.filter((run) => this.#isWanted(run) && !known.has(run.run_id)));
      this.#token = page.next_page_token ?? "";
      this.#isAtEnd = !this.#token;
    }
  }
}
