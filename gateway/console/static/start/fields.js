// @ts-check
/**
 * Fields of a form: label, input, meaning, problem. Made by hand or from a JSON Schema.
 *
 * A number is passed on as a number. Text in a number field is passed on as text, so that the check can refuse it.
 */

import { h, setAttribute, setText } from "../lib/dom.js";
import { NONE, words } from "../lib/format.js";
import { namesIn } from "./run_document.js";

/**
 * @typedef {Record<string, any>} Schema
 * @typedef {{
 *   location: string,
 *   label: string,
 *   element: HTMLElement,
 *   read: () => unknown,
 *   write: (value: unknown) => void,
 *   focus: () => void,
 *   setProblem: (text: string) => void,
 * }} Field `read` gives undefined for what is not set, and `write` takes it.
 * @typedef {{label?: string, hint?: string, isLong?: boolean, withKey?: boolean, onChange?: () => void}} Options
 */

let made = 0;

/**
 * A field around an input that there is already.
 *
 * @param {string} location
 * @param {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} input
 * @param {{read: () => unknown, write: (value: unknown) => void}} value
 * @param {Options} options
 * @returns {Field}
 */
export function field(location, input, value, options) {
  const id = `field-${++made}`;
  const label = options.label ?? titled(location);
  const problem = h("p", { class: "field-problem", id: `${id}-problem`, hidden: true });
  const hint = options.hint ? h("p", { class: "field-hint", id: `${id}-hint` }, ...marked(options.hint)) : null;
  input.id = id;
  setAttribute(input, "aria-describedby", [hint?.id, problem.id].filter(Boolean).join(" "));
  const isCheckbox = input.type === "checkbox";
  const name = h("label", { for: id }, label);
  const key = options.withKey ? h("code", { class: "field-key" }, location) : null;
  const element = h(
    "div",
    { class: isCheckbox ? "field field-check" : "field", data: { location } },
    ...(isCheckbox ? [h("div", { class: "field-line" }, input, name, key)] : [h("div", { class: "field-line" }, name, key), input]),
    problem,
    hint,
  );
  if (options.isLong) element.classList.add("field-long");
  return {
    location,
    label,
    element,
    ...value,
    focus: () => input.focus(),
    setProblem: (text) => {
      setText(problem, text);
      problem.hidden = !text;
      setAttribute(input, "aria-invalid", text ? "true" : null);
    },
  };
}

/**
 * A field for what a JSON Schema describes.
 *
 * @param {string} location
 * @param {Schema} schema
 * @param {Options} [options]
 * @returns {Field}
 */
export function schemaField(location, schema, options = {}) {
  const bare = schema.anyOf ? { ...schema, ...schema.anyOf.find((/** @type {Schema} */ each) => each.type !== "null") } : schema;
  const own = { ...options, hint: options.hint ?? hintOf(schema.description, bare) };
  const initial = schema.default ?? undefined;
  const found = makeField(location, bare, own, initial === undefined);
  found.write(initial);
  return found;
}

/**
 * @param {string} location
 * @param {Schema} schema
 * @param {Options} options
 * @param {boolean} mayBeUnset
 * @returns {Field}
 */
function makeField(location, schema, options, mayBeUnset) {
  if (schema.enum) return selectField(location, schema.enum.map((/** @type {string} */ value) => ({ value, label: words(value) })), options);
  switch (schema.type) {
    case "boolean":
      return checkField(location, options);
    case "integer":
    case "number":
      return numberField(location, { ...options, isUnsettable: mayBeUnset, isWhole: schema.type === "integer" });
    case "array":
      if (schema.items?.enum) return choicesField(location, schema.items.enum, options);
      return listField(location, { ...options, isUnsettable: mayBeUnset, isOfNumbers: Boolean(schema.prefixItems) });
    case "object":
      return jsonField(location, options);
    default:
      return textField(location, options);
  }
}

/**
 * @param {string} location
 * @param {Options & {placeholder?: string}} options
 */
export function textField(location, options = {}) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: options.placeholder, on: listening(options) });
  return field(location, input, { read: () => input.value.trim() || undefined, write: (value) => (input.value = String(value ?? "")) }, options);
}

/**
 * @param {string} location
 * @param {Options & {isUnsettable?: boolean, isWhole?: boolean}} options
 */
export function numberField(location, options = {}) {
  const input = h("input", {
    type: "text",
    class: "field-number",
    inputmode: options.isWhole ? "numeric" : "decimal",
    autocomplete: "off",
    placeholder: options.isUnsettable ? "not set" : null,
    on: listening(options),
  });
  return field(location, input, { read: () => numberIn(input.value), write: (value) => (input.value = String(value ?? "")) }, options);
}

/**
 * @param {string} location
 * @param {{value: string, label: string}[]} choices
 * @param {Options} options
 */
export function selectField(location, choices, options = {}) {
  const input = h("select", { on: listening(options) }, choices.map(({ value, label }) => h("option", { value }, label)));
  return field(location, input, { read: () => input.value || undefined, write: (value) => (input.value = String(value ?? "")) }, options);
}

