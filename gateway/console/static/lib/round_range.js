// @ts-check
/**
 * The range of rounds that the charts of a page show: one for all of them, and its fields.
 */

import { h, setAttribute, setText } from "./dom.js";
import { count } from "./format.js";

/** Largest round that a link may name. */
const MAX_ROUND = 2 ** 31 - 1;

/** A range of rounds; both ends belong to it, and an end that is null is open. Says "change". */
export class RoundRange extends EventTarget {
  /** @type {number | null} */
  from = null;
  /** @type {number | null} */
  to = null;

  /**
   * @param {number | null} from
   * @param {number | null} to
   */
  set(from, to) {
    const [low, high] = from !== null && to !== null && from > to ? [to, from] : [from, to];
    if (low === this.from && high === this.to) return;
    this.from = low;
    this.to = high;
    this.dispatchEvent(new Event("change"));
  }

  /** Whether it has all rounds. */
  get isWhole() {
    return this.from === null && this.to === null;
  }

  /** The range in words: "rounds 3 to 9". */
  get text() {
    if (this.isWhole) return "all rounds";
    if (this.to === null) return `rounds from ${count(this.from)}`;
    return this.from === null ? `rounds up to ${count(this.to)}` : `rounds ${count(this.from)} to ${count(this.to)}`;
  }

  /**
   * Half as many rounds around one, or twice as many.
   *
   * @param {number} around
   * @param {readonly number[]} rounds All that there are, rising.
   * @param {boolean} isCloser
   */
  zoom(around, rounds, isCloser) {
    const [first, last] = [rounds[0], rounds[rounds.length - 1]];
    const [low, high] = [Math.max(this.from ?? first, first), Math.min(this.to ?? last, last)];
    const length = isCloser ? Math.max(2, Math.ceil((high - low) / 2)) : 2 * Math.max(1, high - low);
    const from = Math.max(first, Math.min(Math.round(around - length / 2), last - length));
    const to = Math.min(last, from + length);
    this.set(from <= first ? null : from, to >= last ? null : to);
  }

  /**
   * Indices of the rounds within, as an argument of slice.
   *
   * @param {readonly number[]} rounds Rising.
   * @returns {[number, number]}
   */
  within(rounds) {
    const { from, to } = this;
    const begin = from === null ? 0 : rounds.findIndex((round) => round >= from);
    const end = to === null ? -1 : rounds.findIndex((round) => round > to);
    return [begin < 0 ? rounds.length : begin, end < 0 ? rounds.length : end];
  }
}

/**
 * The range that an address names.
 *
 * @param {URLSearchParams} query
 */
export function rangeOf(query) {
  const range = new RoundRange();
  range.set(roundIn(query.get("from")), roundIn(query.get("to")));
  return range;
}

/**
 * The fields of a range.
 *
 * @param {RoundRange} range
 */
export function rangeFields(range) {
  const from = roundInput("From round");
  const to = roundInput("To round");
  const whole = h("button", { class: "button button-small", type: "button", on: { click: () => backToAll() } }, "All rounds");
  const said = h("p", { class: "small muted", role: "status" });
  const hint = h("p", { class: "small muted round-range-hint" }, "Or draw across a chart with the mouse; with the keyboard press + or − at one.");
  const element = h(
    "div",
    { class: "round-range", role: "group", "aria-label": "Rounds that the charts show" },
    h("span", { class: "round-fields" }, h("label", null, "Rounds from", from), h("label", null, "to", to)),
    whole,
    said,
    hint,
  );
  for (const input of [from, to]) input.addEventListener("change", () => range.set(roundIn(from.value), roundIn(to.value)));

  function backToAll() {
    range.set(null, null);
    from.focus({ preventScroll: true });
  }

  /** Show the range as it is. */
  function draw() {
    from.value = range.from === null ? "" : String(range.from);
    to.value = range.to === null ? "" : String(range.to);
    setAttribute(whole, "hidden", range.isWhole);
    setText(said, range.isWhole ? "" : `The charts show ${range.text}.`);
  }

  range.addEventListener("change", draw);
  draw();
  return {
    element,
    /** @param {number} last The last round that there is. */
    setLast(last) {
      to.placeholder = count(last);
    },
  };
}

/** @param {string} name */
function roundInput(name) {
  return h("input", { type: "number", min: 1, step: 1, inputmode: "numeric", "aria-label": name, placeholder: "1" });
}

/** @param {string | null} text */
function roundIn(text) {
  return text && /^\d{1,10}$/.test(text) ? Math.min(Number(text), MAX_ROUND) : null;
}
