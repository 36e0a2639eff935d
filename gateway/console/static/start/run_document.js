// @ts-check
/**
 * Run configurations as documents: from filled-in values, from an earlier run, and the places of their problems. Pure.
 *
 * The gateway alone decides whether a configuration is right.
 */

import { listed, sentence } from "../lib/format.js";

/**
 * @typedef {Record<string, Record<string, unknown>>} Configuration Keys by section.
 * @typedef {{location: string, detail: string}} Problem
 */

/** Sections in the order in which people write them. */
export const SECTIONS = Object.freeze(["run", "method", "model", "data", "training", "evaluation", "quorum", "admission", "aggregation"]);

/**
 * The document of values by location, "training.batch_size". Undefined values and defaults are left out, except for the
 * keys that are always written.
 *
 * @param {ReadonlyMap<string, unknown>} values
 * @param {ReadonlyMap<string, unknown>} defaults
 * @param {ReadonlySet<string>} always
 * @returns {Configuration}
 */
export function documentOf(values, defaults, always) {
  /** @type {Configuration} */
  const document = {};
  const others = [...values.keys()].map((location) => split(location)[0]).filter((section) => !SECTIONS.includes(section));
  for (const section of [...SECTIONS, ...new Set(others)]) {
    for (const [location, value] of values) {
      const [own, key] = split(location);
      if (own !== section || value === undefined) continue;
      if (!always.has(location) && isEqual(value, defaults.get(location) ?? undefined)) continue;
      document[section] = { ...document[section], [key]: value };
    }
  }
  return document;
}

/**
 * The values by location of a configuration, as a run has it with the defaults filled in; what is null is not set.
 *
 * @param {Configuration} config
 * @returns {Map<string, unknown>}
 */
export function valuesOf(config) {
  const values = new Map();
  for (const [section, table] of Object.entries(config)) {
    for (const [key, value] of Object.entries(table)) {
      if (value !== null) values.set(`${section}.${key}`, value);
    }
  }
  return values;
}

/**
 * The key of the configuration that the aggregator refused.
 *
 * @param {{code?: string, metadata?: Record<string, string>} | null} problem A problem document.
 * @returns {string} Empty where the problem names none.
 */
export function refusedLocation(problem) {
  const isInitialModel = ["RUN_NOT_FOUND", "ROUND_NOT_FOUND", "BLOB_NOT_FOUND", "INVALID_MODEL"].includes(problem?.code ?? "");
  return isInitialModel ? "run.initial_model" : (problem?.metadata?.location ?? "");
}

/**
 * The field of a problem: that of its key, or of the list with this entry.
 *
 * @param {string} location
 * @param {(location: string) => boolean} isField
 * @returns {string} Empty where there is none.
 */
export function fieldOf(location, isField) {
  for (let at = location; at; at = at.slice(0, Math.max(0, at.lastIndexOf(".")))) {
    if (isField(at)) return at;
  }
  return "";
}

/**
 * A name for the next run, so that lists can tell it from those before.
 *
 * @param {string | undefined} earlier The name of a run that is begun anew; the next number follows it.
 * @param {Date} now
 */
export function freshName(earlier, now) {
  if (earlier) {
    const { stem, number } = /^(?<stem>.*?)(?:-(?<number>\d{1,4}))?$/.exec(earlier)?.groups ?? {};
    return `${(stem ?? "").slice(0, 58)}-${Number(number ?? 1) + 1}`;
  }
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return `run-${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}-${two(now.getHours())}${two(now.getMinutes())}`;
}

/**
 * What is wrong with a field, as a sentence beside its label: the key and the value stand there already.
 *
 * @param {{location: string, detail: string}} problem
 */
export function besideField({ location, detail }) {
  if (!location || !detail.startsWith(location)) return sentence(detail);
  const rest = detail.slice(location.length);
  const said = /^(?: = (?:"(?:[^"\\]|\\.)*"|[^:"]*))?: (?<said>.+)$/s.exec(rest)?.groups?.said;
  return sentence(said ?? `this${rest}`);
}

/**
 * Names in a text that people write: between commas or on lines of their own.
 *
 * @param {string} text
 */
export function namesIn(text) {
  return text.split(/[,\n]/).map((name) => name.trim()).filter(Boolean);
}

/**
 * The classes that clients have, sorted as `fedplcc config init` sorts them.
 *
 * @param {readonly Record<string, any>[]} clients Those of GET /v1/clients.
 */
export function classesOf(clients) {
  return [...new Set(clients.flatMap((client) => Object.keys(client.class_counts)))].sort();
}

/**
 * The smallest side of the images that clients looked at, in pixels; null where one does not say.
 *
 * @param {readonly Record<string, any>[]} clients Those of GET /v1/clients.
 * @returns {number | null}
 */
export function smallestSide(clients) {
  const sides = clients.map((client) => client.smallest_side);
  return sides.length && sides.every((side) => typeof side === "number") ? Math.min(...sides) : null;
}

/**
 * The recipe that fits images by itself, as `fedplcc config init` takes it.
 *
 * @param {readonly Record<string, any>[]} recipes Those of GET /v1/run-configuration.
 * @param {number | null} side The smallest side of the images; null where nobody knows.
 * @returns {Record<string, any> | undefined}
 */
export function recipeFor(recipes, side) {
  const least = (/** @type {Record<string, any>} */ each) => each.smallest_side ?? Infinity;
  return recipes.filter((each) => least(each) <= (side ?? 0)).sort((one, other) => least(other) - least(one))[0];
}

/**
 * Sentences on clients that have classes which a run lacks: their trainers refuse such a run when they read their data. Of three
 * or more clients, also on one that has a class which no other has: it may be spelt otherwise.
 *
 * @param {readonly Record<string, any>[]} clients Those of GET /v1/clients that take part.
 * @param {readonly string[]} classes The run's.
 * @returns {string[]}
 */
export function strangeClasses(clients, classes) {
  const known = new Set(classes);
  /** @type {Map<string, number>} */
  const holders = new Map();
  for (const name of clients.flatMap((client) => Object.keys(client.class_counts))) holders.set(name, (holders.get(name) ?? 0) + 1);
  const areMany = clients.filter((client) => Object.keys(client.class_counts).length).length > 2;
  /** @type {(client: Record<string, any>, names: string[], what: string) => string[]} */
  const said = (client, names, what) => (names.length ? [`${client.client_id} has the ${names.length === 1 ? "class" : "classes"} ${listed(names)}, which ${what}`] : []);
  return clients.flatMap((client) => {
    const own = Object.keys(client.class_counts).sort();
    return [
      ...said(client, own.filter((name) => !known.has(name)), "the run has not, and will refuse it"),
      ...said(client, own.filter((name) => areMany && known.has(name) && holders.get(name) === 1), "no other client has"),
    ];
  });
}

/**
 * @param {unknown} one
 * @param {unknown} other
 */
export function isEqual(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** @param {string} location */
function split(location) {
  const dot = location.indexOf(".");
  return [location.slice(0, dot), location.slice(dot + 1)];
}
