// @ts-check
/**
 * Announcements for screen readers about changes of a run's state. Pure.
 */

import { percent } from "../lib/format.js";
import { hasEnded } from "../lib/run_state.js";

/** @typedef {import("../lib/run_state.js").RunState} RunState */

/**
 * @param {RunState} before
 * @param {RunState} after
 * @returns {string} Empty for nothing.
 */
export function spokenChange(before, after) {
  if (!before.run || !after.run) return "";
  if (before.run.status !== after.run.status) return `The run is ${after.run.status}`;
  if (before.run.is_pause_requested !== after.run.is_pause_requested) {
    return after.run.is_pause_requested ? "The run pauses when the open round has committed" : "The run does not pause";
  }
  const wasOut = outOf(before.run);
  const isOut = outOf(after.run);
  const left = [...isOut].find((name) => !wasOut.has(name));
  if (left !== undefined) return `Client ${left} is quarantined`;
  const back = [...wasOut].find((name) => !isOut.has(name));
  if (back !== undefined) return `Client ${back} takes part again`;
  const wasLost = before.connection.state === "lost";
  const isLost = after.connection.state === "lost";
  if (isLost && !wasLost) return "Connection lost; trying again";
  if (after.connection.state === "live" && wasLost) return "Connected again";
  const round = after.rounds.at(-1);
  if (round && !hasEnded(after.run) && round.round > (before.rounds.at(-1)?.round ?? 0)) {
    const result = round.accuracy ? `mean accuracy ${percent(round.accuracy.mean)}` : "not evaluated";
    return `Round ${round.round} of ${after.run.total_rounds}: ${result}`;
  }
  return "";
}

/**
 * Ids of the clients that are quarantined.
 *
 * @param {import("../lib/run_state.js").Document} run
 * @returns {Set<string>}
 */
function outOf(run) {
  return new Set(run.quarantined.map((/** @type {any} */ entry) => entry.client_id));
}
