// @ts-check
/**
 * What a run's page asks first. It is asked for as soon as somebody wants the page, while the page's modules still come.
 */

import { get, roundPages, runPath } from "../lib/api.js";
import { MAX_EVENTS } from "../lib/run_state.js";

/**
 * @typedef {{page: any, run: any, rounds: any[]}} Opening The newest events, the run's document and the first of its rounds.
 */

/** What was asked for and is not taken yet. @type {{runId: string, answers: Promise<Opening>} | null} */
let waiting = null;

/**
 * Ask for what the page of a run begins with; `opening` gives it.
 *
 * @param {string} runId
 */
export function begin(runId) {
  const answers = ask(runId);
  answers.catch(() => {}); // whoever takes them hears of it
  waiting = { runId, answers };
}

/**
 * What the page of a run begins with: what was asked for already, once, or asked for now.
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
