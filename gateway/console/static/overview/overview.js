// @ts-check
/**
 * The federation at a glance: what runs, who is there, who has a problem, and what ran before.
 */

import { get, roundPages } from "../lib/api.js";
import { clientSummary } from "../clients/summary.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, counted, dateTime, duration, percent, sentence } from "../lib/format.js";
import { hasEnded } from "../run/state.js";
import { standing } from "../run/sentences.js";
import { repeat } from "../lib/shell.js";
import { staleNotice } from "../lib/stale_notice.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";
import { beginning } from "./welcome.js";

/** How often runs and clients are asked for. */
const INTERVAL_MS = 3000;
/** Runs of a page. */
const PAGE_SIZE = 20;

/** @typedef {Record<string, any>} Run */

/** @param {HTMLElement} root */
export function show(root) {
  const notice = staleNotice();
  const cards = h("div", { class: "run-cards" });
  const open = h("section", { class: "open-runs", "aria-labelledby": "open-runs", hidden: true }, h("h2", { id: "open-runs" }, "Open runs"), cards);
  const idle = h("p", { class: "muted", hidden: true }, "No run is open.");
  const summary = clientSummary();
  const table = pastRuns((token) => {
    pageToken = token;
    asking.soon();
  });
  const empty = beginning();
  empty.hidden = true;
  const content = h("div", { class: "overview", hidden: true }, open, idle, summary.element, table.element);
  root.append(h("div", { class: "page-head" }, h("h1", null, "Federation")), notice.element, empty, content);

  const results = new Results();
  let pageToken = "";

  const read = async (/** @type {AbortSignal} */ signal) => {
    const [newest, { clients }, page] = await Promise.all([
      get(`/v1/runs?page_size=${PAGE_SIZE}`, { signal }),
      get("/v1/clients", { signal }),
      pageToken ? get(`/v1/runs?page_size=${PAGE_SIZE}&page_token=${encodeURIComponent(pageToken)}`, { signal }) : null,
    ]);
    const openRuns = newest.runs.filter((/** @type {Run} */ run) => !hasEnded(run));
    const shown = page ?? newest;
    const past = page ? page.runs : newest.runs.filter(hasEnded);
    const draw = () => {
      keyed(cards, openRuns, (/** @type {Run} */ run) => run.run_id, createCard, (card, run) => updateCard(card, run, results.of(run), clients));
      table.update(past, results, shown.next_page_token, Boolean(page));
    };
    const isNew = !newest.runs.length && !clients.length;
    setAttribute(empty, "hidden", !isNew);
    setAttribute(content, "hidden", isNew);
    setAttribute(open, "hidden", !openRuns.length);
    setAttribute(idle, "hidden", openRuns.length > 0);
    summary.update(clients);
    draw();
    // What runs have come to takes a question each: it is filled in.
    await results.read([...openRuns, ...past], signal);
    draw();
  };
  const asking = repeat((signal) => notice.during(() => read(signal)), INTERVAL_MS);
  return asking.stop;
}

/** Metrics of runs' last committed rounds; read once for each round. */
class Results {
  /** @type {Map<string, {round: number, metrics: Run}>} */
  #known = new Map();

  /** @param {Run} run */
  of(run) {
    return this.#known.get(run.run_id)?.metrics ?? null;
  }

