// @ts-check
/**
 * Choosing a model: one that is built in with its stem, or another one by name with its options.
 */

import { h } from "../lib/dom.js";
import { jsonField, schemaField, selectField, textField } from "./fields.js";
import { isEqual } from "./run_document.js";

/**
 * @typedef {import("./fields.js").Field} Field
 * @typedef {Record<string, any>} Form The document of GET /v1/run-configuration.
 */

/** Value of the choice "another one". */
const OTHER = "";
/** Built-in models take no options. @type {Field[]} */
const NO_OPTIONS = [];

export class ModelChoice {
  /** Fields of the chosen model's options. @type {Field[]} */
  #options = NO_OPTIONS;
  /** Fields of options: of timm models, and of other models by name. @type {Field[]} */
  #ofTimm;
  /** @type {Field[]} */
  #ofFactory;
  #form;
  #onChange;

  /**
   * @param {Form} form
   * @param {(location: string) => void} onChange
   */
  constructor(form, onChange) {
    this.#form = form;
    this.#onChange = onChange;
    this.#ofTimm = this.#timmFields();
    this.#ofFactory = [this.#factoryField()];
    const { models, model_forms, sections } = form;
    const listen = { onChange: () => this.#written() };
    this._choice = selectField(
      "model.name",
      [...models.map((/** @type {any} */ each) => ({ value: each.name, label: each.name })), { value: OTHER, label: "another one …" }],
      { label: "Model", ...listen },
    );
    this._other = textField("model.name", { label: "Which model", placeholder: "timm:NAME", ...listen });
    this._other.element.append(
      h("ul", { class: "field-hint" }, model_forms.map((/** @type {any} */ each) => h("li", null, h("code", null, each.form), ` ${each.summary}`))),
    );
    const stems = [...new Set(models.flatMap((/** @type {any} */ each) => each.stems))].map((stem) => String(stem));
    this._stem = selectField("model.stem", [{ value: "", label: "the usual one" }, ...stems.map((value) => ({ value, label: value }))], {
      label: "Stem",
      isLong: true,
      withKey: true,
      hint: sections.model.properties.stem.description,
      onChange: () => onChange("model.stem"),
    });
    this._norm = schemaField("model.norm", sections.model.properties.norm, { withKey: true, onChange: () => onChange("model.norm") });
    /** The name. */
    this.elements = [this._choice.element, this._other.element];
    /** Options of other models; absent for built-in models. */
    this.optionElement = h("div", { class: "fields option-fields", hidden: true });
    /** Stem and normalisation; not there for models without a choice of them. */
    this.stemElement = h("section", { class: "settings" }, h("h3", null, "The model"), h("div", { class: "fields" }, this._stem.element, this._norm.element));
  }

  /** The keys that are chosen here. @returns {Field[]} */
  get fields() {
    const shown = () => (this._other.element.hidden ? this._choice : this._other);
    const isBuiltIn = (/** @type {unknown} */ name) => this.#form.models.some((/** @type {any} */ each) => each.name === name);
    /** @type {Field} */
    const name = {
      ...this._choice,
      read: () => this.#name(),
      write: (value) => {
        this._choice.write(isBuiltIn(value) ? value : OTHER);
        this._other.write(isBuiltIn(value) ? "" : value);
        this._other.element.hidden = isBuiltIn(value);
        this.#showOptions();
      },
      focus: () => shown().focus(),
      setProblem: (text) => shown().setProblem(text),
    };
    return [name, this._stem, this._norm];
  }

  /** Fields of the options, which are others for other models. */
  get optionFields() {
    return this.#options;
  }

  /** Value of `model.options`. @returns {unknown} */
  readOptions() {
    if (this.#options[0]?.location === "model.options") return this.#options[0].read();
    const { properties } = this.#form.timm_options;
    const entries = this.#options.map((each) => /** @type {const} */ ([each.location.slice("model.options.".length), each.read()]));
    const changed = entries.filter(([key, value]) => value !== undefined && !isEqual(value, properties[key].default));
    return changed.length ? Object.fromEntries(changed) : undefined;
  }

  /**
   * Fill in what an earlier run has as `model.options`.
   *
   * @param {Record<string, unknown>} [values]
   */
  writeOptions(values = {}) {
    for (const each of this.#options) {
      if (each.location === "model.options") each.write(values);
      else {
        const value = values[each.location.slice("model.options.".length)];
        if (value !== undefined) each.write(value ?? undefined);
      }
    }
  }

  /** Offer the stems and the options of the model that is named; what is filled in for others of its kind stays. */
  #showOptions() {
    const name = this.#name();
    const builtIn = this.#form.models.find((/** @type {any} */ each) => each.name === name);
    const stems = builtIn?.stems ?? [];
    this.stemElement.hidden = stems.length < 2;
    for (const option of this._stem.element.querySelectorAll("option")) {
      option.hidden = option.value !== "" && !stems.includes(option.value);
    }
    if (!stems.includes(this._stem.read())) this._stem.write("");
    if (this.stemElement.hidden) this._norm.write("batch");
    const options = builtIn ? NO_OPTIONS : name.startsWith("timm:") ? this.#ofTimm : this.#ofFactory;
    if (options === this.#options) return;
    this.#options = options;
    this.optionElement.hidden = options.length === 0;
    this.optionElement.replaceChildren(...options.map((each) => each.element));
  }

  #name() {
    return String(this._choice.read() ?? this._other.read() ?? "");
  }

  #written() {
    this._other.element.hidden = this._choice.read() !== undefined;
    this.#showOptions();
    this.#onChange("model.name");
  }

  #timmFields() {
    const onChange = () => this.#onChange("model.options");
    return Object.entries(this.#form.timm_options.properties).map(([key, schema]) =>
      schemaField(`model.options.${key}`, /** @type {any} */ (schema), { withKey: true, onChange }),
    );
  }

  #factoryField() {
    return jsonField("model.options", {
      label: "Options of the model",
      hint: "A JSON object: keyword arguments of the factory.",
      onChange: () => this.#onChange("model.options"),
    });
  }
}
