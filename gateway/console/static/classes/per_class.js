// @ts-check
/**
 * Accuracy per class by domain and by round, and the confusion of classes: read when somebody opens it.
 */

import { ApiError, runPath } from "../lib/api.js";
import { LineChart } from "../charts/line_chart.js";
import { MAX_CURVES, MAX_POINTS, classSeries, pointsAmong } from "./curves.js";
import { EVERY_DOMAIN, classAccuracy, classScores, countsByDomain, setsOf, spreadOut } from "./counts.js";
import { calibrationOf } from "./reliability.js";
import { heatTable } from "../lib/heat_table.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { NONE, count, percent, sentence } from "../lib/format.js";
import { bandsOf } from "../lib/stages.js";

/** Rounds that are compared side by side. */
const MAX_ROUNDS = 8;
/** Rounds whose reports are kept. */
const MAX_KEPT = 64;

/** @typedef {import("./counts.js").Report} Report */

/** @type {import("../lib/run_state.js").MakeSection} */
export function section({ runId, api, range }) {
  const round = h("select", { on: { change: () => chosen() } });
  const set = h("select", { class: "wide", on: { change: () => draw() } });
  const domain = h("select", { on: { change: () => draw() } });
  const said = h("p", { class: "muted small", role: "status" });
  const byDomain = scrolling("Accuracy per class by domain");
  const curves = new LineChart({
    name: "Accuracy of each class",
    format: percent,
    formatTick: (value) => `${Math.round(100 * value)} %`,
    range: { low: 0, high: 1 },
  });
  const drawn = h("p", { class: "muted small" });
  const byRound = scrolling("Accuracy per class by round");
  const confusion = scrolling("Confusion of classes");
  const scores = scrolling("Scores of each class");
  const sure = h("h3", null, "Probabilities");
  const calibration = scrolling("Probabilities against what is right");
  const without = h(
    "p",
    { class: "muted" },
    "The reports of this round have no confusion matrix. A run asks for it with ",
    h("code", null, "[evaluation] confusion = true"),
    " (at most 64 classes).",
  );
  const body = h(
    "div",
    { class: "stack", hidden: true },
    h("h3", null, "By domain"),
    byDomain,
    h("h3", null, "By round"),
    curves.element,
    drawn,
    byRound,
    h("h3", null, "Confusion"),
    without,
    confusion,
    scores,
    sure,
    calibration,
  );
  const element = h(
    "details",
    { class: "card disclosure", on: { toggle: () => opened() } },
    h("summary", null, h("h2", null, "Classes"), h("span", { class: "muted small" }, "Accuracy per class and confusion, by round and domain.")),
    h("div", { class: "filters" }, h("label", null, "Round", round), h("label", null, "Domain", domain), h("label", null, "Evaluation", set)),
    said,
    body,
  );
  const gone = new AbortController();
  /** Reports by round. @type {Map<number, Report[]>} */
  const known = new Map();
  /** Evaluated rounds, rising. @type {number[]} */
  let rounds = [];
  /** @type {readonly string[]} */
  let classes = [];
  /** @type {import("../lib/stages.js").Band[]} */
  let bands = [];
  /** Whether the last round is shown, whichever that is. */
  let isLast = true;
  let asked = 0;

  function opened() {
    if (element.open) void read();
  }

  function chosen() {
    isLast = round.selectedIndex === 0;
    void read();
  }

  /** Read the chosen round first, then those beside it. */
  async function read() {
    const ticket = ++asked;
    const wanted = Number(round.value);
    if (!rounds.length) return setText(said, "No round has been evaluated yet.");
    if (!known.has(wanted)) setText(said, `Reading round ${count(wanted)} …`);
    try {
      for (const number of [wanted, ...beside(), ...points()]) {
        if (!known.has(number)) {
          const page = await api.get(runPath(runId, `/evaluations?round=${number}`), { signal: gone.signal });
          keep(number, page.evaluations);
        }
        if (ticket !== asked || gone.signal.aborted) return;
        if (number === wanted) draw();
      }
      draw();
    } catch (error) {
      if (gone.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      setText(said, sentence(error.message));
    }
  }

  /** Rounds of the range that the charts show. */
  function within() {
    const [begin, end] = range ? range.within(rounds) : [0, rounds.length];
    return rounds.slice(begin, end);
  }

  /** Rounds that stand beside each other. */
  function beside() {
    return spreadOut(within(), MAX_ROUNDS);
  }

  /** Rounds that the curves go through. */
  function points() {
    return pointsAmong(within(), MAX_POINTS);
  }

  /**
   * @param {number} number
   * @param {Report[]} reports
   */
  function keep(number, reports) {
    known.set(number, reports);
    if (known.size > MAX_KEPT) known.delete(/** @type {number} */ (known.keys().next().value));
  }

  function draw() {
    const number = Number(round.value);
    const reports = known.get(number);
    if (!reports) return;
    choices(set, setsOf(reports));
    const found = countsByDomain(reports, set.value);
    const domains = [...found.keys()];
    choices(domain, (domains.length > 1 ? [EVERY_DOMAIN, ...domains.slice(0, -1)] : domains).map((name) => ({ key: name, label: name })));
    setAttribute(body, "hidden", found.size === 0);
    setText(said, found.size === 0 ? `No client reported on round ${count(number)}.` : "");
    if (found.size === 0) return;
    byDomain.replaceChildren(
      heatTable({
        caption: `Accuracy per class in round ${count(number)}; a column for each domain`,
        corner: "Class",
        columns: domains,
        rows: classes.map((name, index) => ({ name, cells: domains.map((each) => accuracyCell(found.get(each), index)) })),
      }),
    );
    const there = beside().filter((each) => known.has(each));
    const columns = there.map((each) => countsByDomain(known.get(each) ?? [], set.value).get(domain.value));
    byRound.replaceChildren(
      heatTable({
        caption: `Accuracy per class of ${domain.value}; a column for each of ${there.length < rounds.length ? `${there.length} rounds of ${count(rounds.length)}` : "the rounds"}`,
        corner: "Class",
        columns: there.map((each) => count(each)),
        rows: classes.map((name, index) => ({ name, cells: columns.map((counts) => accuracyCell(counts, index)) })),
      }),
    );
    drawCurves();
    drawConfusion(number, found.get(domain.value));
    const drawnCalibration = calibrationOf(reports, set.value, domain.value === EVERY_DOMAIN ? null : domain.value, classes);
    setAttribute(sure, "hidden", !drawnCalibration.length);
    setAttribute(calibration, "hidden", !drawnCalibration.length);
    calibration.replaceChildren(...drawnCalibration);
  }

  function drawCurves() {
    const there = [...new Set([...beside(), ...points()])].filter((each) => known.has(each)).sort((one, other) => one - other);
    const counts = there.map((each) => countsByDomain(known.get(each) ?? [], set.value).get(domain.value));
    const series = classSeries(classes, counts);
    curves.update(there, series, bands);
    const some = [
      there.length < within().length ? `${count(there.length)} of ${count(within().length)} rounds` : "",
      series.length < classes.length ? `the ${MAX_CURVES} of ${count(classes.length)} classes with the least accuracy` : "",
    ].filter(Boolean);
    setText(drawn, some.length ? `The curves show ${some.join(", and ")}.` : "");
    drawn.hidden = !drawn.textContent;
  }

  /**
   * @param {number} number
   * @param {import("./counts.js").Counts | undefined} counts
   */
  function drawConfusion(number, counts) {
    const matrix = counts?.confusion ?? null;
    setAttribute(without, "hidden", matrix !== null);
    setAttribute(confusion, "hidden", matrix === null);
    setAttribute(scores, "hidden", matrix === null);
    if (!matrix || !counts) {
      scores.replaceChildren();
      return confusion.replaceChildren();
    }
    scores.replaceChildren(
      heatTable({
        caption: `Scores of each class of ${domain.value} in round ${count(number)}: recall is sensitivity`,
        corner: "Class",
        columns: ["recall", "precision", "specificity", "F1"],
        rows: classes.map((name, index) => ({
          name,
          cells: Object.values(classScores({ ...counts, confusion: matrix }, index)).map((share) => ({ text: share === null ? NONE : percent(share), share })),
        })),
      }),
    );
    confusion.replaceChildren(
      heatTable({
        caption: `Images of ${domain.value} in round ${count(number)}; a row for each true class, a column for each predicted class`,
        corner: "True class",
        columns: [...classes, "none"],
        rows: matrix.map((row, index) => ({
          name: classes[index] ?? "",
          cells: [...row, counts.total[index] - row.reduce((sum, value) => sum + value, 0)].map((value) => ({
            text: count(value),
            share: counts.total[index] > 0 ? value / counts.total[index] : null,
          })),
        })),
      }),
    );
  }

  range?.addEventListener("change", opened);

  return {
    element,
    update(state) {
      classes = state.run?.config.data?.classes ?? [];
      // Reports are there for rounds of which one set at least has an accuracy.
      const evaluated = state.rounds.filter((each) => each.accuracy !== null && each.accuracy !== undefined).map((each) => each.round);
      if (evaluated.length === rounds.length) return;
      // Where classes decide the score, they are looked at first.
      if (!rounds.length && state.run?.score?.name === "balanced_accuracy") element.open = true;
      rounds = evaluated;
      bands = bandsOf(state.rounds);
      const before = round.value;
      round.replaceChildren(...rounds.toReversed().map((each) => h("option", { value: each }, count(each))));
      if (!isLast && before) round.value = before;
      if (element.open) void read();
    },
    close() {
      gone.abort();
      range?.removeEventListener("change", opened);
    },
  };
}

/**
 * @param {import("./counts.js").Counts | undefined} counts
 * @param {number} index
 */
function accuracyCell(counts, index) {
  const share = classAccuracy(counts, index);
  if (share === null || !counts) return { text: NONE, share: null, title: "no image" };
  return { text: percent(share), share, title: `${count(counts.correct[index])} of ${count(counts.total[index])} images` };
}

/**
 * A wide table scrolls in itself, for the keyboard too.
 *
 * @param {string} label
 */
function scrolling(label) {
  return h("div", { class: "table-wrap heat-wrap", tabindex: 0, role: "region", "aria-label": label });
}

/**
 * Make a list's entries these; what is chosen stays if it is among them.
 *
 * @param {HTMLSelectElement} list
 * @param {{key: string, label: string}[]} entries
 */
function choices(list, entries) {
  const before = list.value;
  keyed(list, entries, ({ key }) => key, ({ key, label }) => h("option", { value: key }, label));
  if (entries.some(({ key }) => key === before)) list.value = before;
}
