// @ts-check
/**
 * The mark at the top of every page, and the bar below it while the gateway or the aggregator does not answer. What a page
 * shows is old then, and looks so.
 */

import { ApiError, get, reach, reachNow } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { ago, timeOfDay } from "./format.js";
import { repeat } from "./shell.js";

const INTERVAL_MS = 5000;

/**
 * Keep the mark and the bar true.
 *
 * @param {HTMLElement} element A live region.
 * @param {HTMLElement} bars Above the page.
 */
export function watchHealth(element, bars) {
  const text = h("span", { class: "health-text" });
  const version = h("span", { class: "health-version" });
  element.append(h("span", { class: "dot", "aria-hidden": "true" }), text, version);
  const said = h("span");
  // A clock that ticks is not for listeners.
  const age = h("span", { class: "muted small", "aria-hidden": "true" });
  const again = h("button", { class: "button button-small", type: "button", on: { click: () => asking.soon() } }, "Try now");
  const bar = h("div", { class: "notice away-bar", "data-tone": "bad", role: "alert" }, h("p", null, said, " ", age), again);
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let ticking;

  function draw() {
    const { away, answeredAt } = reachNow();
    setAttribute(element, "data-state", away ? "bad" : "ok");
    setAttribute(document.documentElement, "data-away", away ? "true" : null);
    clearInterval(ticking);
    if (!away) {
      setText(text, "Aggregator ready");
      bar.remove();
      return;
    }
    const name = away === "gateway" ? "gateway" : "aggregator";
    setText(text, away === "gateway" ? "Gateway does not answer" : "Aggregator does not answer");
    setText(said, `The ${name} does not answer. What is below is from ${timeOfDay(new Date(answeredAt).toISOString())}.`);
    const tick = () => setText(age, `(${ago(new Date(answeredAt).toISOString(), Date.now())})`);
    tick();
    ticking = setInterval(tick, 1000);
    if (!bar.isConnected) bars.append(bar);
  }

  reach.addEventListener("away", draw);
  reach.addEventListener("here", draw);
  const asking = repeat(async (signal) => {
    try {
      setText(version, (await get("/readyz", { signal })).version);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
    draw();
  }, INTERVAL_MS, { isOpen: true });
}
