// @ts-check
/**
 * Progress of a run: round k of T, the phase of the open round, and the main figures.
 */

import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { bytes, counted, duration, percent } from "../lib/format.js";
import { hasEnded, isStalled, secondsLeft } from "../lib/run_state.js";
import { PHASES } from "../lib/standing.js";
import { stat } from "../lib/stat.js";

/** Phases of a round after round 0, as steps. */
const STEPS = ["collecting", "aggregating", "evaluating", "committed"];

/** Phases that end when the clients are done. */
const COUNTED = new Set(["initialising", "collecting", "evaluating"]);

/** @type {import("../lib/run_state.js").MakeSection} */
export function section() {
  const round = stat("Round");
  const mean = stat("Mean accuracy");
  const worst = stat("Worst domain");
  const f1 = stat("Macro F1");
  const auc = stat("AUC");
  auc.element.title = "Mean area under the classes' ROC curves";
  const time = stat("Duration");
  const moves = stat("Traffic");
  moves.element.title = "Bytes that a round moves";
  const bar = h("progress", { "aria-label": "Rounds committed" });
  const steps = h("ol", { class: "steps", "aria-label": "Phases of the open round" });
  const element = h(
    "section",
    { class: "card", "aria-label": "Progress" },
    h("div", { class: "stats" }, round.element, mean.element, worst.element, f1.element, auc.element, time.element, moves.element),
    bar,
    steps,
  );
  /** @type {import("../lib/run_state.js").RunState | null} */
  let last = null;
  const ticking = setInterval(() => last && showTime(last), 1000);

  /** @param {import("../lib/run_state.js").RunState} state */
  function showTime(state) {
    const { run } = state;
    if (!run) return;
    const end = hasEnded(run) ? Date.parse(run.updated_at) : Date.now();
    const left = secondsLeft(state, Date.now());
    time.show(duration((end - Date.parse(run.created_at)) / 1000), isStalled(state, Date.now()) ? "stalled" : left === null ? "" : `about ${duration(left)} left`);
  }

  return {
    element,
    update(state) {
      last = state;
      const { run } = state;
      if (!run) return;
      const done = committedRounds(state);
      round.show(`${Math.max(run.round, 0)} of ${run.total_rounds}`, run.round < 0 ? "not begun" : `${done} committed`);
      setAttribute(bar, "max", run.total_rounds);
      setAttribute(bar, "value", done);
      const metrics = state.rounds.findLast((each) => each.accuracy);
      const accuracy = metrics?.balanced_accuracy ?? metrics?.accuracy ?? {};
      const isOlder = metrics !== undefined && metrics !== state.rounds.at(-1);
      const kind = metrics?.balanced_accuracy ? "balanced" : "";
      const score = run.score?.round === metrics?.round ? run.score : null;
      const about = [range(score?.mean), kind, metrics?.accuracy_of === "local" ? "of the clients' own models" : "", isOlder ? `in round ${metrics.round}` : ""];
      mean.show(percent(accuracy.mean), about.filter(Boolean).join(", "));
      worst.show(percent(accuracy.worst), [range(score?.worst), worstName(accuracy)].filter(Boolean).join(", "));
      showBeside(f1, run.score?.macro_f1, percent, isOlder ? `in round ${run.score?.round}` : "");
      showBeside(auc, run.score?.auc, area, isOlder ? `in round ${run.score?.round}` : "");
      showMoved(moves, run.round_bytes);
      showTime(state);
      showSteps(steps, state);
    },
    close() {
      clearInterval(ticking);
    },
  };
}

/**
 * The bytes that a round moves, known before round 1 begins.
 *
 * @param {{element: HTMLElement, show: (text: string, remark: string) => void}} figure
 * @param {import("../lib/run_state.js").Document | null | undefined} foreseen The run's `round_bytes`.
 */
function showMoved(figure, foreseen) {
  figure.element.hidden = !foreseen;
  if (!foreseen) return;
  const { clients, is_bound: isBound, all_up: up, all_down: down } = foreseen;
  figure.show(bytes(up + down), `${isBound ? "at most, " : ""}${counted(clients, "client")}: ${bytes(down)} down, ${bytes(up)} up`);
}

/**
 * A score that stands beside the accuracy, where clients report what it is made of.
 *
 * @param {{element: HTMLElement, show: (text: string, remark: string) => void}} figure
 * @param {Score | null | undefined} score Mean over domains.
 * @param {(value: number) => string} text
 * @param {string} when
 */
function showBeside(figure, score, text, when) {
  figure.element.hidden = !score;
  if (score) figure.show(text(score.value), [range(score, text), when].filter(Boolean).join(", "));
}

/** @typedef {{value: number, low: number, high: number}} Score */

/** @param {number} value */
const area = (value) => value.toFixed(3);

/**
 * How far a score may move with other test images; empty where that is not known.
 *
 * @param {Score | null | undefined} score
 * @param {(value: number) => string} [text]
 */
function range(score, text = percent) {
  return score ? `${text(score.low).replace(" %", "")} to ${text(score.high)}` : "";
}

/**
 * Rounds after round 0 that have committed.
 *
 * @param {import("../lib/run_state.js").RunState} state
 */
function committedRounds({ run, phase, rounds }) {
  const last = rounds.at(-1)?.round ?? 0;
  return Math.max(last, (run?.round ?? 0) - (phase === "committed" ? 0 : 1), 0);
}

/** @param {Record<string, number | null>} accuracy */
function worstName(accuracy) {
  const { worst } = accuracy;
  const found = Object.entries(accuracy).find(([name, value]) => !["mean", "worst"].includes(name) && value === worst);
  return worst === undefined || worst === null || !found ? "" : found[0];
}

/**
 * @param {HTMLElement} container
 * @param {import("../lib/run_state.js").RunState} state
 */
function showSteps(container, state) {
  const { run, phase } = state;
  const isOpen = run !== null && !hasEnded(run) && run.round >= 0;
  setAttribute(container, "hidden", !isOpen);
  if (!run || !isOpen) return;
  const steps = phase === "initialising" || run.round === 0 ? ["initialising", "committed"] : STEPS;
  const at = steps.indexOf(phase ?? "");
  keyed(
    container,
    steps,
    (name) => name,
    () =>
      h(
        "li",
        { class: "step" },
        h("progress", { max: 1, value: 0, "aria-hidden": "true" }),
        h("span", { class: "step-name" }),
        h("span", { class: "step-note" }),
      ),
    (element, name) => {
      const [bar, title, note] = element.children;
      const index = steps.indexOf(name);
      const isAt = index === at;
      setAttribute(element, "aria-current", isAt ? "step" : null);
      setAttribute(element, "data-done", index < at);
      setText(title, PHASES[/** @type {"collecting"} */ (name)]);
      const waited = Math.max(run.cohort.length - state.dropped.length, state.doneClients.length);
      const counts = isAt && COUNTED.has(name);
      setAttribute(bar, "value", index < at || (isAt && name === "committed") ? 1 : counts && waited ? state.doneClients.length / waited : 0);
      setText(note, counts ? `${state.doneClients.length} of ${counted(waited, "client")} done` : "");
    },
  );
}
