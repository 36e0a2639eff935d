// @ts-check
/**
 * The query of a page's address: choices that a link to the page keeps.
 */

/** The query of this page's address. */
export function query() {
  return new URLSearchParams(location.hash.split("?")[1] ?? "");
}

/**
 * Change the query of this page's address, in the same entry of the browser's history.
 *
 * @param {Record<string, string | number | null>} changes null removes a name.
 */
export function keepInAddress(changes) {
  const kept = query();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) kept.delete(name);
    else kept.set(name, String(value));
  }
  const [page] = location.hash.split("?");
  const text = kept.toString();
  history.replaceState(null, "", text ? `${page}?${text}` : page);
}
