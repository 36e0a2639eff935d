// @ts-check
/**
 * Shared parts of all pages: the title, announcements for screen readers, repeated reads while the page is visible.
 */

import { isSignedOut, reach, sessions } from "./api.js";

/** Least pause between two announcements, so that listeners can follow. */
const ANNOUNCE_MS = 1500;

let isAnnouncing = false;
/** @type {string[]} */
let waiting = [];

/**
 * Announce a text to screen readers. Of waiting texts only the last two are announced.
 *
 * @param {string} text
 */
export function announce(text) {
  waiting = [...waiting.slice(-1), text];
  if (!isAnnouncing) sayNext();
}

function sayNext() {
  const text = waiting.shift();
  isAnnouncing = text !== undefined;
  if (text === undefined) return;
  const region = document.getElementById("announcer");
  if (region) region.textContent = text;
  setTimeout(sayNext, ANNOUNCE_MS);
}

/**
 * Set the page's title.
 *
 * @param {string} title
 */
export function setTitle(title) {
  const whole = `${title} · fedplcc`;
  if (document.title !== whole) document.title = whole;
}

/**
 * Call a function now and repeatedly while the page is visible and somebody is signed in. Pauses grow with the duration of
 * the calls.
 *
 * @param {(signal: AbortSignal) => Promise<void>} work Handles its own errors.
 * @param {number} intervalMs
 * @param {{isOpen?: boolean}} [options] `isOpen`: it needs no session.
 * @returns {{stop: () => void, soon: () => void}} `soon` does it at once.
 */
export function repeat(work, intervalMs, { isOpen = false } = {}) {
  const ended = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isWorking = false;
  let isWanted = false;

  async function once() {
    clearTimeout(timer);
    if (isWorking || ended.signal.aborted) {
      isWanted = isWorking;
      return;
    }
    isWorking = true;
    const begin = performance.now();
    try {
      await work(ended.signal);
    } catch (error) {
      if (!ended.signal.aborted) throw error;
    } finally {
      isWorking = false;
      if (!ended.signal.aborted && (isWanted || (document.visibilityState === "visible" && (!isSignedOut() || isOpen)))) {
        const pauseMs = isWanted ? 0 : Math.max(intervalMs, 10 * (performance.now() - begin));
        timer = setTimeout(once, pauseMs);
      }
      isWanted = false;
    }
  }

  document.addEventListener(
    "visibilitychange",
    () => {
      if (document.visibilityState === "visible") void once();
    },
    { signal: ended.signal },
  );
  // Who was away is asked at once when somebody has answered.
  reach.addEventListener("here", () => void once(), { signal: ended.signal });
  sessions.addEventListener("restored", () => void once(), { signal: ended.signal });
  void once();
  return {
    stop: () => {
      ended.abort();
      clearTimeout(timer);
    },
    soon: () => void once(),
  };
}
