// @ts-check
/**
 * First steps for a federation without clients and runs.
 */

import { urlOf } from "../lib/api.js";
import { DEMO, command, runCommands, siteSteps } from "../lib/commands.js";
import { h } from "../lib/dom.js";

/** The section that says how a federation begins. */
export function beginning() {
  const { write, start } = runCommands(new URL(urlOf("/")));
  return h(
    "section",
    { class: "card", "aria-labelledby": "beginning" },
    h("h2", { id: "beginning" }, "Nothing is here yet"),
    h("p", { class: "muted" }, "No client has joined and no run was created. A federation begins like this:"),
    siteSteps([["Start a run on the page ", h("a", { href: "#/start" }, "Start a run"), ", or in a terminal:", command(write), command(start)]]),
    h("p", { class: "small muted" }, "To see everything at work on one machine first:", command(DEMO)),
  );
}
