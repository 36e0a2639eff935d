// @ts-check
/**
 * Tags and notes of a run, which people change in the page.
 */

import { ApiError, newKey, patch, runPath } from "../lib/api.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { sentence } from "../lib/format.js";

/** Longest notes that the gateway takes. */
const MAX_NOTES = 4000;

/** @type {import("../lib/run_state.js").MakeSection} */
export function section({ runId, take }) {
  const tags = h("ul", { class: "tags", "aria-label": "Tags" });
  const notes = h("p", { class: "notes" });
  const edit = h("button", { class: "button button-small", type: "button", on: { click: () => begin() } }, "Edit");
  const shown = h("div", { class: "stack" }, tags, notes);
  const tagsField = h("input", { id: "run-tags-field", type: "text", maxlength: 700, autocomplete: "off", "aria-describedby": "run-tags-hint" });
  const notesField = h("textarea", { id: "run-notes-field", rows: 4, maxlength: MAX_NOTES });
  const failure = h("p", { class: "dialog-failure", role: "alert", "data-tone": "bad" });
  const save = h("button", { class: "button", type: "submit", "data-kind": "primary" }, "Save");
  const cancel = h("button", { class: "button", type: "button", on: { click: () => end() } }, "Cancel");
  const form = h(
    "form",
    { class: "stack", hidden: true, "aria-labelledby": "run-labels" },
    h(
      "div",
      { class: "field" },
      h("label", { for: tagsField.id }, "Tags"),
      tagsField,
      h("p", { id: "run-tags-hint", class: "small muted" }, "At most 16, with spaces between them: letters, digits and . _ : / = -"),
    ),
    h("div", { class: "field" }, h("label", { for: notesField.id }, "Notes"), notesField),
    failure,
    h("div", { class: "buttons" }, save, cancel),
  );
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "run-labels" },
    h("div", { class: "card-head" }, h("h2", { id: "run-labels" }, "Tags and notes"), edit),
    shown,
    form,
  );
  const gone = new AbortController();
  /** @type {{tags: string[], notes: string}} */
  let current = { tags: [], notes: "" };

  function begin() {
    tagsField.value = current.tags.join(" ");
    notesField.value = current.notes;
    failure.textContent = "";
    turn(true);
    tagsField.focus();
  }

  function end() {
    turn(false);
    edit.focus();
  }

  /** @param {boolean} isEdited */
  function turn(isEdited) {
    setAttribute(form, "hidden", !isEdited);
    setAttribute(shown, "hidden", isEdited);
    setAttribute(edit, "hidden", isEdited);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    save.disabled = true;
    failure.textContent = "";
    const change = { tags: [...new Set(tagsField.value.split(/[\s,]+/).filter(Boolean))], notes: notesField.value };
    try {
      take({ type: "run", run: await patch(runPath(runId), change, { key: newKey(), signal: gone.signal }) });
      end();
    } catch (error) {
      if (gone.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      failure.textContent = `This was not saved. ${sentence(error.message)}`;
      tagsField.focus();
    } finally {
      save.disabled = false;
    }
  });

  return {
    element,
    update({ run }) {
      if (!run) return;
      current = { tags: run.tags ?? [], notes: run.notes ?? "" };
      keyed(tags, current.tags, (tag) => tag, (tag) => h("li", null, tag));
      setAttribute(tags, "hidden", !current.tags.length);
      setText(notes, current.notes || (current.tags.length ? "" : "None yet."));
      setAttribute(notes, "hidden", !notes.textContent);
    },
    close() {
      gone.abort();
    },
  };
}
