// @ts-check
/**
 * The form that starts a run: made of what the gateway says may be configured, and checked by it while somebody writes.
 */

import { ApiError, newKey, post } from "../lib/api.js";
import { Draft } from "../lib/draft.js";
import { ConfigurationText } from "./configuration_text.js";
import { h, setAttribute, setText } from "../lib/dom.js";
import { field, listField, numberIn, schemaField, selectField } from "./fields.js";
import { counted, listed, sentence } from "../lib/format.js";
import { ModelChoice } from "./model_choice.js";
import { Roster } from "./roster.js";
import { SECTIONS, classesOf, documentOf, fieldOf, isEqual, isOfSeveral, refusedLocation, shortened, valuesOf } from "./run_document.js";
import { announce } from "../lib/shell.js";

/**
 * @typedef {import("./fields.js").Field} Field
 * @typedef {import("./run_document.js").Problem} Problem
 * @typedef {Record<string, any>} Form The document of GET /v1/run-configuration.
 */

/** Pause in writing after which what is written is checked. */
const CHECK_MS = 300;
/** Keys that a configuration of this form always has, so that it says what the run is without its reader knowing defaults. */
const ALWAYS = new Set([
  ...["name", "method", "rounds", "seed", "clients", "min_clients"].map((key) => `run.${key}`),
  ...["model.name", "data.classes", "data.image_size", "training.local_steps", "training.local_epochs"],
]);
/** Fields of the first cards; all others are under "More settings". */
const FIRST = new Set([...ALWAYS, "model.stem", "model.options"]);
/** Keys that are chosen with the clients. */
const ROSTER = new Set(["run.clients", "run.min_clients"]);
/** @type {Record<string, {title: string, note: string}>} */
const GROUPS = {
  training: { title: "Local training", note: "How each client trains between two rounds." },
  run: { title: "The run", note: "" },
  data: { title: "Images", note: "What all clients agree on about their data." },
  quorum: { title: "Quorum", note: "When a round goes on without clients that are away. Without it a round waits for all." },
  admission: { title: "Admission", note: "What updates must keep to, and what becomes of clients whose updates do not." },
};

export class StartForm {
  #form;
  #draft;
  #signal;
  #key = newKey();
  /** Whether a run was asked for with the key: another wish with it makes no other run. */
  #isKeyUsed = false;
  #isSending = false;
  #isSubmitted = false;
  /** Number of the last check that was asked for; older answers are not looked at. */
  #checks = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** Locations at which somebody wrote or picked something. @type {Set<string>} */
  #touched = new Set();
  /** @type {Problem[]} */
  #problems = [];
  /** The classes that were filled in last, to know whether somebody changed them. @type {string[]} */
  #filledClasses = [];
  /** Fields of the chosen method. @type {Field[]} */
  #methodFields = [];
  /** All others, by location. @type {Map<string, Field>} */
  #fields = new Map();

