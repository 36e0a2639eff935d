// @ts-check
/**
 * A configuration as text to copy, and the command that starts the same run.
 */

import { urlOf } from "../lib/api.js";
import { runCommands } from "../lib/commands.js";
import { h, setText } from "../lib/dom.js";
import { announce } from "../lib/shell.js";

export class ConfigurationText {
  constructor() {
    this._toml = h("pre", { class: "code", tabindex: 0, "aria-label": "The configuration as TOML" });
    this._json = h("pre", { class: "code", tabindex: 0, "aria-label": "The configuration as JSON" });
    this._command = h("pre", { class: "code", tabindex: 0, "aria-label": "The command" }, runCommands(new URL(urlOf("/"))).start);
    this.element = h(
      "details",
      { class: "card disclosure" },
      h("summary", null, h("h2", null, "As a file and a command"), h("span", { class: "muted small" }, "The same run from a terminal or a script.")),
      h("p", { class: "small" }, "Save this as ", h("code", null, "run.toml"), ","),
      copied(this._toml, "Copy the TOML"),
      h("p", { class: "small" }, "and start it with:"),
      copied(this._command, "Copy the command"),
      h("p", { class: "small" }, "For a script, the body of ", h("code", null, "POST /v1/runs"), ":"),
      copied(this._json, "Copy the JSON"),
    );
  }

  /**
   * @param {Record<string, any>} document
   * @param {string | null} toml
   */
  update(document, toml) {
    setText(this._toml, toml ?? "# Here once nothing is wrong with it.");
    setText(this._json, JSON.stringify(document, null, 2));
  }
}

/**
 * @param {HTMLElement} text
 * @param {string} label
 */
function copied(text, label) {
  const button = h("button", { type: "button", class: "button button-small", on: { click: () => void copy() } }, label);
  async function copy() {
    const done = await toClipboard(text);
    announce(done ? "Copied" : "The text is selected; copy it with Ctrl and C");
    setText(button, done ? "Copied" : "Selected: press Ctrl+C");
    setTimeout(() => setText(button, label), 2000);
  }
  return h("div", { class: "copyable" }, text, button);
}

/** @param {HTMLElement} text */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text.textContent ?? "");
    return true;
  } catch {
    // There is no clipboard for pages without TLS; the selection can be copied by hand.
    getSelection()?.selectAllChildren(text);
    return false;
  }
}
