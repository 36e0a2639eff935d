// @ts-check
/**
 * The page that starts a run. With clients picked, every other setting has a default that works.
 *
 * Fields come from GET /v1/run-configuration, problems from POST /v1/run-configuration/check, which uses the aggregator's code.
 * Sending a form twice creates one run.
 */

import { ApiError, allClients, get, reachNow, runPath } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { sentence } from "../lib/format.js";
import { repeat } from "../lib/shell.js";
import { StartForm } from "./form.js";

/** Pause between two reads of the clients. */
const CLIENTS_MS = 5000;

/**
 * @param {HTMLElement} root
 * @param {Record<string, string>} params `from`: a run whose configuration the form begins with.
 */
export function show(root, { from }) {
  const ended = new AbortController();
  const heading = h("h1", null, "Start a run");
  const loading = h("p", { class: "muted" }, "Reading what can be configured …");
  root.append(h("div", { class: "page-head" }, heading), loading);
  /** @type {StartForm | null} */
  let form = null;

  async function begin() {
    const options = { signal: ended.signal };
    try {
      const [description, earlier] = await Promise.all([get("/v1/run-configuration", options), from ? get(runPath(from), options) : null]);
      form = new StartForm(description, earlier, ended.signal);
      loading.replaceWith(form.element);
      clients.soon();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const again = h("button", { type: "button", class: "button", on: { click: () => location.reload() } }, "Load again");
      const without = from ? h("a", { class: "button", href: "#/start" }, "Start from a new form") : null;
      loading.replaceWith(
        h("div", { class: "notice", "data-tone": "bad", role: "alert" }, h("p", null, sentence(error.message)), h("p", { class: "buttons" }, again, without)),
      );
    }
  }

  const clients = repeat(async (signal) => {
    if (!form) return;
    try {
      form.setClients(await allClients({ signal }));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const { away } = reachNow();
      form.setUnknownClients(sentence(`${away ? `the ${away} does not answer` : error.message}: which clients have joined is not known`));
    }
  }, CLIENTS_MS);
  void begin().catch((error) => {
    if (!ended.signal.aborted) throw error;
  });
  return () => {
    ended.abort();
    clients.stop();
    form?.close();
  };
}
