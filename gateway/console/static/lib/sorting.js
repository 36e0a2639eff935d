// @ts-check
/**
 * Headings by which a person sorts a table: buttons in the headings, and aria-sort says which one counts. Where a table shows
 * no headings, as on a phone, a list of the same choices stands above it.
 */

import { h, setAttribute } from "./dom.js";

const letters = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

/**
 * A heading; without `by` its column cannot be sorted.
 *
 * @template T
 * @typedef {{name: string, kind?: string, by?: (row: T) => string | number | null}} Heading
 */

/**
 * The row of headings, the list of choices, and the order that they give.
 *
 * A press sorts upwards, the next one downwards, and a third one returns to the page's own order.
 *
 * @template T
 * @param {Heading<T>[]} headings
 * @param {(a: T, b: T) => number} usual The page's own order, and the order of rows with equal values.
 * @param {() => void} onChange
 */
export function sortedBy(headings, usual, onChange) {
  let [chosen, direction] = [-1, 1];
  /** @param {number} index */
  function press(index) {
    if (chosen !== index) take(index, 1);
    else if (direction > 0) take(index, -1);
    else take(-1, 1);
  }
  /** @param {number} index @param {number} to */
  function take(index, to) {
    [chosen, direction] = [index, to];
    cells.forEach((cell, each) => mark(cell, each));
    choice.value = nameOf(index, to);
    onChange();
  }
  /** @param {Element} cell @param {number} index */
  function mark(cell, index) {
    if (headings[index].by) setAttribute(cell, "aria-sort", index !== chosen ? "none" : direction > 0 ? "ascending" : "descending");
  }
  const cells = headings.map(({ name, kind, by }, index) =>
    h("th", { scope: "col", class: kind }, by ? h("button", { class: "sort-button", type: "button", on: { click: () => press(index) } }, name) : name),
  );
  cells.forEach((cell, index) => mark(cell, index));
  const sortable = headings.flatMap(({ name, by }, index) => (by ? [{ name, index }] : []));
  const choice = h(
    "select",
    { on: { change: () => take(...(/** @type {[number, number]} */ (choice.value.split(" ").map((part) => Number(part))))) } },
    h("option", { value: nameOf(-1, 1) }, "usual order"),
    sortable.flatMap(({ name, index }) => [
      h("option", { value: nameOf(index, 1) }, `${name}, rising`),
      h("option", { value: nameOf(index, -1) }, `${name}, falling`),
    ]),
  );
  return {
    element: h("tr", null, cells),
    choice: h("label", { class: "sort-choice" }, "Sort by", choice),
    /** @param {T} a @param {T} b */
    compare(a, b) {
      const by = headings[chosen]?.by;
      if (!by) return usual(a, b);
      const [left, right] = [by(a), by(b)];
      // What has no value comes last, whichever way the others go.
      if (left === null || right === null) return Number(left === null) - Number(right === null) || usual(a, b);
      const order = typeof left === "number" && typeof right === "number" ? left - right : letters.compare(String(left), String(right));
      return direction * order || usual(a, b);
    },
  };
}

/** @param {number} index @param {number} direction */
function nameOf(index, direction) {
  return `${index} ${direction}`;
}
