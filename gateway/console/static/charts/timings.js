// @ts-check
/**
 * Durations of rounds by phase, and bytes of their updates. They are read when the section opens, and then line by line as
 * rounds commit.
 */

import { ApiError, runPath } from "../lib/api.js";
import { LineChart } from "./line_chart.js";
import { h, setText } from "../lib/dom.js";
import { foldingCard } from "../lib/folding.js";
import { bytes, duration, number, sentence } from "../lib/format.js";
import { colour, dash, shape } from "../lib/palette.js";
import { PHASES } from "../lib/standing.js";
import { repeat } from "../lib/shell.js";
import { bandsOf } from "../lib/stages.js";

/**
 * @typedef {import("../lib/run_state.js").Document} Document
 * @typedef {import("./line_chart.js").Series} Series
 */

/** Pause between two reads of new lines while the run may add some. */
const INTERVAL_MS = 2000;

/**
 * A line for each phase, and the whole round.
 *
 * @param {readonly Document[]} lines Of timings.jsonl.
 * @returns {{rounds: number[], series: Series[]}}
 */
export function secondsSeries(lines) {
  const phases = Object.entries(PHASES).filter(([phase]) => lines.some((line) => line.seconds[phase] !== undefined));
  return {
    rounds: lines.map((line) => line.round),
    series: [
      { key: "total", label: "whole round", values: lines.map((line) => line.seconds.total ?? null), colour: "var(--text)", width: 2.5 },
      ...phases.map(([phase, label], index) => ({
        key: phase,
        label,
        values: lines.map((line) => line.seconds[phase] ?? null),
        colour: colour(index),
        dash: dash(index),
        mark: shape(index).path,
      })),
    ],
  };
}

/** @type {import("../lib/run_state.js").MakeSection} */
export function section({ runId, api, range: shown }) {
  const seconds = new LineChart({ name: "Seconds of a round by phase", rounds: shown, format: spell, canBeLog: true, range: { low: 0, high: 0 }, height: 240 });
  const sizes = new LineChart({ name: "Bytes of a round's updates", rounds: shown, format: bytes, range: { low: 0, high: 0 }, height: 240 });
  const note = h("p", { class: "muted", role: "status" });
  const { element, fold } = foldingCard(
    { id: "timings-heading", title: "Time and data of the rounds", hint: "Seconds by phase, bytes that clients sent.", onToggle: () => turn() },
    note,
    h(
      "div",
      { class: "columns" },
      h("div", null, h("h3", null, "Seconds by phase"), seconds.element),
      h("div", null, h("h3", null, "Updates received"), sizes.element),
    ),
  );
  /** @type {Document[]} */
  const lines = [];
  let committed = 0;
  /** @type {import("../lib/stages.js").Band[]} */
  let bands = [];
  /** @type {ReturnType<typeof repeat> | null} */
  let asking = null;

  /** @param {AbortSignal} signal */
  async function read(signal) {
    const last = lines.at(-1)?.round ?? -1;
    if (lines.length && committed <= last) return;
    try {
      const found = await api.getLines(runPath(runId, `/timings.jsonl?after=${last}`), { signal });
      lines.push(...found);
      setText(note, lines.length ? "" : "There is something to see when round 1 has committed.");
      const { rounds, series } = secondsSeries(lines);
      seconds.update(rounds, series, bands);
      const received = { key: "received", label: "received from clients", values: lines.map((line) => line.bytes_received), colour: colour(0), mark: shape(0).path };
      sizes.update(rounds, [received], bands);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setText(note, `${sentence(error.message)} Trying again …`);
    }
    note.hidden = !note.textContent;
  }

  function turn() {
    asking?.stop();
    asking = fold.open ? repeat(read, INTERVAL_MS) : null;
  }

  return {
    element,
    update(state) {
      committed = state.rounds.at(-1)?.round ?? 0;
      bands = bandsOf(state.rounds);
    },
    close() {
      asking?.stop();
    },
  };
}

/** @param {number | null} value Seconds. */
function spell(value) {
  return value !== null && value < 10 ? `${number(value, 2)} s` : duration(value);
}
