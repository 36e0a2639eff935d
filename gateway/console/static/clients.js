// @ts-check
/**
 * Every client of the federation.
 */

import { ApiError, get } from "./api.js";
import { h, keyed, setText } from "./dom.js";
import { count } from "./format.js";
import { repeat } from "./shell.js";

const INTERVAL_MS = 2000;

/** @param {HTMLElement} root */
export function show(root) {
  const failure = h("p", { role: "alert" });
  const body = h("tbody");
  root.append(h("h1", null, "Clients"), failure, h("section", { class: "card" }, h("table", null, body)));
  const asking = repeat(async (signal) => {
    try {
      const { clients } = await get("/v1/clients", { signal });
      setText(failure, "");
      keyed(
        body,
        clients,
        (/** @type {any} */ client) => client.client_id,
        (client) => h("tr", null, h("th", { scope: "row" }, client.client_id), h("td"), h("td"), h("td", { class: "number" })),
        (line, client) => {
          setText(line.children[1], client.domain);
          setText(line.children[2], client.is_connected ? client.activity : "not connected");
          setText(line.children[3], count(client.num_examples));
        },
      );
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setText(failure, error.message);
    }
  }, INTERVAL_MS);
  return asking.stop;
}
