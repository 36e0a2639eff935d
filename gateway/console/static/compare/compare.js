// @ts-check
/**
 * The page that compares two to five runs: curves of one chart, accuracy by domain, and the keys that differ. Its address
 * names the runs, the accuracy and the range of rounds.
 */

import { ApiError, get, roundPages, runPath } from "../lib/api.js";
import { LineChart } from "../charts/line_chart.js";
import { MAX_RUNS, compareLink, runsIn } from "../lib/compare_link.js";
import { accuracies } from "../charts/accuracy.js";
import { domainRows, keyRows, labelsOf, overlaidSeries } from "./content.js";
import { hasEnded } from "../lib/run_state.js";
import { keepInAddress, query } from "../lib/address.js";
import { picker } from "./picker.js";
import { rangeFields, rangeOf } from "../lib/round_range.js";
import { h, keyed, setAttribute, setText, svg } from "../lib/dom.js";
import { NONE, count, counted, percent, sentence } from "../lib/format.js";
import { announce, repeat, setTitle } from "../lib/shell.js";
import { colour, shape } from "../lib/palette.js";
import { spelled } from "../run/configuration_rows.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";

/** Pause between two reads of runs that have not ended. */
const INTERVAL_MS = 5000;

/**
 * @typedef {import("./content.js").Compared} Compared
 * @typedef {{runId: string, run: Record<string, any> | null, rounds: Record<string, any>[], problem: string}} Entry
 */

