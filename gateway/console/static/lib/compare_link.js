// @ts-check
/**
 * Links to the page that compares runs.
 */

/** Most runs that are compared. */
export const MAX_RUNS = 5;

/**
 * @param {readonly string[]} runIds One to five; the page asks for more where there is one.
 */
export function compareLink(runIds) {
  return `#/runs/compare?${new URLSearchParams(runIds.slice(0, MAX_RUNS).map((runId) => ["run", runId]))}`;
}

/**
 * The runs that an address names: each once, and no more than are compared.
 *
 * @param {URLSearchParams} query
 */
export function runsIn(query) {
  const named = query.getAll("run").filter((runId) => /^[A-Za-z0-9._-]{1,128}$/.test(runId));
  return [...new Set(named)].slice(0, MAX_RUNS);
}
