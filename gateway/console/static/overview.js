// @ts-check
/**
 * The federation at a glance.
 */

import { ApiError, get } from "./api.js";
import { h, keyed, setText } from "./dom.js";
import { repeat } from "./shell.js";
import { statusBadge, updateStatusBadge } from "./tones.js";

/** How often runs and clients are asked for. */
const INTERVAL_MS = 3000;

/** @param {HTMLElement} root */
export function show(root) {
  const failure = h("p", { role: "alert" });
  const body = h("tbody");
  root.append(
    h("h1", null, "Overview"),
    failure,
    h("section", { class: "card" }, h("h2", null, "Runs"), h("table", null, body)),
  );
  const asking = repeat(async (signal) => {
    try {
      const { runs } = await get("/v1/runs?page_size=20", { signal });
      setText(failure, "");
      keyed(
        body,
        runs,
        (/** @type {any} */ run) => run.run_id,
        (run) =>
          h("tr", null, h("th", { scope: "row" }, h("a", { href: `#/runs/${run.run_id}` }, run.name || run.run_id)), h("td", null, statusBadge(run.status)), h("td", { class: "number" })),
        (line, run) => {
          updateStatusBadge(/** @type {Element} */ (line.children[1].firstElementChild), run.status);
          setText(line.children[2], `${Math.max(run.round, 0)} of ${run.total_rounds}`);
        },
      );
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setText(failure, error.message);
    }
  }, INTERVAL_MS);
  return asking.stop;
}