/** @param {HTMLElement} root */
export function show(root) {
  const range = rangeOf(query());
  range.addEventListener("change", () => keepInAddress({ from: range.from, to: range.to }));
  /** @type {Entry[]} */
  let entries = runsIn(query()).map((run) => entryOf(run));
  /** @type {import("../run/configuration_rows.js").Form | null} */
  let form = null;
  let which = query().get("accuracy") ?? "accuracy";

  const choose = picker((runId) => add(runId));
  const heading = h("h1", { tabindex: -1 }, "Compare runs");
  const said = h("p", { class: "muted", role: "status" });
  const runs = h("ul", { class: "compared-runs" });
  const chart = new LineChart({
    name: "Mean and worst accuracy of the runs",
    format: percent,
    formatTick: (value) => `${Math.round(100 * value)} %`,
    range: { low: 0, high: 1 },
    height: 320,
    rounds: range,
  });
  const fields = rangeFields(range);
  const noCurve = h("p", { class: "muted" }, "No round of these runs has been evaluated yet.");
  const kinds = h("select", { on: { change: () => chooseAccuracy() } });
  const kindsLabel = h("label", null, "Accuracy", kinds);
  const domains = h("div", { class: "table-wrap", tabindex: 0, role: "region", "aria-label": "Accuracy by domain" });
  const every = h("input", { type: "checkbox", on: { change: () => drawKeys() } });
  const keys = h("div", { class: "table-wrap compared-keys", tabindex: 0, role: "region", "aria-label": "Keys by run" });
  const keysSaid = h("p", { class: "muted small", role: "status" });
  const results = h(
    "div",
    { class: "stack-wide", hidden: true },
    h(
      "section",
      { class: "card", "aria-labelledby": "compare-curves" },
      h("div", { class: "card-head" }, h("h2", { id: "compare-curves" }, "Accuracy"), h("div", { class: "filters" }, kindsLabel)),
      noCurve,
      chart.element,
      fields.element,
    ),
    h("section", { class: "card", "aria-labelledby": "compare-domains" }, h("h2", { id: "compare-domains" }, "By domain"), domains),
    h(
      "section",
      { class: "card", "aria-labelledby": "compare-keys" },
      h("div", { class: "card-head" }, h("h2", { id: "compare-keys" }, "Configuration"), h("div", { class: "filters" }, h("label", null, every, "All keys"))),
      keysSaid,
      keys,
    ),
  );
  root.append(h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), h("span", { class: "muted" }, " / compare")), heading, said, runs, results, choose.element);
  const reading = repeat(read, INTERVAL_MS);

  /** @param {AbortSignal} signal */
  async function read(signal) {
    const wanted = entries;
    await Promise.all([readForm(signal), ...wanted.filter(({ run, problem }) => !problem && (!run || !hasEnded(run))).map((entry) => readOne(entry, signal))]);
    if (wanted === entries) draw();
  }

  /** @param {AbortSignal} signal */
  async function readForm(signal) {
    try {
      form ??= await get("/v1/run-configuration", { signal });
    } catch (error) {
      if (signal.aborted || !(error instanceof ApiError)) throw error;
      setText(keysSaid, sentence(error.message));
    }
  }

  /**
   * @param {Entry} entry
   * @param {AbortSignal} signal
   */
  async function readOne(entry, signal) {
    try {
      const run = await get(runPath(entry.runId), { signal });
      for await (const page of roundPages(entry.runId, entry.rounds.at(-1)?.round ?? -1, { signal })) {
        entry.rounds.push(...page.map((each) => each.metrics).filter(Boolean));
      }
      entry.run = run;
    } catch (error) {
      if (signal.aborted || !(error instanceof ApiError)) throw error;
      if (!error.mayPass) entry.problem = sentence(error.message);
    }
  }

  /** @param {string} runId */
  function add(runId) {
    if (entries.length >= MAX_RUNS || entries.some((entry) => entry.runId === runId)) return;
    change([...entries, entryOf(runId)]);
    announce(`Run ${runId} added. ${counted(entries.length, "run")} compared.`);
  }

  /** @param {string} runId */
  function remove(runId) {
    change(entries.filter((entry) => entry.runId !== runId));
    heading.focus({ preventScroll: true });
    announce(`Run ${runId} removed. ${counted(entries.length, "run")} compared.`);
  }

  /** @param {Entry[]} next */
  function change(next) {
    entries = next;
    const kept = new URLSearchParams([...query()].filter(([name]) => name !== "run"));
    const link = compareLink(next.map(({ runId }) => runId));
    const rest = kept.toString();
    history.replaceState(null, "", rest ? `${link}&${rest}` : link);
    draw();
    reading.soon();
  }

  function chooseAccuracy() {
    which = kinds.value;
    keepInAddress({ accuracy: which === "accuracy" ? null : which });
    draw();
  }

  /** Runs that have been read. @returns {Compared[]} */
  function compared() {
    const there = entries.flatMap(({ runId, run, rounds }) => (run ? [{ runId, run, rounds }] : []));
    const labels = labelsOf(there.map(({ run }) => run));
    return there.map((each, index) => ({ ...each, label: labels[index] }));
  }

  function draw() {
    const there = compared();
    keyed(runs, entries, ({ runId }) => runId, runCard, (card, entry) => updateCard(card, entry, entries.indexOf(entry)));
    choose.update(entries.map(({ runId }) => runId), entries.length >= MAX_RUNS);
    setText(said, sayWhat(entries.length));
    setAttribute(said, "hidden", !said.textContent);
    setAttribute(results, "hidden", there.length < 2);
    setTitle(there.length ? `Compare ${there.map(({ label }) => label).join(", ")}` : "Compare runs");
    if (there.length < 2) return;
    const known = accuracies(there.flatMap(({ rounds }) => rounds));
    keyed(kinds, known, (each) => each.which, (each) => h("option", { value: each.which }, each.label));
    if (!known.some((each) => each.which === which)) which = "accuracy";
    kinds.value = which;
    setAttribute(kindsLabel, "hidden", known.length < 2);
    const { rounds, series } = overlaidSeries(there, which);
    setAttribute(noCurve, "hidden", rounds.length > 0);
    chart.update(rounds, series);
    fields.element.hidden = rounds.length < 3;
    fields.setLast(rounds.at(-1) ?? 1);
    drawDomains(there);
    drawKeys();
  }

  /** @param {Compared[]} there */
  function drawDomains(there) {
    const found = domainRows(there, which);
    domains.replaceChildren(
      h(
        "table",
        null,
        h("caption", { class: "small muted" }, "Accuracy in the last evaluated round of each run; the best of a row has a ★"),
        h(
          "thead",
          null,
          h("tr", null, h("th", { scope: "col" }, "Domain"), there.map(({ label }, index) => h("th", { scope: "col", class: "number" }, label, h("div", { class: "small muted" }, `round ${count(found.rounds[index])}`)))),
        ),
        h(
          "tbody",
          null,
          found.rows.map(({ name, values, best }) =>
            h(
              "tr",
              null,
              h("th", { scope: "row" }, name),
              values.map((value, index) =>
                h("td", { class: "number", data: best.includes(index) ? { best: "" } : {} }, value === null ? NONE : percent(value), best.includes(index) ? h("span", { title: "best" }, " ★", h("span", { class: "visually-hidden" }, " best")) : null),
              ),
            ),
          ),
        ),
      ),
    );
  }

  function drawKeys() {
    const there = compared();
    if (!form || there.length < 2) return;
    const all = keyRows(there, form);
    const different = all.filter(({ isDifferent }) => isDifferent);
    const shown = every.checked ? all : different;
    setText(keysSaid, different.length ? `${counted(different.length, "key differs", "keys differ")} of ${all.length}.` : "The configurations are the same.");
    setAttribute(keys, "hidden", !shown.length);
    keys.style.setProperty("--columns", String(there.length + 1));
    keys.replaceChildren(
      h(
        "table",
        { class: "keys" },
        h("caption", { class: "visually-hidden" }, "Keys of the configurations by run"),
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Key"), there.map(({ label }) => h("th", { scope: "col" }, label)))),
        h(
          "tbody",
          null,
          shown.map(({ name, values, isDifferent }) =>
            h(
              "tr",
              { data: isDifferent && every.checked ? { changed: "" } : {} },
              h("th", { scope: "row" }, h("code", null, name)),
              values.map((value) => h("td", value === undefined ? { class: "muted" } : null, value === undefined ? "no such key" : spelled(value))),
            ),
          ),
        ),
      ),
    );
  }

  /** @param {Entry} entry */
  function runCard({ runId }) {
    return h(
      "li",
      { class: "card compared-run" },
      svg("svg", { class: "legend-swatch", viewBox: "-14 -7 28 14", "aria-hidden": "true" }),
      h("div", { class: "found-name" }, h("a", { href: `#/runs/${runId}` }, runId), h("span", { class: "muted small mono" }, runId)),
      statusBadge("pending"),
      h("span", { class: "small muted" }),
      h("button", { class: "button button-small", type: "button", on: { click: () => remove(runId) } }, "Remove"),
    );
  }

  draw();
  return () => {
    reading.stop();
    choose.close();
  };
}