  /**
   * @param {Form} form
   * @param {Record<string, any> | null} earlier A run to begin with.
   * @param {AbortSignal} signal
   */
  constructor(form, earlier, signal) {
    this.#form = form;
    this.#signal = signal;
    this.#draft = new Draft(earlier ? `start.${earlier.run_id}` : "start");
    this._roster = new Roster(() => this.#changed("run.clients"));
    this._model = new ModelChoice(form, (location) => this.#changed(location));
    for (const each of [...this._roster.fields, ...this._model.fields]) this.#fields.set(each.location, each);
    this._summary = h("div", { class: "notice form-summary", "data-tone": "bad", tabindex: -1, hidden: true });
    this._status = h("p", { class: "start-status", role: "status" });
    this._button = h("button", { type: "submit", class: "button", "data-kind": "primary" }, "Start the run");
    this._methodText = h("p", { class: "field-hint" });
    this._methodHeading = h("h3");
    this._methodBody = h("div", { class: "fields" });
    this._classNote = h("p", { class: "field-hint" });
    this._file = new ConfigurationText();
    const what = this.#whatCard();
    const more = this.#moreSettings();
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
      this._summary,
      this._roster.element,
      what,
      more,
      this._file.element,
      h("div", { class: "start-bar" }, this._button, this._status),
    );
    this.#setDefaults();
    if (earlier) this.#fill(earlier.config);
    this.#methodChanged(earlier?.config.method);
    if (earlier) this._model.writeOptions(earlier.config.model?.options);
    if (draft) this.#restore(draft);
    this.#check();
  }

  close() {
    clearTimeout(this.#timer);
  }

  /** @param {Record<string, any>[]} clients */
  setClients(clients) {
    this._roster.setKnown(clients);
    this.#fillClasses();
  }

  // What there is to fill in

  #whatCard() {
    const { methods, sections } = this.#form;
    const change = (/** @type {string} */ location) => () => this.#changed(location);
    const add = (/** @type {Field} */ each) => {
      this.#fields.set(each.location, each);
      return each.element;
    };
    const schemaOf = (/** @type {string} */ location) => {
      const [section, key] = location.split(".");
      return sections[section].properties[key];
    };
    const plain = (/** @type {string} */ location, /** @type {import("./fields.js").Options} */ options = {}) =>
      add(schemaField(location, schemaOf(location), { ...options, onChange: change(location) }));
    const method = selectField("run.method", methods.map((/** @type {any} */ each) => ({ value: each.name, label: each.title })), {
      label: "Method",
      isLong: true,
      onChange: () => {
        this.#methodChanged();
        this.#changed("run.method");
      },
    });
    method.element.append(this._methodText);
    const classes = listField("data.classes", { label: "Classes", isLong: true, onChange: change("data.classes") });
    classes.element.append(this._classNote);
    return h(
      "fieldset",
      { class: "card" },
      h("legend", { class: "card-legend" }, "What is trained"),
      h(
        "div",
        { class: "fields" },
        add(method),
        plain("run.name", { label: "Name", hint: "For people; letters, digits, dots, dashes. It need not be unique." }),
        plain("run.rounds", { label: "Rounds", hint: "1 to 100,000." }),
        add(lengthField(change("training.local_steps"))),
        ...this._model.elements,
        plain("run.seed", { label: "Seed", hint: "Everything random follows from it: the same seed and data give the same run." }),
        plain("data.image_size", { label: "Image size", hint: "Height and width in pixels to which every image is brought; 8 to 1,024." }),
        add(classes),
      ),
      this._model.optionElement,
    );
  }

  #moreSettings() {
    const groups = SECTIONS.filter((section) => section in GROUPS).map((section) => {
      const properties = Object.entries(this.#form.sections[section].properties);
      const fields = properties.flatMap(([key, schema]) => {
        const location = `${section}.${key}`;
        if (FIRST.has(location)) return [];
        const made = schemaField(location, schema, { withKey: true, onChange: () => this.#changed(location) });
        this.#fields.set(location, made);
        return [made.element];
      });
      const { title, note } = GROUPS[section];
      return h("section", { class: "settings" }, h("h3", null, title), note ? h("p", { class: "muted small" }, note) : null, h("div", { class: "fields" }, fields));
    });
    return h(
      "details",
      { class: "card disclosure" },
      h("summary", null, h("h2", null, "More settings"), h("span", { class: "muted small" }, "The method's own, local training, quorum, admission. All have defaults.")),
      h("section", { class: "settings" }, this._methodHeading, this._methodBody),
      this._model.stemElement,
      groups,
    );
  }

  /** @param {Record<string, any>} earlier */
  #copied(earlier) {
    return h(
      "div",
      { class: "notice", "data-tone": "info" },
      h("p", null, "Filled in as run ", h("a", { href: `#/runs/${earlier.run_id}` }, earlier.run_id), " was configured. Change what you want to; that run stays as it is."),
    );
  }

  #kept() {
    const startOver = () => {
      this.#draft.clear();
      location.reload();
    };
    return h(
      "div",
      { class: "notice", "data-tone": "info" },
      h("p", null, "This is what you had filled in and not started yet."),
      h("p", { class: "buttons" }, h("button", { type: "button", class: "button button-small", on: { click: startOver } }, "Start over")),
    );
  }

  // Values

  /** Keep what is filled in for a reload, until the run is started. */
  #keep() {
    const all = [...this.#fields.values(), ...this.#methodFields, ...this._model.optionFields];
    const values = Object.fromEntries(all.filter((each) => !ROSTER.has(each.location)).map((each) => [each.location, each.read()]));
    this.#draft.write({
      values,
      roster: this._roster.draft,
      touched: [...this.#touched],
      filledClasses: this.#filledClasses,
      key: this.#isKeyUsed ? this.#key : null,
    });
  }

