// @ts-check
/**
 * First steps for a federation without clients and runs.
 */

import { h } from "../lib/dom.js";

/** The section that says how a federation begins. */
export function beginning() {
  return h(
    "section",
    { class: "card", "aria-labelledby": "beginning" },
    h("h2", { id: "beginning" }, "Nothing is here yet"),
    h("p", { class: "muted" }, "No client has joined and no run was created. A federation begins like this:"),
    h(
      "ol",
      { class: "steps-to-begin" },
      h("li", null, "Start a trainer on each data host, with the address of the aggregator:", command("fedplcc trainer --aggregator HOST:PORT --client NAME --data folder:PATH")),
      h("li", null, "Start a run on the page ", h("a", { href: "#/start" }, "Start a run"), ", or in a terminal:", command("fedplcc run start --config run.toml")),
    ),
    h("p", { class: "small muted" }, "To see everything at work on one machine first:", command("fedplcc demo")),
  );
}

/** @param {string} text */
function command(text) {
  return h("code", { class: "command" }, text);
}
