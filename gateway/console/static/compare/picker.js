// @ts-check
/**
 * The choice of runs to compare: a search of the gateway's runs.
 */

import { ApiError, get } from "../lib/api.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, counted, percent, sentence } from "../lib/format.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";

/** Runs that a search shows. */
const MAX_FOUND = 10;
/** Pause after a letter, so that a word is one search. */
const TYPING_MS = 250;

/**
 * @param {(runId: string) => void} onPick
 */
export function picker(onPick) {
  const search = h("input", { type: "search", id: "compare-search", maxlength: 100, autocomplete: "off", on: { input: () => later() } });
  const said = h("p", { class: "muted small", role: "status" });
  const list = h("ul", { class: "found-runs" });
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "compare-picker" },
    h("div", { class: "card-head" }, h("h2", { id: "compare-picker" }, "Add a run"), said),
    h("div", { class: "field" }, h("label", { for: search.id }, "Name or id"), search),
    list,
  );
  const gone = new AbortController();
  /** @type {Record<string, any>[]} */
  let found = [];
  /** @type {ReadonlySet<string>} */
  let chosen = new Set();
  let isFull = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  let asked = 0;

  function later() {
    clearTimeout(typing);
    typing = setTimeout(() => void look(), TYPING_MS);
  }

  async function look() {
    const ticket = ++asked;
    const wanted = new URLSearchParams({ page_size: String(MAX_FOUND) });
    if (search.value.trim()) wanted.set("name", search.value.trim());
    try {
      const page = await get(`/v1/runs?${wanted}`, { signal: gone.signal });
      if (ticket !== asked) return;
      found = page.runs;
      const rest = page.total > found.length ? `, the newest ${found.length} are shown` : "";
      setText(said, `${counted(page.total, "run")} found${rest}.`);
      draw();
    } catch (error) {
      if (gone.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (ticket === asked) setText(said, sentence(error.message));
    }
  }

  function draw() {
    const hadFocus = list.contains(document.activeElement);
    const open = found.filter((run) => !chosen.has(run.run_id));
    keyed(list, open, (run) => run.run_id, line, (item, run) => {
      const [, badge, accuracy, time, button] = item.children;
      updateStatusBadge(badge, run.status);
      setText(accuracy, run.mean_accuracy === null ? "" : `mean ${percent(run.mean_accuracy)}`);
      setText(time, ago(run.created_at, Date.now()));
      setAttribute(button, "disabled", isFull);
    });
    // The line of the button that was pressed is gone.
    if (hadFocus && !list.contains(document.activeElement)) search.focus();
  }

  /** @param {Record<string, any>} run */
  function line(run) {
    const name = run.name || run.run_id;
    return h(
      "li",
      null,
      h("span", { class: "found-name" }, name, h("span", { class: "muted small mono" }, run.run_id)),
      statusBadge(run.status),
      h("span", { class: "small muted" }),
      h("span", { class: "small muted" }),
      h("button", { class: "button button-small", type: "button", "aria-label": `Add ${name} ${run.run_id}`, on: { click: () => onPick(run.run_id) } }, "Add"),
    );
  }

  void look();
  return {
    element,
    /**
     * @param {readonly string[]} runIds Runs that are compared already.
     * @param {boolean} isNoMore
     */
    update(runIds, isNoMore) {
      chosen = new Set(runIds);
      isFull = isNoMore;
      draw();
    },
    focus() {
      search.focus();
    },
    close() {
      clearTimeout(typing);
      gone.abort();
    },
  };
}
