// @ts-check
/**
 * Downloads of a run, and facts about it.
 */

import { ApiError, runPath, urlOf } from "../lib/api.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { foldingCard } from "../lib/folding.js";
import { bytes, count, counted, dateTime } from "../lib/format.js";
import { hasEnded } from "../lib/run_state.js";

/** @type {import("../lib/run_state.js").MakeSection} */
export function section({ runId, api }) {
  const gone = new AbortController();
  /**
   * Size of the manifest, and what it says that releases with noise cost: asked for when the run begins and when it has ended;
   * it says nothing of rounds.
   *
   * @type {{of: string, size: string, cost: Record<string, any> | undefined}}
   */
  let manifest = { of: "", size: "", cost: undefined };

  /** @param {import("../lib/run_state.js").Document} run */
  async function askForManifest(run) {
    const of = `${run.round >= 0} ${hasEnded(run)}`;
    if (manifest.of === of) return;
    manifest = { ...manifest, of };
    try {
      if (run.config.privacy?.clip) manifest.cost = (await api.get(runPath(runId, "/manifest"), { signal: gone.signal })).privacy;
      manifest.size = bytes(await api.sizeOf(runPath(runId, "/manifest"), { signal: gone.signal }));
      if (shown) draw(shown);
    } catch (error) {
      // Without its size it can be downloaded all the same.
      if (!gone.signal.aborted && !(error instanceof ApiError)) throw error;
    }
  }

  const files = h("ul", { class: "files" });
  const facts = h("dl", { class: "facts" });
  const { element, fold } = foldingCard(
    { id: "run-files", title: "Files", hint: "What the run left, and facts about it." },
    h("div", { class: "columns" }, files, facts),
  );
  /** @type {import("../lib/run_state.js").RunState | null} */
  let shown = null;

  /** @param {import("../lib/run_state.js").RunState} state */
  function draw({ run, result, rounds }) {
    if (!run) return;
    keyed(files, filesOf(runId, result, rounds.length, manifest.size), ({ part }) => part, fileRow, (line, { part, as, size, note }) => {
      const link = line.children[0];
      setAttribute(link, "download", as);
      // The round stays that of the name, also when another one commits before the click.
      const isOfRound = result && (part === "/model" || part === "/prototypes");
      setAttribute(link, "href", urlOf(runPath(runId, isOfRound ? `${part}?round=${result.round}` : part)));
      setText(line.children[1], size);
      setText(line.children[2], note);
    });
    keyed(facts, factsOf(run, manifest.cost), ({ name }) => name, factRow, (line, { value }) =>
      setText(/** @type {Element} */ (line.lastElementChild), value),
    );
  }

  /** @param {{part: string, name: string}} file */
  function fileRow({ part, name }) {
    const link = h("a", { href: urlOf(runPath(runId, part)) }, name);
    return h("li", null, link, h("span", { class: "number" }), h("span", { class: "muted small" }));
  }

  return {
    element,
    update(state) {
      // At the end of a run there is something to fetch.
      if (shown === null || hasEnded(shown.run) !== hasEnded(state.run)) fold.open = hasEnded(state.run);
      shown = state;
      if (state.run) void askForManifest(state.run);
      draw(state);
    },
    close() {
      gone.abort();
    },
  };
}

/**
 * Files of a run, whose names tell the run and the round.
 *
 * @param {string} runId
 * @param {import("../lib/run_state.js").RunState["result"]} result
 * @param {number} numRounds
 * @param {string} manifestSize
 */
function filesOf(runId, result, numRounds, manifestSize) {
  const manifest = { part: "/manifest", name: "run.json", as: `${runId}-run.json`, size: manifestSize, note: "configuration, seed, versions" };
  const archive = { part: "/archive", name: "everything as one archive", as: `${runId}.zip`, size: "", note: "all files of the run, zip" };
  if (!result) return [manifest];
  const after = `after round ${result.round}`;
  const lines = counted(numRounds, "line");
  return [
    { part: "/model", name: "model.safetensors", as: `${runId}-round-${result.round}-model.safetensors`, size: bytes(result.model.size_bytes), note: after },
    { part: "/prototypes", name: "prototypes.safetensors", as: `${runId}-round-${result.round}-prototypes.safetensors`, size: bytes(result.prototypes.size_bytes), note: after },
    { part: "/metrics.jsonl", name: "metrics.jsonl", as: `${runId}-metrics.jsonl`, size: lines, note: "what each round computed" },
    { part: "/timings.jsonl", name: "timings.jsonl", as: `${runId}-timings.jsonl`, size: lines, note: "seconds, bytes and retries of each round" },
    manifest,
    archive,
  ];
}

/**
 * @param {import("../lib/run_state.js").Document} run
 * @param {Record<string, any> | undefined} cost
 */
function factsOf(run, cost) {
  return [
    { name: "Run", value: run.run_id },
    { name: "Method", value: run.method },
    { name: "Rounds", value: count(run.total_rounds) },
    { name: "Clients", value: count(run.roster.length) },
    { name: "Seed", value: String(run.config.run?.seed ?? "") },
    { name: "Privacy", value: claimOf(run.config.privacy, cost) },
    { name: "Created", value: dateTime(run.created_at) },
    { name: hasEnded(run) ? "Ended" : "Last change", value: dateTime(run.updated_at) },
    { name: "Configuration", value: run.config_hash.slice(0, 16) },
    { name: "Server keeps", value: Object.entries(run.server_state ?? {}).map(([role, size]) => `${role} (${bytes(size)})`).join(", ") },
  ].filter(({ value }) => value);
}

/**
 * The claim of a run with noise, and what its releases cost, which the manifest says; its noise until that is read.
 *
 * @param {Record<string, any> | undefined} privacy
 * @param {Record<string, any> | undefined} told
 */
function claimOf(privacy, told) {
  if (!privacy?.clip) return "";
  const epsilon = told && (told.epsilon === null ? "beyond all bounds" : Number(told.epsilon.toPrecision(3)));
  const cost = told ? `epsilon ${epsilon}, delta ${told.delta}` : `noise ${privacy.noise ?? "is made"}`;
  return `claim ${privacy.claim ?? "none"}, ${cost}`;
}

/** @param {{name: string}} fact */
function factRow({ name }) {
  return h("div", null, h("dt", null, name), h("dd"));
}
