// @ts-check
/**
 * The page of one run: its head, and sections that each draw one part of its state.
 *
 * A section is a module with `section(context)`, which returns its element and an `update(state)` that is called with every
 * new state, at most once a frame; see lib/run_state.js for what a state holds.
 */

import * as api from "../lib/api.js";
import { section as about } from "./about.js";
import { section as classes } from "../classes/per_class.js";
import { section as configuration } from "./configuration.js";
import { section as labels } from "./labels.js";
import { section as accuracy } from "../charts/accuracy.js";
import { section as clients } from "./clients.js";
import { section as events } from "./events.js";
import { section as head } from "./head.js";
import { section as losses } from "../charts/losses.js";
import { section as parts } from "./parts.js";
import { section as participation } from "../stages/timeline.js";
import { section as progress } from "./progress.js";
import { section as prototypeCounts } from "../charts/prototype_counts.js";
import { section as prototypeMap } from "../map/prototype_map.js";
import { section as stages } from "../stages/matrix.js";
import { h } from "../lib/dom.js";
import { sentence } from "../lib/format.js";
import { RunFeed } from "./feed.js";
import { keepInAddress, query } from "../lib/address.js";
import { rangeOf } from "../lib/round_range.js";
import { announce, setTitle } from "../lib/shell.js";
import { spokenChange } from "./spoken.js";
import { section as timings } from "../charts/timings.js";

/**
 * @typedef {import("../lib/run_state.js").RunState} RunState
 * @typedef {import("../lib/run_state.js").Context} Context
 * @typedef {import("../lib/run_state.js").Section} Section
 * @typedef {import("../lib/run_state.js").MakeSection} MakeSection
 */

/** Sections in the order of the page; an array is a row of sections side by side where there is room. */
const LAYOUT = /** @type {(MakeSection | MakeSection[])[]} */ ([head, progress, parts, accuracy, stages, classes, clients, participation, [losses, prototypeCounts], timings, prototypeMap, events, labels, configuration, about]);

/** Sections that are drawn at once; those below wait until these are on the screen. */
const FIRST = 4;

/** Delay before the page shows that it loads; a short wait without a notice flickers less. */
const PATIENCE_MS = 400;

/**
 * Show a run.
 *
 * @param {HTMLElement} root
 * @param {Record<string, string>} params `runId`.
 */
export function show(root, { runId }) {
  /** @type {Section[]} */
  let sections = [];
  /** Sections that are drawn; the others come one after the other. */
  let numDrawn = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let drawing;
  let hasLeft = false;
  /** @type {RunState | null} */
  let shown = null;
  const range = rangeOf(query());
  range.addEventListener("change", () => keepInAddress({ from: range.from, to: range.to }));
  const loading = h("p", { class: "muted", hidden: true }, `Reading run ${runId} …`);
  root.append(h("h1", { class: "visually-hidden" }, `Run ${runId}`), loading);
  const patience = setTimeout(() => loading.removeAttribute("hidden"), PATIENCE_MS);
  setTitle(runId);

  /** @param {RunState} state */
  function update(state) {
    if (!state.run) {
      if (state.connection.state === "lost") loading.textContent = `${sentence(state.connection.reason)} Trying again …`;
      return;
    }
    if (!shown) {
      clearTimeout(patience);
      const hadFocus = root.contains(document.activeElement);
      sections = build(root, { runId, api, range, take: (action) => feed.take(action) });
      if (hadFocus) root.querySelector("h1")?.focus({ preventScroll: true });
    }
    for (const section of sections.slice(0, Math.max(numDrawn, FIRST))) draw(section, state);
    // Of two frames the first is on the screen when the second begins.
    if (!shown) requestAnimationFrame(() => drawNext(FIRST));
    setTitle(`${state.run.name || runId} · ${state.run.status}`);
    const spoken = shown && spokenChange(shown, state);
    if (spoken) announce(spoken);
    shown = state;
  }

  /**
   * Draw the sections that are left, each in a turn of its own: the browser shows what there is in between.
   *
   * @param {number} number How many are drawn.
   */
  function drawNext(number) {
    numDrawn = number;
    if (hasLeft || number === sections.length) return;
    drawing = setTimeout(() => {
      if (shown) draw(sections[number], shown);
      drawNext(number + 1);
    });
  }

  /** @param {api.ApiError} error */
  function refused(error) {
    clearTimeout(patience);
    root.replaceChildren(
      h("h1", { tabindex: -1 }, error.status === 404 ? "There is no such run" : "The run cannot be shown"),
      h("p", { role: "alert" }, sentence(error.message)),
      h("p", null, h("a", { href: "#/" }, "Go to the overview")),
    );
    setTitle("Run");
  }

  const feed = new RunFeed(runId, update, refused);
  return () => {
    hasLeft = true;
    clearTimeout(patience);
    clearTimeout(drawing);
    feed.stop();
    for (const section of sections) section.close?.();
  };
}

/**
 * @param {Section} section
 * @param {RunState} state
 */
function draw(section, state) {
  try {
    section.update(state);
  } catch (error) {
    // An error in one section must not remove the controls.
    reportError(error);
  }
}

/**
 * @param {HTMLElement} root
 * @param {Context} context
 * @returns {Section[]}
 */
function build(root, context) {
  /** @type {Section[]} */
  const sections = [];
  /** @param {MakeSection} make */
  const made = (make) => {
    const section = make(context);
    sections.push(section);
    return section.element;
  };
  const parts = LAYOUT.map((entry) =>
    Array.isArray(entry) ? h("div", { class: "columns" }, entry.map((make) => made(make))) : made(entry),
  );
  root.replaceChildren(...parts);
  return sections;
}
