// @ts-check
/**
 * What a run leaves, to download, and the facts about it.
 */

import { runPath, urlOf } from "./api.js";
import { h, keyed, setText } from "./dom.js";
import { bytes, count, counted, dateTime } from "./format.js";

/** @type {import("./run.js").MakeSection} */
export function section({ runId }) {
  const files = h("ul", { class: "files" });
  const facts = h("dl", { class: "facts" });
  const element = h(
    "div",
    { class: "columns" },
    h("section", { class: "card", "aria-labelledby": "run-files" }, h("h2", { id: "run-files" }, "Files"), files),
    h("section", { class: "card", "aria-labelledby": "run-facts" }, h("h2", { id: "run-facts" }, "About this run"), facts),
  );
  return {
    element,
    update(state) {
      const { run, result } = state;
      if (!run) return;
      const after = result ? `after round ${result.round}` : "";
      keyed(
        files,
        [
          { part: "/model", name: "model.safetensors", size: result ? bytes(result.model.size_bytes) : "", note: after },
          { part: "/prototypes", name: "prototypes.safetensors", size: result ? bytes(result.prototypes.size_bytes) : "", note: after },
          { part: "/metrics.jsonl", name: "metrics.jsonl", size: counted(state.rounds.length, "line"), note: "a line per round" },
          { part: "/timings.jsonl", name: "timings.jsonl", size: counted(state.rounds.length, "line"), note: "seconds and bytes" },
          { part: "/manifest", name: "run.json", size: "", note: "configuration, seed, versions" },
        ].filter(({ part }) => result || part === "/manifest"),
        ({ part }) => part,
        ({ part, name }) =>
          h("li", null, h("a", { href: urlOf(runPath(runId, part)), download: name }, name), h("span", { class: "number" }), h("span", { class: "muted small" })),
        (line, { size, note }) => {
          setText(line.children[1], size);
          setText(line.children[2], note);
        },
      );
      const entries = [
        { name: "Run", value: run.run_id },
        { name: "Method", value: run.method },
        { name: "Clients", value: count(run.roster.length) },
        { name: "Created", value: dateTime(run.created_at) },
        { name: "Configuration", value: run.config_hash.slice(0, 16) },
      ];
      keyed(facts, entries, ({ name }) => name, ({ name }) => h("div", null, h("dt", null, name), h("dd")), (line, { value }) =>
        setText(/** @type {Element} */ (line.lastElementChild), value),
      );
    },
  };
}
