// @ts-check
/**
 * What a run does just now, in words. Pure.
 */

import { listed } from "./format.js";

/** Words for the phases of a round, in their order. */
export const PHASES = Object.freeze({
  initialising: "making the first model",
  collecting: "training",
  aggregating: "aggregating",
  evaluating: "evaluating",
  committed: "committed",
});

/**
 * Activity of a run, or the reason why it waits, in words.
 *
 * @param {Record<string, any>} run
 * @param {readonly string[]} missing Clients that its roster names and that are not connected.
 */
export function standing(run, missing) {
  switch (run.status) {
    case "pending":
      // The reason of a run that has not begun names nobody.
      return missing.length ? `waiting for ${listed(missing)} to connect` : run.reason || "waiting for its clients";
    case "running":
      if (run.reason) return `waiting: ${run.reason}`;
      return run.phase && run.phase !== "committed" ? PHASES[/** @type {"collecting"} */ (run.phase)] ?? run.phase : "";
    case "paused":
      return run.reason || "paused; it goes on when somebody resumes it";
    case "stopping":
      return "stopping: waiting for clients to put their work down";
    default:
      return run.reason;
  }
}
