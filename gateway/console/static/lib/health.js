// @ts-check
/**
 * The mark at the top of every page: it shows whether the gateway and the aggregator answer.
 */

import { ApiError, get } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { repeat } from "./shell.js";

const INTERVAL_MS = 5000;

/**
 * Keep the mark true.
 *
 * @param {HTMLElement} element A live region.
 */
export function watchHealth(element) {
  const text = h("span", { class: "health-text" });
  const version = h("span", { class: "health-version" });
  element.append(h("span", { class: "dot", "aria-hidden": "true" }), text, version);

  /**
   * @param {string} state
   * @param {string} words
   */
  function say(state, words) {
    setAttribute(element, "data-state", state);
    setText(text, words);
  }

  repeat(async (signal) => {
    try {
      const ready = await get("/readyz", { signal });
      say("ok", "Aggregator ready");
      setText(version, ready.version);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const isGateway = error.status === 0;
      say("bad", isGateway ? "Gateway does not answer" : "Aggregator does not answer");
    }
  }, INTERVAL_MS);
}
