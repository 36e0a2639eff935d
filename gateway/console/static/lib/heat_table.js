// @ts-check
/**
 * Tables of numbers whose cells are the deeper coloured the greater the number: a heat map that everybody can read.
 */

import { h } from "./dom.js";

/**
 * @typedef {{text: string, share: number | null, title?: string}} Cell `share` from 0 to 1 is the depth of the colour; null is
 *   a cell without a value.
 */

/**
 * @param {{caption: string, corner: string, columns: readonly string[], rows: readonly {name: string, cells: readonly Cell[]}[]}} content
 */
export function heatTable({ caption, corner, columns, rows }) {
  return h(
    "table",
    { class: "heat" },
    h("caption", { class: "small muted" }, caption),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, corner), columns.map((name) => h("th", { scope: "col", class: "number", title: name }, name)))),
    h(
      "tbody",
      null,
      rows.map(({ name, cells }) => h("tr", null, h("th", { scope: "row", title: name }, name), cells.map((cell) => cellOf(cell)))),
    ),
  );
}

/** @param {Cell} cell */
function cellOf({ text, share, title }) {
  const depth = share === null ? null : { "--depth": `${Math.round(50 * Math.max(0, Math.min(1, share)))}%` };
  return h("td", { class: "number", style: depth ?? {}, title, data: share === null ? {} : { heat: "" } }, text);
}
