// @ts-check
/**
 * The settings of a run as fields, made from the gateway's description of a configuration.
 */

import { field, listField, numberIn, schemaField, selectField } from "./fields.js";
import { ModelChoice } from "./model_choice.js";
import { Roster } from "./roster.js";
import { SECTIONS, classesOf, documentOf, isEqual, recipeFor, smallestSide, strangeClasses, valuesOf } from "./run_document.js";
import { h, setText } from "../lib/dom.js";
import { count, listed, sentence } from "../lib/format.js";

/**
 * @typedef {import("./fields.js").Field} Field
 * @typedef {Record<string, any>} Form The document of GET /v1/run-configuration.
 */

/** Keys that the form always writes, so that the configuration is clear without knowing the defaults. */
const ALWAYS = new Set([
  ...["name", "method", "rounds", "seed", "clients", "min_clients"].map((key) => `run.${key}`),
  ...["model.name", "data.classes", "data.image_size", "training.local_steps", "training.local_epochs"],
]);
/** Fields of the first cards, and the version, which nobody chooses; all others are under "More settings". */
const FIRST = new Set([...ALWAYS, "run.version", "model.stem", "model.norm", "model.options"]);
/** Keys that are chosen with the clients. */
const ROSTER = new Set(["run.clients", "run.min_clients"]);
/** Keys that stay as they are when tables to begin with are chosen. */
const KEPT = new Set([...ROSTER, "run.name", "run.seed", "data.classes"]);
/** The choice of none of the recipes. */
const PUBLISHED = "";
/** Keys that are made anew, or filled in otherwise. */
const ELSEWHERE = new Set(["run.version", "training.local_epochs", "model.options"]);
/** @type {Record<string, {title: string, note: string}>} */
const GROUPS = {
  training: { title: "Local training", note: "How each client trains between two rounds." },
  run: { title: "The run", note: "" },
  data: { title: "Images", note: "Data settings that all clients share." },
  evaluation: { title: "Evaluation", note: "The rounds in which clients evaluate. Training is the same in any case." },
  quorum: { title: "Quorum", note: "Conditions under which a round continues without absent clients. Without a quorum a round waits for all." },
  admission: { title: "Admission", note: "Limits on updates, and the treatment of clients whose updates exceed them." },
  aggregation: { title: "Aggregation", note: "How the updates of a round become one." },
};

export class Settings {
  #form;
  #onChange;
  #roster;
  #model;
  /** The classes that the form filled in last, to detect changes by people. @type {string[]} */
  #filledClasses = [];
  /** Fields of the chosen method. @type {Field[]} */
  #methodFields = [];
  /** All others, by location. @type {Map<string, Field>} */
  #fields = new Map();
  /** Whether somebody chose what the form begins with, or changed what it began with. */
  #isChosen = false;
  /** Values of an earlier run's, or a recipe's, keys that have no field, by location. @type {Map<string, unknown>} */
  #unshown = new Map();

