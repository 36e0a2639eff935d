// @ts-check
/**
 * The federation at a glance: what runs, who is there, who has a problem, and what ran before.
 */

import { allClients, get, runPath } from "../lib/api.js";
import { clientSummary } from "../clients/summary.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, count, counted, percent, sentence } from "../lib/format.js";
import { standing } from "../lib/standing.js";
import { repeat } from "../lib/shell.js";
import { staleNotice } from "../lib/stale_notice.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";
import { pastRuns } from "./past_runs.js";
import { addressOf, isEverything, pathOf, searchOf } from "./search.js";

/** Pause between two reads of runs and clients. */
const INTERVAL_MS = 3000;
/** Open runs that have a card; the others are in the table. */
const MAX_CARDS = 12;
const OPEN_RUNS = searchOf("show=open");

/** @typedef {Record<string, any>} Run */

/**
 * @param {HTMLElement} root
 * @param {Record<string, string>} params `query`: what is looked for among earlier runs.
 */
export function show(root, params) {
  const notice = staleNotice();
  const cards = h("div", { class: "run-cards" });
  const heading = h("h2", { id: "open-runs" });
  const every = h("a", { href: addressOf(OPEN_RUNS), hidden: true });
  const open = h("section", { class: "open-runs", "aria-labelledby": "open-runs", hidden: true }, heading, cards, every);
  const idle = h("p", { class: "muted", hidden: true }, "No run is open.");
  const summary = clientSummary();
  const past = pastRuns(searchOf(params.query), () => asking.soon());
  const empty = h("div", { hidden: true });
  const content = h("div", { class: "overview", hidden: true }, open, idle, summary.element, past.element);
  root.append(h("div", { class: "page-head" }, h("h1", null, "Federation")), notice.element, empty, content);

  const read = async (/** @type {AbortSignal} */ signal) => {
    const [opened, clients, earlier] = await Promise.all([
      get(pathOf(OPEN_RUNS, MAX_CARDS, ""), { signal }),
      allClients({ signal }),
      past.read(signal),
    ]);
    // A list has no clients: the cards show those of each open run.
    /** @type {Run[]} */
    const openRuns = await Promise.all(opened.runs.map(async (/** @type {Run} */ run) => ({ ...run, ...(await get(runPath(run.run_id), { signal })) })));
    const isNew = !opened.total && !clients.length && isEverything(earlier.search) && !earlier.total;
    // Few visits need it.
    if (isNew && !empty.childElementCount) empty.replaceChildren((await import("./welcome.js")).beginning());
    setAttribute(empty, "hidden", !isNew);
    setAttribute(content, "hidden", isNew);
    setAttribute(open, "hidden", !openRuns.length);
    setAttribute(idle, "hidden", openRuns.length > 0);
    setText(heading, `Open runs (${count(opened.total)})`);
    setText(every, `All ${count(opened.total)} open runs`);
    setAttribute(every, "hidden", opened.total <= openRuns.length);
    summary.update(clients);
    keyed(cards, openRuns, (run) => run.run_id, createCard, (card, run) => updateCard(card, run, clients));
    earlier.draw();
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
 * @param {Run[]} clients
 */
function updateCard(card, run, clients) {
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
  const isBalanced = run.score === "balanced_accuracy";
  setText(mean.children[0], isBalanced ? "Mean, balanced" : "Mean accuracy");
  setText(mean.children[1], percent(run.mean_accuracy));
  setText(worst.children[1], percent(run.worst_accuracy));
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
