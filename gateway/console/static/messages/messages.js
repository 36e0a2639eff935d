// @ts-check
/**
 * Receivers of messages: who is told of what, how the last delivery went, and a test by hand.
 */

import { ApiError, askWhoami, get, post } from "../lib/api.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, dateTime, listed, sentence, words } from "../lib/format.js";
import { announce, repeat } from "../lib/shell.js";
import { staleNotice } from "../lib/stale_notice.js";

/** Pause between two reads of the receivers. */
const INTERVAL_MS = 5000;
const HEADINGS = ["Receiver", "Told of", "Runs and clients", "Last message", "Failure", "Test"];

/** @typedef {Record<string, any>} Receiver */

/** @param {HTMLElement} root */
export function show(root) {
  const notice = staleNotice();
  const body = h("tbody");
  const table = h("table", { class: "stacking" }, h("thead", null, h("tr", null, ...HEADINGS.map((name) => h("th", { scope: "col" }, name)))), body);
  const none = h("p", { class: "muted" }, "This gateway tells nobody. Its owner names receivers in a file: ", h("code", null, "fedplcc gateway --messages messages.toml"), ".");
  const card = h("section", { class: "card", "aria-label": "Receivers", hidden: true }, table, none);
  root.append(h("div", { class: "page-head" }, h("h1", null, "Messages to people")), notice.element, card);

  const read = async (/** @type {AbortSignal} */ signal) => {
    const [{ receivers }, me] = await Promise.all([get("/v1/messages/receivers", { signal }), askWhoami({ signal })]);
    const mayTest = me.scopes.includes("admin");
    keyed(body, receivers, (receiver) => receiver.name, createRow, (line, receiver) => updateRow(line, receiver, mayTest));
    setAttribute(card, "hidden", false);
    setAttribute(table, "hidden", !receivers.length);
    setAttribute(none, "hidden", receivers.length > 0);
  };
  return repeat((signal) => notice.during(() => read(signal)), INTERVAL_MS).stop;
}

/** @param {Receiver} receiver */
function createRow(receiver) {
  const outcome = h("p", { class: "small", role: "status" });
  const button = h("button", { class: "button button-small", type: "button", "aria-label": `Send ${receiver.name} a test` }, "Send a test");
  button.addEventListener("click", async () => {
    button.disabled = true;
    setText(outcome, "Sending …");
    setText(outcome, await tested(receiver.name));
    announce(`${receiver.name}: ${outcome.textContent}`);
    button.disabled = false;
  });
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, receiver.name, h("div", { class: "muted small" }, `${receiver.kind}, ${receiver.host}`)),
    h("td", { "data-label": "Told of" }, h("span")),
    h("td", { "data-label": "Runs and clients" }, h("span")),
    h("td", { "data-label": "Last message" }, h("time")),
    h("td", { "data-label": "Failure" }, h("p", { class: "error" })),
    h("td", { "data-label": "Test" }, h("div", null, button, outcome)),
  );
}

/**
 * @param {Element} line
 * @param {Receiver} receiver
 * @param {boolean} mayTest
 */
function updateRow(line, receiver, mayTest) {
  const [, events, places, last, failure, test] = [...line.children].map((cell) => /** @type {HTMLElement} */ (cell.firstElementChild));
  setText(events, listed(receiver.events.map((/** @type {string} */ name) => words(name))));
  setText(places, `runs ${receiver.runs.join(", ")}; clients ${receiver.clients.join(", ")}`);
  setText(last, receiver.last_at ? `${words(receiver.last_kind)}, ${ago(receiver.last_at, Date.now())}` : "none yet");
  setAttribute(last, "title", receiver.last_at ? dateTime(receiver.last_at) : null);
  setText(failure, receiver.failure ? sentence(receiver.failure) : "");
  setAttribute(/** @type {Element} */ (failure.parentElement), "data-empty", !receiver.failure);
  setAttribute(test, "hidden", !mayTest);
}

/**
 * Send a test; how it ended, as a sentence.
 *
 * @param {string} name
 */
async function tested(name) {
  try {
    const { is_delivered, failure } = await post(`/v1/messages/receivers/${encodeURIComponent(name)}/test`);
    return is_delivered ? "The test arrived." : `It did not arrive: ${sentence(failure)}`;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return sentence(error.message);
  }
}