/**
 * @param {string} location
 * @param {Options} options
 */
export function checkField(location, options = {}) {
  const input = h("input", { type: "checkbox", on: listening(options) });
  return field(location, input, { read: () => input.checked, write: (value) => (input.checked = value === true) }, options);
}

/**
 * Names or numbers with commas between.
 *
 * @param {string} location
 * @param {Options & {isOfNumbers?: boolean, isUnsettable?: boolean}} options
 */
export function listField(location, options = {}) {
  const input = options.isLong
    ? h("textarea", { rows: 2, spellcheck: "false", autocomplete: "off", on: listening(options) })
    : h("input", { type: "text", spellcheck: "false", autocomplete: "off", on: listening(options) });
  const read = () => {
    const parts = namesIn(input.value);
    if (options.isUnsettable && !parts.length) return undefined;
    return parts.map((part) => (options.isOfNumbers ? numberIn(part) : part));
  };
  return field(location, input, { read, write: (value) => (input.value = Array.isArray(value) ? value.join(", ") : "") }, options);
}

/**
 * Any JSON; what is none goes on as text.
 *
 * @param {string} location
 * @param {Options} options
 */
export function jsonField(location, options = {}) {
  const input = h("textarea", { rows: 3, class: "mono", spellcheck: "false", placeholder: "{}", on: listening(options) });
  const read = () => {
    if (!input.value.trim()) return undefined;
    try {
      return JSON.parse(input.value);
    } catch {
      return input.value;
    }
  };
  const write = (/** @type {any} */ value) => {
    if (typeof value === "string") input.value = value;
    else input.value = value && Object.keys(value).length ? JSON.stringify(value, null, 2) : "";
  };
  return field(location, input, { read, write }, { ...options, isLong: true });
}

/**
 * Some of a few words, as boxes to check.
 *
 * @param {string} location
 * @param {string[]} choices
 * @param {Options} options
 * @returns {Field}
 */
export function choicesField(location, choices, options = {}) {
  const id = `field-${++made}`;
  const boxes = choices.map((value) => h("input", { type: "checkbox", value, on: listening(options) }));
  const problem = h("p", { class: "field-problem", id: `${id}-problem`, hidden: true });
  const label = options.label ?? titled(location);
  const element = h(
    "fieldset",
    { class: "field", data: { location }, "aria-describedby": problem.id },
    h("legend", null, label, options.withKey ? h("code", { class: "field-key" }, location) : null),
    h("div", { class: "field-boxes" }, boxes.map((box) => h("label", null, box, words(box.value)))),
    problem,
    options.hint ? h("p", { class: "field-hint" }, ...marked(options.hint)) : null,
  );
  return {
    location,
    label,
    element,
    read: () => boxes.filter((box) => box.checked).map((box) => box.value),
    write: (value) => boxes.forEach((box) => (box.checked = Array.isArray(value) && value.includes(box.value))),
    focus: () => boxes[0]?.focus(),
    setProblem: (text) => {
      setText(problem, text);
      problem.hidden = !text;
    },
  };
}

/**
 * A number where the text is one, undefined where there is none, else the text.
 *
 * @param {string} text
 */
export function numberIn(text) {
  const bare = text.trim();
  if (!bare) return undefined;
  const value = Number(bare);
  return Number.isFinite(value) ? value : bare;
}

/**
 * The last part of a location as a label: "training.batch_size" is "Batch size", "quorum.silence_s" is "Silence in seconds".
 *
 * @param {string} location
 */
export function titled(location) {
  const name = words(location.slice(location.lastIndexOf(".") + 1)).replace(/ s$/, " in seconds");
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/**
 * Meaning and range of a key.
 *
 * @param {string | undefined} description
 * @param {Schema} schema
 */
function hintOf(description, schema) {
  const low = schema.minimum ?? (schema.exclusiveMinimum === undefined ? undefined : `more than ${plain(schema.exclusiveMinimum)}`);
  const high = schema.maximum ?? (schema.exclusiveMaximum === undefined ? undefined : `less than ${plain(schema.exclusiveMaximum)}`);
  let range = "";
  if (schema.minimum !== undefined && schema.maximum !== undefined) range = `${plain(low)} to ${plain(high)}`;
  else {
    const least = schema.minimum === undefined ? low : `at least ${plain(low)}`;
    const most = schema.maximum === undefined ? high : `at most ${plain(high)}`;
    range = [least, most].filter((part) => part !== undefined).join(", ");
  }
  return [description, range && `${range.charAt(0).toUpperCase()}${range.slice(1)}.`].filter(Boolean).join(" ");
}

/** @param {unknown} value */
function plain(value) {
  return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 6 }) : (value ?? NONE);
}

/**
 * A text with its `quoted keys` as code.
 *
 * @param {string} text
 */
function marked(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", null, part) : part));
}

/** @param {Options} options */
function listening(options) {
  return { input: () => options.onChange?.() };
}
