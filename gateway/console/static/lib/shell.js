// @ts-check
/**
 * What every page shares: its title, what screen readers are told, and asking again and again while somebody looks.
 */

/** Least pause between two announcements: who listens must be able to follow. */
const ANNOUNCE_MS = 1500;

let isAnnouncing = false;
/** @type {string[]} */
let waiting = [];

/**
 * Say something to who cannot see it. What comes fast is cut: of what waits only the last two are said.
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
 * Do something now and then again and again, while the page can be seen. Pauses grow with how long it takes.
 *
 * @param {(signal: AbortSignal) => Promise<void>} work Handles its own errors.
 * @param {number} intervalMs
 * @returns {{stop: () => void, soon: () => void}} `soon` does it at once.
 */
export function repeat(work, intervalMs) {
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
      if (!ended.signal.aborted && document.visibilityState === "visible") {
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
  void once();
  return {
    stop: () => {
      ended.abort();
      clearTimeout(timer);
    },
    soon: () => void once(),
  };
}
