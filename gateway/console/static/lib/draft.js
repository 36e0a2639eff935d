// @ts-check
/**
 * Drafts of forms in the tab's session storage: they survive a reload and end with the tab. They hold no secrets.
 */

/** The console's version is in this module's address: only the version that wrote a draft reads it. */
const PREFIX = `fedplcc.draft.${new URL(".", import.meta.url).pathname}`;

export class Draft {
  #name;

  /** @param {string} name */
  constructor(name) {
    this.#name = PREFIX + name;
  }

  /** The draft; null without a readable one. @returns {Record<string, any> | null} */
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
      // A browser may forbid storage; the form works without a draft.
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
