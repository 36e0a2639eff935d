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
  const moved = h("p", { hidden: true });
  const { element, fold } = foldingCard(
    { id: "timings-heading", title: "Time and data of the rounds", hint: "Seconds by phase, bytes that clients sent.", onToggle: () => turn() },
    moved,
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
  /** @type {Document | null} */
  let foreseen = null;
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
      showMoved();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setText(note, `${sentence(error.message)} Trying again …`);
    }
    note.hidden = !note.textContent;
  }

  function showMoved() {
    setText(moved, [foreseenText(foreseen), measuredText(lines.at(-1))].filter(Boolean).join(" "));
    moved.hidden = !moved.textContent;
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
      foreseen = state.run?.round_bytes ?? null;
      showMoved();
    },
    close() {
      asking?.stop();
    },
  };
}

/**
 * The bytes that a round moves, known before it begins; empty before the run's first model is made.
 *
 * @param {Document | null} foreseen The run's `round_bytes`.
 */
export function foreseenText(foreseen) {
  if (!foreseen) return "";
  const { clients, up, down, first_down: first, prototypes_up: setUp, prototypes_down: setDown } = foreseen;
  const most = (/** @type {number} */ size) => (size ? ` and at most ${bytes(size)} of prototypes` : "");
  const who = clients === 1 ? "the client receives" : `each of ${clients} clients receives`;
  const later = first === down ? "" : ` (${bytes(first)} in its first round)`;
  const all = `${foreseen.is_bound ? "at most " : ""}${bytes(foreseen.all_up + foreseen.all_down)} in all`;
  return `In a round ${who} ${bytes(down)}${later}${most(setDown)} and sends ${bytes(up)}${most(setUp)}; ${all}.`;
}

/**
 * The bytes that a committed round moved; empty where no client tells.
 *
 * @param {Document | undefined} line Of timings.jsonl.
 */
export function measuredText(line) {
  const told = Object.values(line?.clients ?? {}).filter((each) => "sent_bytes" in each);
  if (!line || !told.length) return "";
  const sent = told.reduce((sum, each) => sum + each.sent_bytes, 0);
  const received = told.reduce((sum, each) => sum + (each.received_bytes ?? 0) + (each.evaluation_received_bytes ?? 0), 0);
  return `Round ${line.round} moved ${bytes(sent + received)}: clients received ${bytes(received)} and sent ${bytes(sent)}.`;
}

/** @param {number | null} value Seconds. */
function spell(value) {
  return value !== null && value < 10 ? `${number(value, 2)} s` : duration(value);
}
