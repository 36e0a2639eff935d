// @ts-check
/**
 * A run's configuration as rows: every key in the order of the form, its value, its default, and whether they differ. Pure.
 */

/**
 * @typedef {Record<string, any>} Form The document of GET /v1/run-configuration.
 * @typedef {{section: string, key: string, value: unknown, initial: unknown, hasDefault: boolean, isChanged: boolean, meaning: string}} Row
 *   `initial` is the default where there is one.
 */

/** Order of the sections. */
const SECTIONS = ["run", "method", "model", "data", "training", "evaluation", "quorum", "admission", "aggregation"];

/**
 * @param {Record<string, any>} config As the run's document has it.
 * @param {Form} form
 * @returns {Row[]}
 */
export function configurationRows(config, form) {
  const others = Object.keys({ ...form.sections, ...config }).filter((name) => !SECTIONS.includes(name));
  return [...SECTIONS, ...others].flatMap((section) => rowsOf(section, config, form));
}

/**
 * A value as a person writes it.
 *
 * @param {unknown} value
 */
export function spelled(value) {
  if (value === null || value === undefined) return "not set";
  return typeof value === "string" ? value : JSON.stringify(value, null, 1).replaceAll(/\s+/g, " ");
}

/**
 * Whether two values of keys are the same, whatever the order of their keys.
 *
 * @param {unknown} one
 * @param {unknown} other
 */
export function isSame(one, other) {
  return ordered(one) === ordered(other);
}

/**
 * @param {string} section
 * @param {Record<string, any>} config
 * @param {Form} form
 * @returns {Row[]}
 */
function rowsOf(section, config, form) {
  const isMethod = section === "method";
  const method = isMethod ? form.methods.find((/** @type {Record<string, any>} */ each) => each.name === config.run?.method) : null;
  const properties = (isMethod ? method?.settings : form.sections[section])?.properties ?? {};
  const defaults = isMethod ? Object.fromEntries(Object.entries(properties).map(([key, schema]) => [key, schema.default ?? null])) : (form.defaults[section] ?? {});
  const values = config[section] ?? {};
  return Object.keys({ ...properties, ...values }).map((key) => {
    const hasDefault = Object.hasOwn(defaults, key);
    const initial = hasDefault ? defaults[key] : null;
    const value = Object.hasOwn(values, key) ? values[key] : initial;
    return { section, key, value, initial, hasDefault, isChanged: hasDefault && !isSame(value, initial), meaning: properties[key]?.description ?? "" };
  });
}

/** @param {unknown} value @returns {string} */
function ordered(value) {
  return JSON.stringify(value ?? null, (_, each) =>
    each && typeof each === "object" && !Array.isArray(each) ? Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1))) : each,
  );
}
