// @ts-check
/**
 * The values of a line chart as a table, newest round first.
 */

import { h } from "../lib/dom.js";
import { NONE, count } from "../lib/format.js";
import { stageName } from "../lib/stages.js";

/** Rounds that a table shows. */
const MAX_ROWS = 200;

/**
 * @param {{name: string, format: (value: number | null) => string}} options
 * @param {readonly number[]} rounds Rising.
 * @param {readonly import("./line_chart.js").Series[]} series
 * @param {readonly import("../lib/stages.js").Band[]} bands
 */
export function chartTable({ name, format }, rounds, series, bands) {
  const last = rounds.length - 1;
  const indices = Array.from({ length: Math.min(MAX_ROWS, last + 1) }, (_, offset) => last - offset);
  const columns = series.filter((each) => !each.isBand);
  const isCut = last + 1 > MAX_ROWS;
  return h(
    "table",
    null,
    h(
      "caption",
      { class: isCut ? "small muted" : "visually-hidden" },
      isCut ? `${name}: the last ${MAX_ROWS} of ${count(last + 1)} rounds; metrics.jsonl has them all` : name,
    ),
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        h("th", { scope: "col" }, "Round"),
        bands.length > 0 && h("th", { scope: "col" }, "Stage"),
        columns.map(({ label }) => h("th", { scope: "col", class: "number" }, label)),
      ),
    ),
    h(
      "tbody",
      null,
      indices.map((index) =>
        h(
          "tr",
          null,
          h("th", { scope: "row" }, count(rounds[index])),
          bands.length > 0 && h("td", null, stageName(bands, rounds[index])),
          columns.map(({ values }) => h("td", { class: "number" }, format(values[index] ?? null) || NONE)),
        ),
      ),
    ),
  );
}
