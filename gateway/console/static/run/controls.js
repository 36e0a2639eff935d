// @ts-check
/**
 * Buttons that pause, resume and stop a run, visible when the status allows them, and the confirmation of each command, also
 * of quarantine and release.
 */

import { newKey, patch, post, remove, runPath } from "../lib/api.js";
import { ask } from "../lib/dialog.js";
import { h, setAttribute, setText } from "../lib/dom.js";
import { bytes, sentence } from "../lib/format.js";
import { allowed, hasEnded } from "../lib/run_state.js";
import { announce } from "../lib/shell.js";

/** Longest reason that the gateway takes. */
const MAX_REASON = 500;

/**
 * @param {import("../lib/run_state.js").Context} context
 */
export function controls(context) {
  const pause = h("button", { class: "button", type: "button", on: { click: () => void askPause(context) } }, "Pause …");
  const resume = h("button", { class: "button", type: "button", "data-kind": "primary", on: { click: () => resumeClicked() } });
  const stop = h(
    "button",
    { class: "button", type: "button", "data-kind": "danger", on: { click: () => void askStop(context) } },
    "Stop …",
  );
  const archive = h("button", { class: "button", type: "button", on: { click: () => void askArchive(context, !isArchived) } });
  const erase = h("button", { class: "button", type: "button", "data-kind": "danger", on: { click: () => void askDelete(context) } }, "Delete …");
  const element = h("div", { class: "buttons", role: "group", "aria-label": "Steer the run" }, pause, resume, stop, archive, erase);
  let isArchived = false;
  let isPauseWaiting = false;

  function resumeClicked() {
    void (isPauseWaiting ? askWithdraw(context) : askResume(context));
  }

  return {
    element,
    /** @param {import("../lib/run_state.js").RunState} state */
    update(state) {
      const may = allowed(state.run);
      isPauseWaiting = state.run?.status === "running" && state.run.is_pause_requested === true;
      const focused = element.contains(document.activeElement) ? document.activeElement : null;
      setText(resume, isPauseWaiting ? "Do not pause …" : "Resume …");
      setAttribute(pause, "hidden", !may.pause);
      setAttribute(resume, "hidden", !may.resume);
      setAttribute(stop, "hidden", !may.stop);
      const isEnded = state.run !== null && hasEnded(state.run);
      isArchived = state.run?.is_archived === true;
      setText(archive, isArchived ? "Bring back …" : "Archive …");
      setAttribute(archive, "hidden", !isEnded);
      setAttribute(erase, "hidden", !isEnded);
      // The button that was pressed may be gone: who uses the keyboard goes on at the one that took its place.
      if (focused?.hasAttribute("hidden")) {
        const next = [resume, pause, stop, archive].find((button) => !button.hidden);
        (next ?? /** @type {HTMLElement | null} */ (document.querySelector("h1")))?.focus();
      }
    },
  };
}

/** @param {import("../lib/run_state.js").Context} context */
function askPause(context) {
  const after = h("input", { type: "radio", name: "when", value: "after", checked: true });
  const now = h("input", { type: "radio", name: "when", value: "now" });
  return ask({
    title: "Pause the run?",
    text: "Clients stay connected and nothing is lost; you can resume it at any time.",
    fields: [
      h(
        "fieldset",
        { class: "choices" },
        h("legend", { class: "visually-hidden" }, "When"),
        choice(after, "After the open round", "The round is finished and committed first."),
        choice(now, "Now", "The open round is interrupted. On resume it begins again from the same model with the same clients."),
      ),
    ],
    confirm: "Pause",
    act: wish(context, "/pause", () => ({ now: now.checked })),
  });
}

/** @param {import("../lib/run_state.js").Context} context */
function askResume(context) {
  return ask({
    title: "Resume the run?",
    text: "It goes on from its last committed round.",
    confirm: "Resume",
    act: wish(context, "/resume"),
  });
}

/** @param {import("../lib/run_state.js").Context} context */
function askWithdraw(context) {
  return ask({
    title: "Take the pause back?",
    text: "The run goes on with the next round when the open one has committed.",
    confirm: "Do not pause",
    act: wish(context, "/resume"),
  });
}

