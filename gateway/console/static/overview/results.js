// @ts-check
/**
 * Results of runs: metrics of their last committed rounds, read once for each round.
 */

import { roundPages } from "../lib/api.js";

/** @typedef {Record<string, any>} Run */

export class Results {
  /** @type {Map<string, {round: number, metrics: Run}>} */
  #known = new Map();

  /** @param {Run} run */
  of(run) {
    return this.#known.get(run.run_id)?.metrics ?? null;
  }

  /**
   * @param {Run[]} runs
   * @param {AbortSignal} signal
   */
  async read(runs, signal) {
    await Promise.all(runs.map((run) => this.#readOne(run, signal)));
  }

  /**
   * @param {Run} run
   * @param {AbortSignal} signal
   */
  async #readOne(run, signal) {
    const round = run.phase === "committed" ? run.round : run.round - 1;
    if (round < 1 || this.#known.get(run.run_id)?.round === round) return;
    // An interrupted round comes last and has no metrics: the one before it is asked for too.
    for await (const rounds of roundPages(run.run_id, Math.max(run.round - 2, 0), { signal })) {
      const metrics = rounds.map((each) => each.metrics).filter(Boolean).at(-1) ?? null;
      if (metrics) this.#known.set(run.run_id, { round, metrics });
    }
  }
}
