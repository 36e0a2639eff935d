// @ts-check
/**
 * The whole configuration of a run, with what differs from the defaults marked: read when somebody opens it.
 */

import { ApiError } from "../lib/api.js";
import { configurationRows, spelled } from "./configuration_rows.js";
import { h, setAttribute, setText } from "../lib/dom.js";
import { counted, sentence } from "../lib/format.js";

/** @typedef {import("./configuration_rows.js").Row} Row */

/** @type {import("../lib/run_state.js").MakeSection} */
export function section({ api }) {
  const filter = h("input", { type: "search", on: { input: () => draw() }, maxlength: 100 });
  const changed = h("input", { type: "checkbox", on: { change: () => draw() } });
  const said = h("p", { class: "muted small", role: "status" });
  const tables = h("div", { class: "stack" });
  const element = h(
    "details",
    { class: "card disclosure", on: { toggle: () => void opened() } },
    h("summary", null, h("h2", null, "Configuration"), h("span", { class: "muted small" }, "Every key; those off their default are marked.")),
    h("div", { class: "filters" }, h("label", null, "Find a key", filter), h("label", null, changed, "Only those off default")),
    said,
    tables,
  );
  const gone = new AbortController();
  /** @type {Row[]} */
  let rows = [];
  /** @type {Record<string, any> | null} */
  let form = null;
  /** @type {Record<string, any> | null} */
  let config = null;
  let hash = "";

  async function opened() {
    if (!element.open || form || !config) return;
    setText(said, "Reading the defaults …");
    try {
      form = await api.get("/v1/run-configuration", { signal: gone.signal });
      fill();
    } catch (error) {
      if (gone.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      setText(said, sentence(error.message));
    }
  }

  function fill() {
    if (!form || !config) return;
    rows = configurationRows(config, form);
    draw();
  }

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = rows.filter((row) => (!changed.checked || row.isChanged) && `${row.section}.${row.key}`.toLowerCase().includes(wanted));
    const sections = [...new Set(shown.map((row) => row.section))];
    tables.replaceChildren(...sections.map((name) => tableOf(name, shown.filter((row) => row.section === name))));
    const off = rows.filter((row) => row.isChanged).length;
    setText(said, `${counted(shown.length, "key")} shown of ${rows.length}; ${off} off ${off === 1 ? "its" : "their"} default.`);
    setAttribute(tables, "hidden", shown.length === 0);
  }

  return {
    element,
    update({ run }) {
      if (!run || run.config_hash === hash) return;
      hash = run.config_hash;
      config = run.config;
      fill();
      void opened();
    },
    close() {
      gone.abort();
    },
  };
}

/**
 * @param {string} name
 * @param {Row[]} rows
 */
function tableOf(name, rows) {
  return h(
    "table",
    { class: "keys" },
    h("caption", null, h("code", null, `[${name}]`)),
    h("thead", null, h("tr", null, ["Key", "Value", "Default"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", null, rows.map((row) => rowOf(row))),
  );
}

/** @param {Row} row */
function rowOf({ key, value, initial, hasDefault, isChanged, meaning }) {
  return h(
    "tr",
    { data: isChanged ? { changed: "" } : {} },
    h("th", { scope: "row", title: meaning }, h("code", null, key)),
    h("td", null, spelled(value), isChanged ? h("span", { class: "changed-mark small" }, " changed") : null),
    h("td", { class: "muted" }, hasDefault ? spelled(initial) : "has none"),
  );
}
