// @ts-check
/**
 * What somebody has filled in and not sent yet, kept by the tab: it outlives a reload and another page of the console, and
 * ends with the tab. Nothing secret belongs here.
 */

/** A draft is read by the version of the console that wrote it, whose name is in this module's address; to others it is none. */
const PREFIX = `fedplcc.draft.${new URL(".", import.meta.url).pathname}`;

export class Draft {
  #name;

  /** @param {string} name */
  constructor(name) {
    this.#name = PREFIX + name;
  }

  /** What was kept; null where nothing was, or nothing that can be read. @returns {Record<string, any> | null} */
  read() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(this.#name) ?? "null");
      return typeof kept === "object" ? kept : null;
    } catch {
      return null;
    }
  }

  /** @param {Record<string, any>} content Undefined is kept as null: it is something that was emptied. */
  write(content) {
    try {
      sessionStorage.setItem(this.#name, JSON.stringify(content, (_, value) => (value === undefined ? null : value)));
    } catch {
      // A browser may be told to keep nothing; the form works all the same.
    }
  }

  clear() {
    try {
      sessionStorage.removeItem(this.#name);
    } catch {
      // See above.
    }
  }
}
