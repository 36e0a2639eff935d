// @ts-check
/**
 * A notice above a page that asks again and again: it is there while what is below may be old.
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
     * Do something that asks the gateway; the notice says why it failed, until it succeeds.
     *
     * @param {() => Promise<void>} work
     */
    async during(work) {
      try {
        await work();
        setAttribute(element, "hidden", true);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        setText(text, `${sentence(error.message)} What is below may be old.`);
        setAttribute(element, "hidden", false);
      }
    },
  };
}
