// @ts-check
/**
 * What each stage of a run taught and what it made the model forget: the matrix stage by stage, and its measures in words.
 */

import { h, setAttribute, setText } from "../lib/dom.js";
import { NONE, count, percent } from "../lib/format.js";
import { heatTable } from "../lib/heat_table.js";
import { matrixOf } from "../lib/stages.js";
import { stat } from "../lib/stat.js";

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {ReturnType<typeof import("../lib/stat.js").stat>} Stat
 */

/** @type {import("../lib/run_state.js").MakeSection} */
export function section() {
  const pass = h("input", { type: "number", min: 1, step: 1, inputmode: "numeric", on: { change: () => draw() } });
  const choice = h("div", { class: "filters", hidden: true }, h("label", null, "Pass", pass));
  const where = h("p");
  const figures = {
    average: stat("Average accuracy (A)"),
    forgetting: stat("Forgetting (F)"),
    transfer: stat("Backward transfer (BWT)"),
    rare: stat("Rarer half of the classes"),
  };
  const stats = h("div", { class: "stats" }, Object.values(figures).map(({ element }) => element));
  const table = h("div", { class: "table-wrap heat-wrap", tabindex: 0, role: "region", "aria-label": "Accuracy on each stage after each stage" });
  const body = h("div", { class: "stack", hidden: true }, stats, table);
  const empty = h("p", { class: "muted" }, "There is a matrix when a round has been evaluated.");
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "stages-heading", hidden: true },
    h("div", { class: "card-head" }, h("h2", { id: "stages-heading" }, "Stages"), choice),
    where,
    empty,
    body,
  );
  /** @type {readonly Document[]} */
  let rounds = [];

  function draw() {
    const last = matrixOf(rounds, null);
    const wanted = Number(pass.value);
    const found = (wanted && matrixOf(rounds, wanted)) || last;
    setAttribute(body, "hidden", !found);
    setAttribute(empty, "hidden", found !== null);
    if (!found || !last) return;
    choice.hidden = last.pass < 2;
    pass.max = String(last.pass);
    pass.placeholder = String(last.pass);
    if (wanted && found.pass !== wanted) pass.value = "";
    showFigures(figures, found.line);
    table.replaceChildren(tableOf(found));
  }

  return {
    element,
    update(state) {
      const stream = state.run?.config.stream;
      element.hidden = !(stream?.stages > 1);
      if (element.hidden || state.rounds === rounds) return;
      rounds = state.rounds;
      setText(where, placeSentence(rounds.at(-1), stream));
      draw();
    },
  };
}

/**
 * Where the run is.
 *
 * @param {Document | undefined} last
 * @param {{stages: number, passes?: number}} stream
 */
export function placeSentence(last, { stages, passes = 1 }) {
  if (!last?.stage) return `Each of the ${count(stages)} stages has its own data. The first one begins with round 1.`;
  const pass = passes > 1 ? `pass ${count(last.pass)} of ${count(passes)}, ` : "";
  return `Round ${count(last.round)} was the last one to commit: ${pass}stage ${count(last.stage)} of ${count(stages)}.`;
}

/**
 * A difference of accuracies in points, with its sign.
 *
 * @param {number | null | undefined} value
 */
export function points(value) {
  if (typeof value !== "number") return NONE;
  const text = Math.abs(100 * value).toFixed(1);
  return `${Number(text) === 0 ? "" : value < 0 ? "−" : "+"}${text} points`;
}

/**
 * @param {Record<"average" | "forgetting" | "transfer" | "rare", Stat>} figures
 * @param {Document} line
 */
function showFigures(figures, line) {
  const { average_accuracy: average, forgetting, backward_transfer: transfer, accuracy_minority: rare, accuracy_majority: frequent } = line;
  figures.average.show(percent(average), "mean over the stages so far");
  figures.forgetting.show(points(forgetting), inWords(forgetting, "below the best that earlier stages had", "above what earlier stages had at best"));
  figures.transfer.show(points(transfer), inWords(transfer, "better on earlier stages than right after them", "worse on earlier stages than right after them"));
  figures.rare.show(percent(rare), `the other classes: ${percent(frequent)}`);
}

/**
 * What a measure says, by its sign.
 *
 * @param {number | null | undefined} value
 * @param {string} positive
 * @param {string} negative
 */
function inWords(value, positive, negative) {
  if (typeof value !== "number") return "known from the second stage on";
  if (points(value) === points(0)) return "earlier stages are as they were";
  return value > 0 ? positive : negative;
}

/** @param {import("../lib/stages.js").Matrix} matrix */
function tableOf({ pass, rows, line }) {
  const width = Math.max(...rows.map(({ values }) => values.length));
  const columns = Array.from({ length: width }, (_, index) => index + 1);
  const suffix = line.pass > 1 ? ` of pass ${count(pass)}` : "";
  return heatTable({
    caption: `Accuracy on the test images of each stage (columns) after the last evaluated round of each stage${suffix} (rows)`,
    corner: "After",
    columns: columns.map((stage) => `On stage ${stage}`),
    rows: rows.map(({ stage, round, values }) => ({
      name: `Stage ${stage}, round ${count(round)}`,
      cells: columns.map((other) => cellOf(other, stage, values[other - 1])),
    })),
  });
}

/**
 * @param {number} other The stage that is tested.
 * @param {number} stage The last one that was trained on.
 * @param {number | null | undefined} value
 * @returns {import("../lib/heat_table.js").Cell}
 */
function cellOf(other, stage, value) {
  if (other > stage) return { text: "", share: null, title: "It came later." };
  if (typeof value !== "number") return { text: NONE, share: null, title: "No client reported." };
  return { text: percent(value), share: value };
}
