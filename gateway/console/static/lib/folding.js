// @ts-check
/**
 * Sections of a page that fold: a heading that is always there, and what opens below it.
 */

import { h } from "./dom.js";

/**
 * A card whose content folds.
 *
 * @param {{id: string, title: string, hint?: string, class?: string, onToggle?: (isOpen: boolean) => void}} options `id` of the
 *   heading, `hint` what is inside.
 * @param {...(Node | null)} content
 * @returns {{element: HTMLElement, fold: HTMLDetailsElement, said: HTMLElement}} `said` is what shows the hint.
 */
export function foldingCard({ id, title, hint = "", class: kind = "", onToggle }, ...content) {
  const said = h("span", { class: "muted small" }, hint);
  const fold = h(
    "details",
    { class: "disclosure", on: { toggle: () => onToggle?.(fold.open) } },
    h("summary", null, h("h2", { id }, title), said),
    ...content,
  );
  return { element: h("section", { class: `card ${kind}`.trim(), "aria-labelledby": id }, fold), fold, said };
}
