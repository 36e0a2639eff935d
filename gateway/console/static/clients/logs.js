// @ts-check
/**
 * Log lines of one client's trainer, newest first, as far as the owner of its site lets them out. Read while the section is open.
 */

import { ApiError, get } from "../lib/api.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { foldingCard } from "../lib/folding.js";
import { counted, dateTime, sentence, timeOfDay, words } from "../lib/format.js";
import { repeat } from "../lib/shell.js";

/** Pause between two reads: a trainer tells its lines with its heartbeats. */
const INTERVAL_MS = 2000;
/** Most lines that are shown; the aggregator keeps no more. */
const MAX_LINES = 200;

/** Tone, mark and word of each level. @type {Record<string, [string, string, string]>} */
const LEVELS = { error: ["bad", "✕", "Error: "], warning: ["warning", "!", "Warning: "], info: ["plain", "·", ""] };
/** What an owner lets out, by the least level. @type {Record<string, string>} */
const LETS_OUT = { error: "errors", warning: "warnings and errors", info: "lines of every level but debug" };

/**
 * @typedef {{number: number, time: string, level: string, event: string, run_id: string | null, round: number | null,
 *   facts: Record<string, string>}} Line
 * @typedef {{level: string | null, lines: Line[], left_out: number}} Log
 */

const levels = Object.keys(LETS_OUT);

/** The section, what brings its choice of clients up to date, and what ends it. */
export function siteLogs() {
  const client = h("select", { on: { change: () => begin() } });
  const level = h(
    "select",
    { on: { change: () => begin() } },
    levels.toReversed().map((name) => h("option", { value: name }, name === "info" ? "Everything" : LETS_OUT[name])),
  );
  const list = h("ol", { class: "events", "aria-label": "Log lines, newest first", tabindex: 0 });
  const note = h("p", { class: "muted small", role: "status" });
  const { element, fold } = foldingCard(
    { id: "site-logs", title: "Logs of sites", hint: "What their owners let out.", onToggle: (isOpen) => (isOpen ? begin() : end()) },
    h("div", { class: "filters" }, h("label", null, "Client", client), h("label", null, "Level", level)),
    note,
    list,
  );

  /** @type {Line[]} */
  let lines = [];
  let stop = () => {};

  function end() {
    stop();
    stop = () => {};
  }

  function begin() {
    end();
    lines = [];
    if (!client.value) return draw("No client has ever joined.");
    const [of, least] = [client.value, level.value];
    stop = repeat((signal) => read(of, least, signal), INTERVAL_MS).stop;
  }

  /**
   * @param {string} of
   * @param {string} least
   * @param {AbortSignal} signal
   */
  async function read(of, least, signal) {
    try {
      const query = `?level=${least}&after=${lines[0]?.number ?? 0}`;
      /** @type {Log} */
      const log = await get(`/v1/clients/${encodeURIComponent(of)}/log${query}`, { signal });
      if (signal.aborted) return;
      // What was shown goes, too, where the owner has lowered the level since.
      const letOut = levels.slice(0, levels.indexOf(log.level ?? "none") + 1);
      lines = [...log.lines.reverse(), ...lines].filter((line) => letOut.includes(line.level)).slice(0, MAX_LINES);
      draw(remark(of, log));
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      draw(sentence(error.message));
    }
  }

  /**
   * @param {string} of
   * @param {Log} log
   */
  function remark(of, log) {
    if (log.level === null) return `No trainer of ${of} has said what its owner lets out since the aggregator was started.`;
    if (log.level === "none") return `${of}'s owner lets no log lines out.`;
    const left = log.left_out ? ` ${counted(log.left_out, "line")} had to be left out.` : "";
    return `${of}'s owner lets ${LETS_OUT[log.level]} out.${left}${lines.length ? "" : " There is none yet."}`;
  }

  /** @param {string} text */
  function draw(text) {
    setText(note, text);
    setAttribute(list, "hidden", !lines.length);
    keyed(list, lines, (line) => line.number, row);
  }

  return {
    element,
    /** @param {readonly Record<string, any>[]} clients */
    update(clients) {
      const names = clients.map((each) => each.client_id).sort();
      if (names.join() === [...client.options].map((option) => option.value).join()) return;
      const { value } = client;
      client.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
      if (names.includes(value)) client.value = value;
      // Somebody may have opened the section before the clients were known, or the one that is shown is forgotten.
      if (fold.open && client.value !== value) begin();
    },
    end,
  };
}

/** @param {Line} line */
function row(line) {
  const [tone, mark, word] = LEVELS[line.level];
  const isToday = new Date(line.time).toDateString() === new Date().toDateString();
  const where = line.run_id === null ? [] : [h("a", { href: `#/runs/${line.run_id}` }, line.run_id), `, round ${line.round}`];
  const facts = Object.entries(line.facts).map(([name, value]) => `${words(name)} ${value}`);
  return h(
    "li",
    { class: "event", "data-tone": tone },
    h("time", { datetime: line.time, title: dateTime(line.time) }, isToday ? timeOfDay(line.time) : dateTime(line.time)),
    h("span", { class: "event-mark", "aria-hidden": "true" }, mark),
    h("span", { class: "event-text" }, h("span", { class: "visually-hidden" }, word), h("code", null, line.event), facts.length ? `: ${facts.join(", ")}` : "", h("span", { class: "muted small" }, where.length ? " · " : "", ...where)),
  );
}
