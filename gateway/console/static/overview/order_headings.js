// @ts-check
/**
 * Headings by which the gateway sorts a list over all of its pages: buttons in the headings, and aria-sort says which one counts.
 */

import { h, setAttribute } from "../lib/dom.js";

/**
 * A heading, and the gateway's orders that rise and fall by its column.
 *
 * @typedef {{name: string, kind?: string, rising: string, falling: string}} Heading
 */

/**
 * A press sorts upwards, the next one downwards, and a third one returns to the usual order.
 *
 * @param {Heading[]} headings
 * @param {string} usual The usual order.
 * @param {(order: string) => void} onOrder
 */
export function orderHeadings(headings, usual, onOrder) {
  let order = usual;
  const cells = headings.map(({ name, kind, rising, falling }) => {
    const press = () => onOrder(order === rising ? falling : order === falling ? usual : rising);
    return h("th", { scope: "col", class: kind }, h("button", { class: "sort-button", type: "button", on: { click: press } }, name));
  });
  return {
    element: h("tr", null, cells),
    /** @param {string} present The order that the list has. */
    show(present) {
      order = present;
      headings.forEach(({ rising, falling }, index) =>
        setAttribute(cells[index], "aria-sort", order === rising ? "ascending" : order === falling ? "descending" : "none"),
      );
    },
  };
}
