// @ts-check
/**
 * Confirmation dialogs: a dialog describes an action, performs it, and stays open with the reason of a refusal. The browser
 * keeps the focus inside and gives it back afterwards.
 */

import { ApiError } from "./api.js";
import { h } from "./dom.js";
import { sentence } from "./format.js";

/**
 * Ask for confirmation, then act.
 *
 * @param {{
 *   title: string,
 *   text: string,
 *   fields?: HTMLElement[],
 *   confirm: string,
 *   kind?: "primary" | "danger",
 *   act: () => Promise<void>,
 * }} question `act` may throw an ApiError, which is shown; the person can try again or leave it.
 * @returns {Promise<boolean>} Whether it was done.
 */
export function ask(question) {
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const titleId = `dialog-${Date.now()}`;
  const failure = h("p", { class: "dialog-failure", role: "alert", "data-tone": "bad" });
  const confirm = h("button", { class: "button", type: "submit", "data-kind": question.kind ?? "primary" }, question.confirm);
  const cancel = h("button", { class: "button", type: "button", autofocus: true, on: { click: () => dialog.close() } }, "Cancel");
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: titleId }, question.title),
    h("p", null, question.text),
    question.fields ?? [],
    failure,
    h("div", { class: "buttons dialog-buttons" }, cancel, confirm),
  );
  const dialog = h("dialog", { "aria-labelledby": titleId }, form);

  return new Promise((resolve) => {
    let isDone = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      failure.textContent = "";
      try {
        await question.act();
        isDone = true;
        dialog.close();
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        failure.textContent = `This was not done. ${sentence(error.message)}`;
        confirm.disabled = false;
        confirm.focus();
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before?.isConnected) before.focus();
      resolve(isDone);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