  /** @param {Record<string, any>} draft What `#keep` has kept. */
  #restore({ values, roster, touched, filledClasses, key }) {
    this._roster.restore(roster);
    const write = (/** @type {Field} */ each) => each.location in values && each.write(values[each.location] ?? undefined);
    for (const each of this.#fields.values()) if (!ROSTER.has(each.location)) write(each);
    this.#methodChanged();
    for (const each of [...this.#methodFields, ...this._model.optionFields]) write(each);
    this.#touched = new Set(touched);
    this.#filledClasses = filledClasses;
    if (key) this.#key = key;
    this.#isKeyUsed = Boolean(key);
  }

  #setDefaults() {
    for (const [section, values] of Object.entries(this.#form.defaults)) {
      for (const [key, value] of Object.entries(values)) {
        const known = this.#fields.get(`${section}.${key}`);
        if (known && !known.location.startsWith("training.local_")) known.write(value ?? undefined);
      }
    }
    this.#fields.get("training.local_steps")?.write(this.#form.defaults.training.local_steps);
    const hasFedplcc = this.#form.methods.some((/** @type {any} */ each) => each.name === "fedplcc");
    this.#fields.get("run.method")?.write(hasFedplcc ? "fedplcc" : this.#form.methods[0].name);
  }

  /** @param {Record<string, any>} config */
  #fill(config) {
    const values = valuesOf(config);
    for (const each of this.#fields.values()) {
      const value = values.get(each.location);
      if (value !== undefined || each.location === "run.clients") each.write(value);
    }
    if (values.has("training.local_epochs")) this.#fields.get("training.local_steps")?.write({ epochs: values.get("training.local_epochs") });
    this.#filledClasses = [];
  }

  /** Offer the classes of the clients that were picked, unless somebody wrote others. */
  #fillClasses() {
    const classes = this.#fields.get("data.classes");
    if (!classes) return;
    const { clients } = this._roster;
    const found = classesOf(clients);
    const isOwn = isEqual(classes.read(), this.#filledClasses);
    if (isOwn && !isEqual(found, this.#filledClasses)) {
      this.#filledClasses = found;
      classes.write(found);
      this.#checkSoon();
    }
    const without = clients.filter((client) => found.some((name) => !client.class_counts[name])).map((client) => client.client_id);
    let note = "Names of the classes with commas between, as the folders of the clients' images are named.";
    if (isOwn && found.length) note = `Those of the clients that take part${without.length ? `; ${listed(without)} ${without.length === 1 ? "has" : "have"} not all of them` : ""}.`;
    setText(this._classNote, note);
  }

  #method() {
    return this.#form.methods.find((/** @type {any} */ each) => each.name === this.#fields.get("run.method")?.read());
  }

  /** @param {Record<string, unknown>} [values] Hyper-parameters to begin with. */
  #methodChanged(values = {}) {
    const method = this.#method();
    setText(this._methodText, "");
    this.#methodFields = [];
    if (!method) return;
    this._methodText.append(`${method.summary} `, h("span", { class: "muted" }, ...withLink(method.paper)));
    setText(this._methodHeading, `${method.title}'s own`);
    this.#methodFields = Object.entries(method.settings.properties).map(([key, schema]) => {
      const location = `method.${key}`;
      const made = schemaField(location, /** @type {any} */ (schema), { withKey: true, onChange: () => this.#changed(location) });
      if (values[key] !== undefined) made.write(values[key] ?? undefined);
      return made;
    });
    this._methodBody.replaceChildren(...this.#methodFields.map((each) => each.element));
  }

  /** The configuration that is filled in. */
  #document() {
    /** @type {Map<string, unknown>} */
    const values = new Map();
    // In the order in which the keys are described, as people write them.
    for (const [section, { properties }] of Object.entries(this.#form.sections)) {
      for (const key of Object.keys(properties)) values.set(`${section}.${key}`, this.#fields.get(`${section}.${key}`)?.read());
    }
    for (const each of this.#methodFields) values.set(each.location, each.read());
    const length = /** @type {any} */ (values.get("training.local_steps"));
    values.set("training.local_steps", length.steps);
    values.set("training.local_epochs", length.epochs);
    values.set("model.options", this._model.readOptions());
    /** @type {Map<string, unknown>} */
    const defaults = new Map();
    for (const [section, table] of Object.entries(this.#form.defaults)) {
      for (const [key, value] of Object.entries(table)) defaults.set(`${section}.${key}`, value);
    }
    for (const [key, schema] of Object.entries(this.#method()?.settings.properties ?? {})) defaults.set(`method.${key}`, /** @type {any} */ (schema).default);
    return documentOf(values, defaults, ALWAYS);
  }

  // Checking

  /** @param {string} location */
  #changed(location) {
    this.#touched.add(location);
    if (location === "run.clients") {
      this.#touched.add("run.min_clients");
      this.#fillClasses();
    }
    this.#keep();
    this.#checkSoon();
  }

  /** @param {FocusEvent} event */
  #left(event) {
    const location = /** @type {HTMLElement} */ (event.target).closest?.("[data-location]")?.getAttribute("data-location");
    if (!location || this.#touched.has(location)) return;
    this.#touched.add(location);
    this.#showProblems();
  }

  #checkSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#check(), CHECK_MS);
  }

  /** Ask what is wrong; says whether nothing is, null where nobody answered. @returns {Promise<boolean | null>} */
  async #check() {
    clearTimeout(this.#timer);
    const number = ++this.#checks;
    const document = this.#document();
    try {
      const answer = await post("/v1/run-configuration/check", document, { signal: this.#signal });
      if (number !== this.#checks) return null;
      this.#problems = answer.problems;
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

  #allFields() {
    const all = new Map(this.#fields);
    for (const each of [...this.#methodFields, ...this._model.optionFields]) all.set(each.location, each);
    const model = all.get("model.name");
    if (model && !all.has("model")) all.set("model", model);
    const steps = all.get("training.local_steps");
    if (steps) all.set("training.local_epochs", steps);
    return all;
  }

  #showProblems() {
    const fields = this.#allFields();
    /** @type {Map<Field, string[]>} */
    const texts = new Map();
    for (const problem of this.#problems) {
      const known = fields.get(fieldOf(problem.location, (location) => fields.has(location)));
      if (known && this.#isDue(problem, known)) texts.set(known, [...(texts.get(known) ?? []), shortened(problem)]);
    }
    for (const each of new Set(fields.values())) each.setProblem((texts.get(each) ?? []).join("; "));
    const number = this.#problems.length;
    setAttribute(this._status, "data-tone", number ? null : "good");
    setText(this._status, number ? this.#todo() : "Nothing is wrong; ready to start.");
    if (this.#isSubmitted && !this._summary.hidden) this.#showSummary();
  }

  /**
   * Whether a problem is said already: nobody is told of what they have not come to yet.
   *
   * @param {Problem} problem
   * @param {Field} known
   */
  #isDue(problem, known) {
    if (this.#isSubmitted || this.#touched.has(known.location)) return true;
    const section = known.location.slice(0, known.location.indexOf(".") + 1);
    return isOfSeveral(problem) && [...this.#touched].some((location) => location.startsWith(section));
  }

  /** What is still to do before the run can start, in few words. */
  #todo() {
    const isMissing = (/** @type {string} */ location) => this.#problems.some((each) => each.location === location);
    if (!this.#isSubmitted && isMissing("run.clients") && !this._roster.clients.length) return "Pick the clients that take part.";
    return `${counted(this.#problems.length, "thing is", "things are")} missing or wrong.`;
  }

  #showSummary() {
    const fields = this.#allFields();
    this._summary.hidden = this.#problems.length === 0;
    this._summary.replaceChildren(
      h("h2", null, `${counted(this.#problems.length, "thing is", "things are")} missing or wrong`),
      h(
        "ul",
        { class: "problem-list" },
        this.#problems.map((problem) => {
          const known = fields.get(fieldOf(problem.location, (location) => fields.has(location)));
          if (!known) return h("li", null, sentence(problem.detail));
          return h("li", null, h("button", { type: "button", class: "link-button", on: { click: () => reveal(known) } }, `${known.label}: ${shortened(problem)}`));
        }),
      ),
    );
  }

  // Starting

  async #submit() {
    if (this.#isSending) return;
    this.#isSending = true;
    this.#isSubmitted = true;
    this._roster.addWritten();
    setAttribute(this._button, "aria-disabled", "true");
    setText(this._button, "Starting …");
    try {
      // A gateway that cannot check may still start: what is wrong then is told by the one who refuses.
      if ((await this.#check()) === false) return this.#refuse();
      this.#isKeyUsed = true;
      this.#keep();
      const run = await post("/v1/runs", this.#document(), { key: this.#key, signal: this.#signal });
      this.#draft.clear();
      announce(`Run ${run.run_id} was made`);
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
        "This form has made a run already",
        h("p", null, "An earlier press of Start made run ", h("a", { href: `#/runs/${runId}` }, runId), ", with the settings of then. Press Start again to make another run with those of now."),
      );
    }
    if (error.mayPass) {
      return this.#tell("Nobody knows yet whether the run was made", h("p", null, `${sentence(error.message)} Press Start again when it is back: that makes one run, not two.`));
    }
    const detail = problem?.detail ?? error.message;
    this.#problems = [{ location: refusedLocation(problem, this.#allFields().keys()), detail }];
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

/**
 * How long a client trains in a round: so many steps or epochs.
 *
 * @param {() => void} onChange
 * @returns {Field} Its value is {steps} or {epochs}; a bare number that is written is of steps.
 */
function lengthField(onChange) {
  const input = h("input", { type: "text", class: "field-number", inputmode: "numeric", autocomplete: "off", on: { input: onChange } });
  const unit = h(
    "select",
    { "aria-label": "Unit of local training", on: { input: onChange } },
    h("option", { value: "steps" }, "steps"),
    h("option", { value: "epochs" }, "epochs"),
  );
  const write = (/** @type {any} */ value) => {
    const isEpochs = typeof value === "object" && value !== null && "epochs" in value;
    unit.value = isEpochs ? "epochs" : "steps";
    input.value = String(value?.epochs ?? value?.steps ?? (typeof value === "object" ? "" : value) ?? "");
  };
  const read = () => ({ [unit.value]: numberIn(input.value) });
  const made = field("training.local_steps", input, { read, write }, {
    label: "Local training in a round",
    hint: "A step is one mini-batch, an epoch one pass over the client's data.",
  });
  const pair = h("div", { class: "field-pair" });
  input.before(pair);
  pair.append(input, unit);
  return made;
}

/**
 * A text whose last word may be an address.
 *
 * @param {string} text
 */
function withLink(text) {
  const address = /https:\/\/\S+$/.exec(text)?.[0];
  if (!address) return [text];
  return [text.slice(0, -address.length), h("a", { href: address, rel: "noreferrer", target: "_blank" }, "paper")];
}

/** @param {Field} known */
function reveal(known) {
  for (let at = known.element.closest("details"); at; at = at.parentElement?.closest("details") ?? null) at.open = true;
  known.focus();
}
