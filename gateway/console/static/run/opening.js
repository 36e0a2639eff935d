// @ts-check
/**
 * First reads of a run's page. They start with the navigation, while the page's modules still load.
 */

import { get, roundPages, runPath } from "../lib/api.js";
import { MAX_EVENTS } from "../lib/run_state.js";

/**
 * @typedef {{page: any, run: any, rounds: any[]}} Opening The newest events, the run's document and the first of its rounds.
 */

/** Reads that were started and not used yet. @type {{runId: string, answers: Promise<Opening>} | null} */
let waiting = null;

/**
 * Start the first reads of a run's page; `opening` returns them.
 *
 * @param {string} runId
 */
export function begin(runId) {
  const answers = ask(runId);
  answers.catch(() => {}); // whoever takes them hears of it
  waiting = { runId, answers };
}

/**
 * The first reads of a run's page: already started ones, once, or new ones.
 *
 * @param {string} runId
 * @param {{signal: AbortSignal}} options
 * @returns {Promise<Opening>}
 */
export function opening(runId, options) {
  const found = waiting;
  waiting = null;
  return found?.runId === runId ? found.answers : ask(runId, options);
}

/**
 * @param {string} runId
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<Opening>}
 */
async function ask(runId, options = {}) {
  const [page, run, { value: rounds }] = await Promise.all([
    get(runPath(runId, `/events?order=newest_first&page_size=${MAX_EVENTS}`), options),
    get(runPath(runId), options),
    roundPages(runId, -1, options).next(),
  ]);
  return { page, run, rounds };
}
