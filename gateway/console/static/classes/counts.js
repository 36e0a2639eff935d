// @ts-check
/**
 * Counts of the clients' reports by domain and class: correct and all predictions, and confusion. Pure.
 */

/**
 * @typedef {Record<string, any>} Report An entry of GET /v1/runs/ID/evaluations.
 * @typedef {{correct: number[], total: number[], confusion: number[][] | null}} Counts By class, and by true and predicted class.
 */

/** Name of all domains together. */
export const EVERY_DOMAIN = "all domains";

/**
 * Evaluation sets that reports have, as a choice: the set and the model that it was given to.
 *
 * @param {readonly Report[]} reports
 * @returns {{key: string, label: string}[]} The test set of the global model first.
 */
export function setsOf(reports) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const report of reports) for (const each of report.counts) found.set(keyOf(each), labelOf(each));
  const rank = (/** @type {string} */ key) => Number(!key.startsWith("test ")) + Number(key.endsWith(" local"));
  return [...found].map(([key, label]) => ({ key, label })).sort((one, other) => rank(one.key) - rank(other.key) || (one.key < other.key ? -1 : 1));
}

/**
 * Counts of one set by domain; clients of one domain are added.
 *
 * @param {readonly Report[]} reports Of one round.
 * @param {string} key Of `setsOf`.
 * @returns {Map<string, Counts>} By domain in the order of names; of several domains that of all comes last.
 */
export function countsByDomain(reports, key) {
  /** @type {Map<string, Counts[]>} */
  const found = new Map();
  for (const { domain, counts } of reports) {
    for (const each of counts) if (keyOf(each) === key) found.set(domain, [...(found.get(domain) ?? []), each]);
  }
  /** @type {Map<string, Counts>} */
  const sums = new Map([...found].sort(([one], [other]) => (one < other ? -1 : 1)).map(([domain, counts]) => [domain, sum(counts)]));
  if (sums.size > 1) sums.set(EVERY_DOMAIN, sum([...sums.values()]));
  return sums;
}

/**
 * Accuracy of a class; null where there is no image of it.
 *
 * @param {Counts | undefined} counts
 * @param {number} index
 */
export function classAccuracy(counts, index) {
  return counts && counts.total[index] > 0 ? counts.correct[index] / counts.total[index] : null;
}

/**
 * Recall, precision and specificity of a class and its F1, by a confusion matrix; null for 0 / 0.
 *
 * @param {Counts & {confusion: number[][]}} counts
 * @param {number} index
 * @returns {Record<"recall" | "precision" | "specificity" | "f1", number | null>}
 */
export function classScores({ correct, total, confusion }, index) {
  const others = total.reduce((sum, value) => sum + value, 0) - total[index];
  const given = confusion.reduce((sum, row) => sum + row[index], 0);
  const share = (/** @type {number} */ part, /** @type {number} */ whole) => (whole > 0 ? part / whole : null);
  return {
    recall: share(correct[index], total[index]),
    precision: share(correct[index], given),
    specificity: share(others - (given - correct[index]), others),
    f1: share(2 * correct[index], total[index] + given),
  };
}

/**
 * At most so many of the numbers, evenly spread, with the first and the last.
 *
 * @param {readonly number[]} numbers
 * @param {number} most
 */
export function spreadOut(numbers, most) {
  if (numbers.length <= most) return [...numbers];
  return Array.from({ length: most }, (_, index) => numbers[Math.round((index * (numbers.length - 1)) / (most - 1))]);
}

/** @param {readonly Counts[]} all At least one; of equally many classes. @returns {Counts} */
function sum(all) {
  const add = (/** @type {number[]} */ one, /** @type {number[]} */ other) => one.map((value, index) => value + other[index]);
  // Of clients some of which report no matrix a sum would say less than there is.
  const matrices = all.map(({ confusion }) => confusion).filter((each) => each !== null);
  return {
    correct: all.map(({ correct }) => correct).reduce(add),
    total: all.map(({ total }) => total).reduce(add),
    confusion: matrices.length < all.length ? null : matrices.reduce((one, other) => one.map((row, index) => add(row, other[index]))),
  };
}

/**
 * Key of the set and the model of counts, as `setsOf` has it.
 *
 * @param {Record<string, any>} counts
 */
export function keyOf({ set_name, model }) {
  return `${set_name} ${model}`;
}

/** @param {Record<string, any>} counts */
function labelOf({ set_name, model }) {
  const [set, attack] = set_name.split("/");
  const images = attack ? `${set} images under ${attack}` : `${set} images`;
  return `${model === "local" ? "clients' own models" : "global model"}, ${images}`;
}
