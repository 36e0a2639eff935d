// @ts-check
/**
 * The form that starts a run; the gateway checks it while somebody writes.
 */

import { ApiError, newKey, post } from "../lib/api.js";
import { Draft } from "../lib/draft.js";
import { ConfigurationText } from "./configuration_text.js";
import { h, setAttribute, setText } from "../lib/dom.js";
import { counted, listed, sentence } from "../lib/format.js";
import { besideField, fieldOf, freshName, refusedLocation } from "./run_document.js";
import { Settings } from "./settings.js";
import { announce } from "../lib/shell.js";

/**
 * @typedef {import("./fields.js").Field} Field
 * @typedef {import("./run_document.js").Problem} Problem
 */

/** Pause in typing after which the form is checked. */
const CHECK_MS = 300;

export class StartForm {
  #draft;
  #signal;
  #key = newKey();
  /** Whether a request for a run was sent with the key; another request with it creates no other run. */
  #isKeyUsed = false;
  #isSending = false;
  #isSubmitted = false;
  /** Number of the latest check; answers to older checks are ignored. */
  #checks = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** Locations that somebody has changed or visited. @type {Set<string>} */
  #touched = new Set();
  /** @type {Problem[]} */
  #problems = [];
  /** Whether the gateway has checked the form. */
  #isChecked = false;

  /**
   * @param {import("./settings.js").Form} form
   * @param {Record<string, any> | null} earlier A run to begin with.
   * @param {AbortSignal} signal
   */
  constructor(form, earlier, signal) {
    this.#signal = signal;
    this.#draft = new Draft(earlier ? `start.${earlier.run_id}` : "start");
    this._settings = new Settings(form, (location) => this.#changed(location));
    this._summary = h("div", { class: "notice form-summary", "data-tone": "bad", tabindex: -1, hidden: true });
    this._unshown = h("p", { class: "notice", "data-tone": "info", hidden: true });
    this._status = h("p", { class: "start-status", role: "status" });
    this._button = h("button", { type: "submit", class: "button", "data-kind": "primary" }, "Start the run");
    this._file = new ConfigurationText();
    const draft = this.#draft.read();
    this.element = h(
      "form",
      {
        class: "start-form",
        novalidate: true,
        "aria-label": "Start a run",
        on: {
          submit: (/** @type {Event} */ event) => {
            event.preventDefault();
            void this.#submit();
          },
          focusout: (/** @type {FocusEvent} */ event) => this.#left(event),
          input: () => this.#keep(),
        },
      },
      earlier ? this.#copied(earlier) : null,
      draft ? this.#kept() : null,
      this._unshown,
      this._summary,
      this._settings.elements,
      this._file.element,
      h("div", { class: "start-bar" }, this._button, this._status),
    );
    if (earlier) this._settings.fill(earlier.config);
    this._settings.setName(freshName(earlier?.config.run?.name, new Date()));
    if (draft) this.#restore(draft);
    this.#showUnshown();
    this.#check();
  }

  close() {
    clearTimeout(this.#timer);
  }

  /** @param {Record<string, any>[]} clients */
  setClients(clients) {
    if (this._settings.setClients(clients)) {
      this.#showUnshown();
      this.#checkSoon();
    } else if (!this.#problems.length && this.#isChecked) this.#showProblems();
  }

  /** @param {string} reason Why it is not known which clients have joined. */
  setUnknownClients(reason) {
    this._settings.setUnknownClients(reason);
  }

  /** @param {Record<string, any>} earlier */
  #copied(earlier) {
    return h(
      "div",
      { class: "notice", "data-tone": "info" },
      h("p", null, "Filled in as run ", h("a", { href: `#/runs/${earlier.run_id}` }, earlier.run_id), " was configured. Change what you like; that run stays as it is."),
    );
  }

  /** Name what goes with the run and has no field. */
  #showUnshown() {
    const { unshown } = this._settings;
    setText(this._unshown, unshown.length ? `What this form does not show goes along: ${unshown.join(", ")}.` : "");
    setAttribute(this._unshown, "hidden", !unshown.length);
  }

  #kept() {
    const startOver = () => {
      this.#draft.clear();
      location.reload();
    };
    return h(
      "div",
      { class: "notice", "data-tone": "info" },
      h("p", null, "These are your settings of a run that you have not started yet."),
      h("p", { class: "buttons" }, h("button", { type: "button", class: "button button-small", on: { click: startOver } }, "Start over")),
    );
  }

  // Values

