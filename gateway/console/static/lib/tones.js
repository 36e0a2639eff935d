// @ts-check
/**
 * Badges of states: always a word, never a colour alone.
 */

import { h, setAttribute, setText } from "./dom.js";

/** @type {Record<string, string>} */
const TONES = {
  pending: "neutral",
  running: "info",
  paused: "warning",
  stopping: "warning",
  stopped: "neutral",
  completed: "good",
  failed: "bad",
};

/**
 * The badge of a run's status.
 *
 * @param {string} status
 */
export function statusBadge(status) {
  const badge = h("span", { class: "badge" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span"));
  updateStatusBadge(badge, status);
  return badge;
}

/**
 * @param {Element} badge
 * @param {string} status
 */
export function updateStatusBadge(badge, status) {
  setAttribute(badge, "data-tone", TONES[status] ?? "neutral");
  setText(/** @type {Element} */ (badge.lastElementChild), status);
}

/**
 * A badge in a tone: "good", "warning", "bad", "info" or "neutral".
 *
 * @param {string} text
 * @param {string} [tone]
 */
export function badge(text, tone = "neutral") {
  return h("span", { class: "badge", "data-tone": tone }, text);
}