  /**
   * @param {Form} form
   * @param {(location: string) => void} onChange
   */
  constructor(form, onChange) {
    this.#form = form;
    this.#onChange = (/** @type {string} */ location) => {
      if (!KEPT.has(location)) this.#isChosen = true;
      if (location === "model.name") this.#unshown = new Map([...this.#unshown].filter(([each]) => !each.startsWith("model.")));
      onChange(location);
    };
    this.#roster = new Roster(() => onChange("run.clients"));
    this.#model = new ModelChoice(form, this.#onChange);
    for (const each of [...this.#roster.fields, ...this.#model.fields]) this.#fields.set(each.location, each);
    this._methodText = h("p", { class: "field-hint" });
    this._methodHeading = h("h3");
    this._methodBody = h("div", { class: "fields" });
    this._classNote = h("p", { class: "field-hint" });
    this._recipe = this.#recipeField();
    this._recipeNote = h("p", { class: "field-hint" });
    this._recipe.element.append(this._recipeNote);
    this.elements = [this.#roster.element, this.#whatIsTrained(), this.#moreSettings()];
    this.#begin();
  }

  /** Clients that were picked. */
  get clients() {
    return this.#roster.clients;
  }

  /** Sentences on what will stop the run after its start; the gateway cannot know them. @returns {string[]} */
  get warnings() {
    const classes = this.#fields.get("data.classes")?.read();
    const heads = this.#form.recipes.filter((/** @type {any} */ each) => each.config.model.weights);
    const [method, chosen] = [this.#method(), this.#chosenRecipe];
    const fitting = heads.find((/** @type {any} */ each) => each.config.run.method === method?.name) ?? heads.at(-1);
    const isOthers = method && heads.includes(chosen) && fitting !== chosen;
    return [
      ...(isOthers ? [`${chosen.title} has rounds and a head that are not for ${method.title}; begin with ${fitting.title}`] : []),
      ...(Array.isArray(classes) ? strangeClasses(this.#roster.clients, classes) : []),
    ];
  }

  /** Keys of the earlier run that have no field and go with it as they are, each with its value. @returns {string[]} */
  get unshown() {
    return [...this.#unshown].map(([location, value]) => `${location} = ${JSON.stringify(value)}`);
  }

  /** Values of the fields, for a draft. */
  get draft() {
    const values = Object.fromEntries(this.#written().map((each) => [each.location, each.read()]));
    const { draft: roster } = this.#roster;
    return { values, roster, filledClasses: this.#filledClasses, unshown: [...this.#unshown], recipe: this._recipe.read(), isChosen: this.#isChosen };
  }

  /** @param {string} name */
  setName(name) {
    this.#fields.get("run.name")?.write(name);
  }

  /** @param {Record<string, any>} draft */
  restore({ values, roster, filledClasses, unshown, recipe, isChosen }) {
    this._recipe.write(recipe);
    this.#sayRecipe();
    this.#isChosen = isChosen;
    this.#unshown = new Map(unshown ?? []);
    this.#roster.restore(roster);
    const write = (/** @type {Field} */ each) => each.location in values && each.write(values[each.location] ?? undefined);
    this.#written().forEach((field) => write(field));
    this.#methodChanged();
    [...this.#methodFields, ...this.#model.optionFields].forEach((field) => write(field));
    this.#filledClasses = filledClasses;
  }

  /** @param {string} reason Why it is not known which clients have joined. */
  setUnknownClients(reason) {
    this.#roster.setUnknown(reason);
  }

  /**
   * @param {Record<string, any>[]} clients Those of GET /v1/clients.
   * @returns {boolean} Whether that changed the classes.
   */
  setClients(clients) {
    this.#roster.setKnown(clients);
    return this.fillClasses();
  }

  /** Take the name that is written and not added yet. */
  addWritten() {
    this.#roster.addWritten();
  }

  /** Whether a key has a default, so that it is right until somebody changes something. @param {string} location */
  hasDefault(location) {
    const [section, key] = location.split(".");
    return section === "method" || key in (this.#form.defaults[section] ?? {});
  }

  /** Fields of all keys but those that the roster keeps. */
  #written() {
    return [...this.#fields.values(), ...this.#methodFields, ...this.#model.optionFields].filter((each) => !ROSTER.has(each.location));
  }

  #whatIsTrained() {
    const { methods, sections } = this.#form;
    const change = (/** @type {string} */ location) => () => this.#onChange(location);
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
        this.#onChange("run.method");
      },
    });
    method.element.append(this._methodText);
    const classes = listField("data.classes", { label: "Classes", isLong: true, onChange: change("data.classes") });
    classes.element.append(this._classNote);
    return h(
      "fieldset",
      { class: "card" },
      h("legend", { class: "card-legend" }, "Method and model"),
      h(
        "div",
        { class: "fields" },
        this._recipe.element,
        add(method),
        plain("run.name", { label: "Name", hint: "For people; letters, digits, dots, dashes. It need not be unique." }),
        plain("run.rounds", { label: "Rounds", hint: "1 to 100,000." }),
        add(lengthField(change("training.local_steps"))),
        ...this.#model.elements,
        plain("run.seed", { label: "Seed", hint: "Everything random follows from it: the same seed and data give the same run." }),
        plain("data.image_size", { label: "Image size", hint: "Height and width in pixels to which every image is brought; 8 to 1,024." }),
        add(classes),
      ),
      this.#model.optionElement,
    );
  }

  #moreSettings() {
    const groups = SECTIONS.filter((section) => section in GROUPS).map((section) => {
      const properties = Object.entries(this.#form.sections[section].properties);
      const fields = properties.flatMap(([key, schema]) => {
        const location = `${section}.${key}`;
        if (FIRST.has(location)) return [];
        const made = schemaField(location, schema, { withKey: true, onChange: () => this.#onChange(location) });
        this.#fields.set(location, made);
        return [made.element];
      });
      const { title, note } = GROUPS[section];
      return h("section", { class: "settings" }, h("h3", null, title), note ? h("p", { class: "muted small" }, note) : null, h("div", { class: "fields" }, fields));
    });
    return h(
      "details",
      { class: "card disclosure" },
      h("summary", null, h("h2", null, "More settings"), h("span", { class: "muted small" }, "The method's own, local training, evaluation, quorum, admission, aggregation. All have defaults.")),
      h("section", { class: "settings" }, this._methodHeading, this._methodBody),
      this.#model.stemElement,
      groups,
    );
  }

  /** Fill in the defaults, and what the chosen recipe has in their place. */
  #begin() {
    for (const [section, values] of Object.entries(this.#form.defaults)) {
      for (const [key, value] of Object.entries(values)) {
        const known = this.#fields.get(`${section}.${key}`);
        if (!known || ROSTER.has(known.location) || known.location.startsWith("training.local_")) continue;
        if (!KEPT.has(known.location) || known.read() === undefined) known.write(value ?? undefined);
      }
    }
    this.#fields.get("training.local_steps")?.write(this.#form.defaults.training.local_steps);
    const hasFedplcc = this.#form.methods.some((/** @type {any} */ each) => each.name === "fedplcc");
    this.#fields.get("run.method")?.write(hasFedplcc ? "fedplcc" : this.#form.methods[0].name);
    this.#fillIn(this.#chosenRecipe?.config ?? {});
    this.#sayRecipe();
  }

  get #chosenRecipe() {
    return this.#form.recipes.find((/** @type {any} */ each) => each.name === this._recipe.read());
  }

  #sayRecipe(why = "") {
    const published = "Each method has its paper's settings: what was published, and not what works on any images.";
    setText(this._recipeNote, `${sentence(this.#chosenRecipe?.summary ?? published)}${why}`);
  }

  /** Fill in the configuration of an earlier run. @param {Record<string, any>} config */
  fill(config) {
    this.#isChosen = true;
    this._recipe.write(PUBLISHED);
    this._recipe.element.hidden = true;
    this.#begin();
    this.#fillIn(config);
    this.#filledClasses = [];
    if (!valuesOf(config).has("run.clients")) this.#fields.get("run.clients")?.write(undefined);
  }

  /** @param {Record<string, any>} config */
  #fillIn(config) {
    const values = valuesOf(config);
    for (const each of this.#fields.values()) {
      const value = values.get(each.location);
      if (value !== undefined) each.write(value);
    }
    if (values.has("training.local_epochs")) this.#fields.get("training.local_steps")?.write({ epochs: values.get("training.local_epochs") });
    this.#unshown = new Map([...values].filter(([location, value]) => this.#isUnshown(location, value)));
    this.#methodChanged(config.method);
    this.#model.writeOptions(config.model?.options);
  }

  /**
   * Whether a key that is not as by default has no field.
   *
   * @param {string} location
   * @param {unknown} value
   */
  #isUnshown(location, value) {
    const [section, key] = location.split(".");
    if (section === "method" || ELSEWHERE.has(location) || this.#fields.has(location)) return false;
    return !isEqual(value, this.#form.defaults[section]?.[key] ?? undefined);
  }

  /** Offer classes and recipe of the clients that were picked, unless somebody chose others. @returns {boolean} Whether one changed. */
  fillClasses() {
    const classes = this.#fields.get("data.classes");
    if (!classes) return false;
    const { clients } = this.#roster;
    const found = classesOf(clients);
    const isOwn = isEqual(classes.read(), this.#filledClasses);
    const isNew = isOwn && !isEqual(found, this.#filledClasses);
    if (isNew) {
      this.#filledClasses = found;
      classes.write(found);
    }
    const isOther = this.#takeRecipe(clients);
    const without = clients.filter((client) => found.some((name) => !client.class_counts[name])).map((client) => client.client_id);
    let note = "Names of the classes with commas between, as the folders of the clients' images are named.";
    if (isOwn && found.length) note = `Those of the clients that take part${without.length ? `; ${listed(without)} ${without.length === 1 ? "has" : "have"} not all of them` : ""}.`;
    setText(this._classNote, note);
    return isNew || isOther;
  }

  /**
   * Begin with the recipe that fits the clients' images, as `fedplcc config init` does, unless somebody chose or changed something.
   *
   * @param {readonly Record<string, any>[]} clients
   * @returns {boolean} Whether it is another one than before.
   */
  #takeRecipe(clients) {
    const side = smallestSide(clients);
    const taken = recipeFor(this.#form.recipes, side);
    if (this.#isChosen || !clients.length || !taken) return false;
    const isOther = taken.name !== this._recipe.read();
    this._recipe.write(taken.name);
    if (isOther) this.#begin();
    const whose = clients.find((client) => client.smallest_side === side);
    const why = side === null ? "Not every client has looked at its images" : `The smallest image that clients looked at has ${count(side)} pixels at its smaller side, at ${whose?.client_id}`;
    this.#sayRecipe(` ${why}.`);
    return isOther;
  }

  #recipeField() {
    const { recipes } = this.#form;
    const options = recipes.map((/** @type {any} */ each) => ({ value: each.name, label: each.title }));
    return selectField("recipe", [...options, { value: PUBLISHED, label: "As published" }], {
      label: "Begin with",
      isLong: true,
      onChange: () => {
        this.#begin();
        this.#onChange("recipe");
      },
    });
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
    const said = { ...this.#form.at_sites, ...this.#chosenRecipe?.of_others, ...values };
    this.#methodFields = Object.entries(method.settings.properties).map(([key, schema]) => {
      const location = `method.${key}`;
      const made = schemaField(location, /** @type {any} */ (schema), { withKey: true, onChange: () => this.#onChange(location) });
      if (said[key] !== undefined) made.write(said[key] ?? undefined);
      return made;
    });
    this._methodBody.replaceChildren(...this.#methodFields.map((each) => each.element));
  }

  /** The configuration that is filled in. */
  document() {
    /** @type {Map<string, unknown>} */
    const values = new Map();
    // In the order in which the keys are described, as people write them.
    for (const [section, { properties }] of Object.entries(this.#form.sections)) {
      for (const key of Object.keys(properties)) values.set(`${section}.${key}`, this.#fields.get(`${section}.${key}`)?.read());
    }
    for (const each of this.#methodFields) values.set(each.location, each.read());
    for (const [location, value] of this.#unshown) values.set(location, value);
    const length = /** @type {any} */ (values.get("training.local_steps"));
    values.set("training.local_steps", length.steps);
    values.set("training.local_epochs", length.epochs);
    values.set("model.options", this.#model.readOptions());
    /** @type {Map<string, unknown>} */
    const defaults = new Map();
    for (const [section, table] of Object.entries(this.#form.defaults)) {
      for (const [key, value] of Object.entries(table)) defaults.set(`${section}.${key}`, value);
    }
    for (const [key, schema] of Object.entries(this.#method()?.settings.properties ?? {})) defaults.set(`method.${key}`, /** @type {any} */ (schema).default);
    return documentOf(values, defaults, ALWAYS);
  }

  /** Every field by the location of a problem that it can show. */
  fields() {
    const all = new Map(this.#fields);
    for (const each of [...this.#methodFields, ...this.#model.optionFields]) all.set(each.location, each);
    const model = all.get("model.name");
    if (model && !all.has("model")) all.set("model", model);
    const steps = all.get("training.local_steps");
    if (steps) all.set("training.local_epochs", steps);
    return all;
  }
}

/**
 * The field for the length of local training, in steps or epochs.
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
