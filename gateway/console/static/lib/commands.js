// @ts-check
/**
 * Commands that the console names, as they are typed. A test parses each of them as `fedplcc` itself does.
 */

import { sessions, whoami } from "./api.js";
import { h } from "./dom.js";

/** @typedef {{where: string, commands: readonly string[]}} Step Commands, and where they are typed. */

/** How a site comes in: by an invitation. @type {readonly Step[]} */
const INVITED = [
  { where: "On the aggregator's host, invite each site; the command prints a line for the owner of its images:", commands: ["fedplcc invite NAME"] },
  { where: "On the site's host, paste that line, and start a trainer beside the images:", commands: ["fedplcc join", "fedplcc trainer --data folder:PATH"] },
];
/** The same where the federation runs with --insecure. @type {readonly Step[]} */
const UNASKED = [
  {
    where: "Start a trainer on each site's host, with the address of the aggregator:",
    commands: ["fedplcc trainer --insecure --aggregator HOST:PORT --client NAME --data folder:PATH"],
  },
];
export const DEMO = "fedplcc demo";

/**
 * How a site comes in, as items of a list; the federation says in its answer to /v1/me whether it asks for certificates.
 *
 * @param {readonly (Node | string)[][]} [after] Items that follow.
 */
export function siteSteps(after = []) {
  const list = h("ol", { class: "steps-to-begin" });
  function draw() {
    const steps = whoami()?.federation === "" ? UNASKED : INVITED;
    list.replaceChildren(...steps.map(({ where, commands }) => h("li", null, where, commands.map((text) => command(text)))), ...after.map((parts) => h("li", null, parts)));
  }
  draw();
  sessions.addEventListener("known", draw, { once: true });
  return list;
}

/**
 * The commands that make a run's configuration and start it through this gateway.
 *
 * @param {URL} gateway
 */
export function runCommands(gateway) {
  const isLoopback = /^(localhost|127(?:\.\d+){3}|\[::1\])$/.test(gateway.hostname);
  const consent = gateway.protocol === "http:" && !isLoopback ? " --insecure" : "";
  const there = `--gateway ${gateway.origin}${consent}`;
  return { write: `fedplcc config init run.toml ${there}`, start: `fedplcc run start --config run.toml ${there}` };
}

/** @param {string} text */
export function command(text) {
  return h("code", { class: "command" }, text);
}
