// @ts-check
/**
 * The federation at a glance: what runs, who is there, who has a problem, and what ran before.
 */

import { get } from "../lib/api.js";
import { clientSummary } from "../clients/summary.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, counted, percent, sentence } from "../lib/format.js";
import { hasEnded } from "../lib/run_state.js";
import { standing } from "../lib/sentences.js";
import { repeat } from "../lib/shell.js";
import { staleNotice } from "../lib/stale_notice.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";
import { pastRuns } from "./past_runs.js";
import { Results } from "./results.js";
import { PAGE_SIZE, runsAfter } from "./run_pages.js";
import { beginning } from "./welcome.js";

/** Pause between two reads of runs and clients. */
const INTERVAL_MS = 3000;

/** @typedef {Record<string, any>} Run */

/**
 * @param {HTMLElement} root
 * @param {Record<string, string>} params `show`: which earlier runs.
 */
export function show(root, params) {
  const notice = staleNotice();
  const cards = h("div", { class: "run-cards" });
  const open = h("section", { class: "open-runs", "aria-labelledby": "open-runs", hidden: true }, h("h2", { id: "open-runs" }, "Open runs"), cards);
  const idle = h("p", { class: "muted", hidden: true }, "No run is open.");
  const summary = clientSummary();
  const past = pastRuns(params.show, () => asking.soon());
  const empty = beginning();
  empty.hidden = true;
  const content = h("div", { class: "overview", hidden: true }, open, idle, summary.element, past.element);
  root.append(h("div", { class: "page-head" }, h("h1", null, "Federation")), notice.element, empty, content);
  const results = new Results();

  const read = async (/** @type {AbortSignal} */ signal) => {
    const [newest, { clients }] = await Promise.all([runsAfter(PAGE_SIZE, "", signal), get("/v1/clients", { signal })]);
    const openRuns = newest.runs.filter((run) => !hasEnded(run));
    const drawCards = () => keyed(cards, openRuns, (run) => run.run_id, createCard, (card, run) => updateCard(card, run, results.of(run), clients));
    const isNew = !newest.runs.length && !clients.length;
    setAttribute(empty, "hidden", !isNew);
    setAttribute(content, "hidden", isNew);
    setAttribute(open, "hidden", !openRuns.length);
    setAttribute(idle, "hidden", openRuns.length > 0);
    summary.update(clients);
    drawCards();
    const { runs, draw } = await past.read(newest, signal);
    draw(results);
    // What runs have come to takes a question each: it is filled in.
    await results.read([...openRuns, ...runs], signal);
    drawCards();
    draw(results);
  };
  const asking = repeat((signal) => notice.during(() => read(signal)), INTERVAL_MS);
  return asking.stop;
}

/** @param {Run} run */
function createCard(run) {
  return h(
    "article",
    { class: "card run-card" },
    h("div", { class: "card-head" }, h("h3", null, h("a", { href: `#/runs/${run.run_id}` }, run.name || run.run_id)), statusBadge(run.status)),
    h("p", { class: "muted small" }),
    h("progress", { "aria-label": `Rounds of ${run.name || run.run_id}` }),
    h("div", { class: "stats" }, stat("Round"), stat("Mean accuracy"), stat("Worst domain"), stat("Clients")),
    h("p", { class: "small" }),
  );
}

/**
 * @param {Element} card
 * @param {Run} run
 * @param {Run | null} metrics
 * @param {Run[]} clients
 */
function updateCard(card, run, metrics, clients) {
  const [head, facts, bar, stats, reason] = card.children;
  updateStatusBadge(/** @type {Element} */ (head.lastElementChild), run.status);
  const connected = new Set(clients.filter((client) => client.is_connected).map((client) => client.client_id));
  const missing = run.roster.filter((/** @type {string} */ name) => !connected.has(name));
  setText(facts, `${run.method}, begun ${ago(run.created_at, Date.now())}`);
  const done = Math.max(run.phase === "committed" ? run.round : run.round - 1, 0);
  setAttribute(bar, "max", run.total_rounds);
  setAttribute(bar, "value", done);
  const [round, mean, worst, here] = stats.children;
  setText(round.children[1], `${Math.max(run.round, 0)} of ${run.total_rounds}`);
  setText(mean.children[1], percent(metrics?.accuracy?.mean));
  setText(worst.children[1], percent(metrics?.accuracy?.worst));
  setText(here.children[1], `${run.roster.length - missing.length} of ${run.roster.length}`);
  const isWorking = run.status === "running" && !run.reason;
  setText(reason, remark(run, standing(run, missing), isWorking));
  setAttribute(reason, "data-tone", isWorking || run.status === "pending" ? null : "warning");
}

/**
 * Activity of an open run, or the reason why it waits.
 *
 * @param {Run} run
 * @param {string} text
 * @param {boolean} isWorking
 */
function remark(run, text, isWorking) {
  if (!text) return "";
  if (!isWorking) return sentence(text);
  const absent = new Set(run.quarantined.map((/** @type {Run} */ entry) => entry.client_id));
  const waited = run.cohort.filter((/** @type {string} */ name) => !absent.has(name) || run.done_clients.includes(name));
  const counts = run.phase === "aggregating" ? "" : `, ${run.done_clients.length} of ${counted(waited.length, "client")} done`;
  const pause = run.is_pause_requested ? " It pauses when the round has committed." : "";
  return `Now ${text}${counts}.${pause}`;
}

/** @param {string} label */
function stat(label) {
  return h("dl", { class: "stat" }, h("dt", { class: "stat-label" }, label), h("dd", { class: "stat-value" }));
}
