// @ts-check
/**
 * The notice above a page that reads repeatedly; it is visible while the page may be out of date.
 */

import { ApiError } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { sentence } from "./format.js";

/** The notice, and what shows and hides it. */
export function staleNotice() {
  const text = h("p");
  const element = h("div", { class: "notice", "data-tone": "bad", role: "alert", hidden: true }, text);
  return {
    element,
    /**
     * Run a read; after a failure the notice gives the reason, until a read succeeds.
     *
     * @param {() => Promise<void>} work
     */
    async during(work) {
      try {
        await work();
        setAttribute(element, "hidden", true);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        // Above every page a bar says it while nobody answers.
        setAttribute(element, "hidden", error.isAway);
        setText(text, `${sentence(error.message)} What is below may be old.`);
      }
    },
  };
}