  /** Keep the draft for a reload, until the run is started. */
  #keep() {
    const key = this.#isKeyUsed ? this.#key : null;
    this.#draft.write({ settings: this._settings.draft, touched: [...this.#touched], key });
  }

  /** @param {Record<string, any>} draft What `#keep` has kept. */
  #restore({ settings, touched, key }) {
    this._settings.restore(settings);
    this.#touched = new Set(touched);
    if (key) this.#key = key;
    this.#isKeyUsed = Boolean(key);
  }

  // Checking

  /** @param {string} location */
  #changed(location) {
    this.#touched.add(location);
    if (location === "run.clients") {
      this.#touched.add("run.min_clients");
      this._settings.fillClasses();
    }
    this.#showUnshown();
    this.#keep();
    this.#checkSoon();
  }

  /** @param {FocusEvent} event */
  #left(event) {
    // What is said now would move the button under the pointer that presses it; pressing says all.
    if (event.relatedTarget === this._button) return;
    const location = /** @type {HTMLElement} */ (event.target).closest?.("[data-location]")?.getAttribute("data-location");
    if (!location || this.#touched.has(location)) return;
    this.#touched.add(location);
    this.#showProblems();
  }

  #checkSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#check(), CHECK_MS);
  }

  /** Check the form; returns whether it is right, null without an answer. @returns {Promise<boolean | null>} */
  async #check() {
    clearTimeout(this.#timer);
    const number = ++this.#checks;
    const document = this._settings.document();
    try {
      const answer = await post("/v1/run-configuration/check", document, { signal: this.#signal });
      if (number !== this.#checks) return null;
      this.#problems = answer.problems;
      this.#isChecked = true;
      this._file.update(document, answer.toml);
      this.#showProblems();
      return this.#problems.length === 0;
    } catch (error) {
      if (this.#signal.aborted) return null;
      if (!(error instanceof ApiError)) throw error;
      setText(this._status, `It cannot be checked: ${error.message}.`);
      return null;
    }
  }

  #showProblems() {
    const fields = this._settings.fields();
    /** @type {Map<Field, string[]>} */
    const texts = new Map();
    for (const problem of this.#problems) {
      const known = fields.get(fieldOf(problem.location, (location) => fields.has(location)));
      if (known && this.#isDue(known)) texts.set(known, [...(texts.get(known) ?? []), besideField(problem)]);
    }
    for (const each of new Set(fields.values())) each.setProblem((texts.get(each) ?? []).join(" "));
    const number = this.#problems.length;
    const warnings = number ? [] : this._settings.warnings;
    setAttribute(this._status, "data-tone", number ? null : warnings.length ? "warning" : "good");
    const isReady = warnings.length ? `${listed(warnings, 2)}.` : "Nothing is wrong; ready to start.";
    setText(this._status, number ? this.#todo() : isReady);
    if (this.#isSubmitted && !this._summary.hidden) this.#showSummary();
  }

  /**
   * Whether the problem of a field is shown already: not before somebody visited it. A key with a default is right until
   * another key of its section changes.
   *
   * @param {Field} known
   */
  #isDue(known) {
    if (this.#isSubmitted || this.#touched.has(known.location)) return true;
    if (!this._settings.hasDefault(known.location)) return false;
    const section = known.location.slice(0, known.location.indexOf(".") + 1);
    return [...this.#touched].some((location) => location.startsWith(section));
  }

  /** The next step before the run can start, in few words. */
  #todo() {
    const isMissing = (/** @type {string} */ location) => this.#problems.some((each) => each.location === location);
    if (!this.#isSubmitted && isMissing("run.clients") && !this._settings.clients.length) return "Pick the clients that take part.";
    return `${counted(this.#problems.length, "thing is", "things are")} missing or wrong.`;
  }

  #showSummary() {
    const fields = this._settings.fields();
    this._summary.hidden = this.#problems.length === 0;
    this._summary.replaceChildren(
      h("h2", null, `${counted(this.#problems.length, "thing is", "things are")} missing or wrong`),
      h(
        "ul",
        { class: "problem-list" },
        this.#problems.map((problem) => {
          const known = fields.get(fieldOf(problem.location, (location) => fields.has(location)));
          if (!known) return h("li", null, sentence(problem.detail));
          return h("li", null, h("button", { type: "button", class: "link-button", on: { click: () => reveal(known) } }, `${known.label}: ${besideField(problem)}`));
        }),
      ),
    );
  }

  // Starting

  async #submit() {
    if (this.#isSending) return;
    this.#isSending = true;
    this.#isSubmitted = true;
    this._settings.addWritten();
    setAttribute(this._button, "aria-disabled", "true");
    setText(this._button, "Starting …");
    try {
      // Without a check the run may still start; a refusal then names the problem.
      if ((await this.#check()) === false) return this.#refuse();
      this.#isKeyUsed = true;
      this.#keep();
      const run = await post("/v1/runs", this._settings.document(), { key: this.#key, signal: this.#signal });
      this.#draft.clear();
      announce(`Run ${run.run_id} was created`);
      location.hash = `#/runs/${run.run_id}`;
    } catch (error) {
      if (this.#signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.#refused(error);
    } finally {
      this.#isSending = false;
      setAttribute(this._button, "aria-disabled", null);
      setText(this._button, "Start the run");
    }
  }

  #refuse() {
    this.#showProblems();
    this.#showSummary();
    this._summary.focus();
  }

  /** @param {ApiError} error */
  #refused(error) {
    const { problem } = error;
    if (problem?.code === "REQUEST_ID_REUSED" && problem.metadata?.run_id) {
      const runId = problem.metadata.run_id;
      this.#key = newKey();
      this.#isKeyUsed = false;
      this.#keep();
      return this.#tell(
        "This form has created a run already",
        h("p", null, "An earlier press of Start created run ", h("a", { href: `#/runs/${runId}` }, runId), ", with the earlier settings. Press Start again to create another run with the present settings."),
      );
    }
    if (error.mayPass) {
      return this.#tell("It is not known yet whether the run was created", h("p", null, `${sentence(error.message)} Press Start again when the connection is back: that creates one run, not two.`));
    }
    const detail = problem?.detail ?? error.message;
    this.#problems = [{ location: refusedLocation(problem), detail }];
    this.#refuse();
  }

  /**
   * @param {string} title
   * @param {HTMLElement} text
   */
  #tell(title, text) {
    this._summary.hidden = false;
    this._summary.replaceChildren(h("h2", null, title), text);
    this._summary.focus();
  }
}

/** @param {Field} known */
function reveal(known) {
  for (let at = known.element.closest("details"); at; at = at.parentElement?.closest("details") ?? null) at.open = true;
  known.focus();
}