/** @param {import("../lib/run_state.js").Context} context */
function askStop(context) {
  const reason = reasonField("Reason, for the history (optional)");
  return ask({
    title: "Stop the run?",
    text: "This cannot be undone. Its last committed round is kept, with model, prototypes and metrics; the open round is lost.",
    fields: [reason.element],
    confirm: "Stop the run",
    kind: "danger",
    act: wish(context, "/stop", () => ({ reason: reason.read() })),
  });
}

/**
 * @param {import("../lib/run_state.js").Context} context
 * @param {boolean} isToBeArchived
 */
function askArchive(context, isToBeArchived) {
  const key = newKey();
  return ask({
    title: isToBeArchived ? "Archive the run?" : "Bring the run back?",
    text: isToBeArchived
      ? "It leaves the lists and keeps everything. You find it among archived runs, and can bring it back at any time."
      : "It is in the lists again.",
    confirm: isToBeArchived ? "Archive" : "Bring back",
    act: async () => context.take({ type: "run", run: await patch(runPath(context.runId), { is_archived: isToBeArchived }, { key }) }),
  });
}

/** @param {import("../lib/run_state.js").Context} context */
async function askDelete(context) {
  const key = newKey();
  let freed = 0;
  const isDone = await ask({
    title: "Delete the run?",
    text: "This cannot be undone. Its models, prototypes and metrics are deleted; only its line, its events and the audit stay.",
    confirm: "Delete the run",
    kind: "danger",
    act: async () => {
      freed = (await remove(runPath(context.runId), { key })).freed_bytes;
    },
  });
  if (!isDone) return;
  location.hash = "#/";
  announce(`The run is deleted; ${bytes(freed)} are free again`);
}

/**
 * Quarantine a client, after confirmation.
 *
 * @param {import("../lib/run_state.js").Context} context
 * @param {string} clientId
 */
export function askQuarantine(context, clientId) {
  const reason = reasonField("Reason, for the history and for the client (optional)");
  return ask({
    title: `Quarantine client ${clientId}?`,
    text: "The run continues without it, if the other clients are enough, until you release it. The open round keeps what it has committed.",
    fields: [reason.element],
    confirm: "Quarantine",
    kind: "danger",
    act: wish(context, `/clients/${encodeURIComponent(clientId)}/quarantine`, () => ({ reason: reason.read() })),
  });
}

/**
 * End a client's quarantine, after confirmation.
 *
 * @param {import("../lib/run_state.js").Context} context
 * @param {string} clientId
 * @param {string} reason Why it is quarantined.
 */
export function askRelease(context, clientId, reason) {
  return ask({
    title: `Release client ${clientId}?`,
    text: `${sentence(`It was quarantined${reason ? `: ${reason}` : ""}`)} Released, it takes part again from the next round that asks it, with nothing held against it.`,
    confirm: "Release",
    act: wish(context, `/clients/${encodeURIComponent(clientId)}/release`),
  });
}

/**
 * The action of a dialog: one request, which counts once however often it is sent.
 *
 * @param {import("../lib/run_state.js").Context} context
 * @param {string} part
 * @param {() => unknown} [body]
 */
function wish(context, part, body = () => ({})) {
  /** @type {Map<string, string>} */
  const keys = new Map();
  return async () => {
    const content = body();
    const name = JSON.stringify(content);
    const key = keys.get(name) ?? newKey();
    keys.set(name, key);
    context.take({ type: "run", run: await post(runPath(context.runId, part), content, { key }) });
  };
}

/** @param {string} label */
function reasonField(label) {
  const input = h("textarea", { id: "wish-reason", rows: 2, maxlength: MAX_REASON });
  return {
    element: h("div", { class: "field" }, h("label", { for: input.id }, label), input),
    read: () => input.value.trim(),
  };
}

/**
 * @param {HTMLInputElement} input
 * @param {string} name
 * @param {string} text
 */
function choice(input, name, text) {
  return h("label", { class: "choice" }, input, h("span", null, h("strong", null, name), h("span", { class: "muted small" }, text)));
}