  /**
   * @param {Run[]} runs
   * @param {AbortSignal} signal
   */
  async read(runs, signal) {
    await Promise.all(runs.map((run) => this.#readOne(run, signal)));
  }

  /**
   * @param {Run} run
   * @param {AbortSignal} signal
   */
  async #readOne(run, signal) {
    const round = run.phase === "committed" ? run.round : run.round - 1;
    if (round < 1 || this.#known.get(run.run_id)?.round === round) return;
    // An interrupted round comes last and has no metrics: the one before it is asked for too.
    for await (const rounds of roundPages(run.run_id, Math.max(run.round - 2, 0), { signal })) {
      const metrics = rounds.map((each) => each.metrics).filter(Boolean).at(-1) ?? null;
      if (metrics) this.#known.set(run.run_id, { round, metrics });
    }
  }
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
  setText(mean.children[1], percent(metrics?.accuracy.mean));
  setText(worst.children[1], percent(metrics?.accuracy.worst));
  setText(here.children[1], `${run.roster.length - missing.length} of ${run.roster.length}`);
  const isWorking = run.status === "running" && !run.reason;
  setText(reason, remark(run, standing(run, missing), isWorking));
  setAttribute(reason, "data-tone", isWorking || run.status === "pending" ? null : "warning");
}

/**
 * What an open run does, or waits for.
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

/** @param {(token: string) => void} turn Asks for the page that a token names; "" is the first. */
function pastRuns(turn) {
  const body = h("tbody");
  // Takes the focus when a page is turned: the button that was pressed may be of no use then.
  const heading = h("h2", { id: "past-runs", tabindex: -1 }, "Earlier runs");
  let next = "";
  const newest = h("button", { class: "button button-small", type: "button", disabled: true, on: { click: () => leaf("") } }, "Newest");
  const older = h("button", { class: "button button-small", type: "button", disabled: true, on: { click: () => leaf(next) } }, "Older");
  const pager = h("div", { class: "pager" }, newest, older);
  const headings = [["Run"], ["Status"], ["Method"], ["Rounds", "number"], ["Mean", "number"], ["Worst", "number"], ["Took", "number"], ["Ended"]];
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "past-runs", hidden: true },
    heading,
    h("table", { class: "stacking" }, h("thead", null, h("tr", null, headings.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))), body),
    pager,
  );

  /** @param {string} token */
  function leaf(token) {
    heading.focus({ preventScroll: true });
    turn(token);
  }

  /** @param {Run} run */
  function createRow(run) {
    const link = h("a", { href: `#/runs/${run.run_id}` }, run.name || run.run_id);
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, link, h("div", { class: "muted small mono" }, run.run_id)),
      h("td", { "data-label": "Status" }, statusBadge(run.status)),
      h("td", { "data-label": "Method" }, run.method),
      h("td", { "data-label": "Rounds", class: "number" }, h("span")),
      h("td", { "data-label": "Mean", class: "number" }, h("span")),
      h("td", { "data-label": "Worst", class: "number" }, h("span")),
      h("td", { "data-label": "Took", class: "number" }, h("span")),
      h("td", { "data-label": "Ended" }, h("time")),
    );
  }

  return {
    element,
    /**
     * @param {Run[]} runs
     * @param {Results} results
     * @param {string | null} nextToken
     * @param {boolean} isTurned Whether this is not the first page.
     */
    update(runs, results, nextToken, isTurned) {
      next = nextToken ?? "";
      setAttribute(element, "hidden", !runs.length && !isTurned && !next);
      setAttribute(pager, "hidden", !isTurned && !next);
      setAttribute(newest, "disabled", !isTurned);
      setAttribute(older, "disabled", !next);
      keyed(body, runs, (run) => run.run_id, createRow, (line, run) => {
        const cells = line.children;
        const accuracy = results.of(run)?.accuracy ?? {};
        const isOpen = !hasEnded(run);
        updateStatusBadge(/** @type {Element} */ (cells[1].firstElementChild), run.status);
        const texts = [
          `${Math.max(run.phase === "committed" ? run.round : run.round - 1, 0)} of ${run.total_rounds}`,
          percent(accuracy.mean),
          percent(accuracy.worst),
          isOpen ? "" : duration((Date.parse(run.updated_at) - Date.parse(run.created_at)) / 1000),
        ];
        texts.forEach((text, index) => setText(/** @type {Element} */ (cells[index + 3].firstElementChild), text));
        const ended = /** @type {HTMLTimeElement} */ (cells[7].firstElementChild);
        setAttribute(ended, "datetime", isOpen ? null : run.updated_at);
        setAttribute(ended, "title", isOpen ? null : dateTime(run.updated_at));
        setText(ended, isOpen ? "" : ago(run.updated_at, Date.now()));
      });
    },
  };
}
