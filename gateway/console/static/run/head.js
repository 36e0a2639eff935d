// @ts-check
/**
 * The head of a run's page: name, status, connection and controls.
 */

import { compareLink } from "../lib/compare_link.js";
import { controls } from "./controls.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { sentence } from "../lib/format.js";
import { hasEnded } from "../lib/run_state.js";
import { standing } from "../lib/standing.js";
import { statusBadge, updateStatusBadge } from "../lib/tones.js";

/** @type {import("../lib/run_state.js").MakeSection} */
export function section(context) {
  const heading = h("h1", { tabindex: -1 });
  const status = statusBadge("pending");
  const live = h("span", { class: "live small" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span"));
  const method = h("span");
  const reason = h("p");
  const notice = h("div", { class: "notice", hidden: true }, reason);
  const warnings = h("div", { class: "run-warnings" });
  const actions = controls(context);
  const again = h("a", { class: "button", href: `#/start?from=${context.runId}` }, "Start another run like this");
  const compare = h("a", { class: "button", href: compareLink([context.runId]) }, "Compare with …");
  const element = h(
    "div",
    { class: "run-head" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), h("span", { class: "muted" }, " / run")),
    h(
      "div",
      { class: "page-head" },
      h(
        "div",
        { class: "run-title" },
        h("div", { class: "title-line" }, heading, status),
        h("p", { class: "title-facts small muted" }, h("code", null, context.runId), method, live),
      ),
      h("div", { class: "buttons" }, again, compare, actions.element),
    ),
    notice,
    warnings,
  );
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let counting;

  return {
    element,
    update(state) {
      const { run } = state;
      if (!run) return;
      setText(heading, run.name || run.run_id);
      updateStatusBadge(status, run.status);
      setText(method, run.method);
      clearInterval(counting);
      showLive(live, state.connection);
      if (state.connection.state === "lost") counting = setInterval(() => showLive(live, state.connection), 1000);
      const text = explanation(state);
      setText(reason, text);
      setAttribute(notice, "hidden", !text);
      setAttribute(notice, "data-tone", run.status === "failed" ? "bad" : hasEnded(run) ? null : "warning");
      keyed(warnings, run.warnings ?? [], ({ kind }) => kind, warningNotice, (line, { sentence: text }) =>
        setText(/** @type {Element} */ (line.lastElementChild), sentence(text)),
      );
      actions.update(state);
    },
    close() {
      clearInterval(counting);
    },
  };
}

/** Trouble of a run that goes on all the same. */
function warningNotice() {
  return h("div", { class: "notice", "data-tone": "warning", role: "status" }, h("p"));
}

/**
 * Reason why the run waits, failed or stopped; empty while it works.
 *
 * @param {import("../lib/run_state.js").RunState} state
 */
function explanation(state) {
  const run = /** @type {import("../lib/run_state.js").Document} */ (state.run);
  if (run.is_pause_requested) return "The run pauses when the open round has committed.";
  if (run.status === "running" && !run.reason) return "";
  const missing = state.areClientsKnown ? run.roster.filter((/** @type {string} */ id) => !state.clients.get(id)?.is_connected) : [];
  const text = standing(run, missing);
  if (run.status === "failed") return sentence(`failed: ${text}`);
  if (run.status === "stopped" && text) return sentence(`stopped: ${text}`);
  return text && sentence(text);
}

/**
 * @param {HTMLElement} element
 * @param {import("../lib/run_state.js").Connection} connection
 */
function showLive(element, connection) {
  const text = /** @type {Element} */ (element.lastElementChild);
  setAttribute(element, "data-state", connection.state);
  setAttribute(element, "hidden", connection.state === "ended");
  switch (connection.state) {
    case "live":
      return setText(text, "live");
    case "lost": {
      const seconds = Math.ceil((connection.retryAt - Date.now()) / 1000);
      const when = seconds > 0 ? `trying again in ${seconds} s` : "trying again";
      return setText(text, `connection lost: ${connection.reason}; ${when}`);
    }
    default:
      return setText(text, "connecting");
  }
}