/** @param {string} runId @returns {Entry} */
function entryOf(runId) {
  return { runId, run: null, rounds: [], problem: "" };
}

/**
 * @param {Element} card
 * @param {Entry} entry
 * @param {number} index
 */
function updateCard(card, { runId, run, problem }, index) {
  const [swatch, title, badge, facts, button] = card.children;
  const name = run?.name || runId;
  swatch.replaceChildren(
    svg("path", { d: "M-14 0H14", stroke: colour(index), "stroke-width": 2.5, fill: "none" }),
    svg("path", { d: shape(index).path, transform: "scale(4)", fill: colour(index) }),
  );
  setText(title.children[0], name);
  setAttribute(title.children[1], "hidden", name === runId);
  setAttribute(badge, "hidden", !run);
  if (run) updateStatusBadge(badge, run.status);
  setText(facts, problem || (run ? `${run.method}, round ${count(Math.max(run.round, 0))} of ${count(run.total_rounds)}` : "Reading …"));
  setAttribute(button, "aria-label", `Remove ${name}`);
}

/** @param {number} number Of runs. */
function sayWhat(number) {
  if (number === 0) return "Choose two to five runs below. The address of this page keeps the choice.";
  if (number === 1) return "Choose one to four more runs below.";
  return number === MAX_RUNS ? `These are ${MAX_RUNS} runs, the most that are compared at a time.` : "";
}
