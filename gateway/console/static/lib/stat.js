// @ts-check
/**
 * A figure with its name and a remark.
 */

import { h, setText } from "./dom.js";

/** @param {string} label */
export function stat(label) {
  const value = h("dd", { class: "stat-value" });
  const note = h("dd", { class: "stat-note" });
  return {
    element: h("dl", { class: "stat" }, h("dt", { class: "stat-label" }, label), value, note),
    /**
     * @param {string} text
     * @param {string} remark
     */
    show(text, remark) {
      setText(value, text);
      setText(note, remark);
    },
  };
}
