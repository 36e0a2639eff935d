// @ts-check
/**
 * Requests to the gateway: documents, commands, and the live history of a run.
 *
 * The history is read with fetch, not with EventSource. EventSource gives up after an error response (as during a restart of
 * the aggregator), hides the problem document, delivers only registered types of events, and does not notice a dead
 * connection.
 */

import { FrameReader } from "./event_stream.js";

/** Longest silence of a stream; the gateway sends a comment every 15 seconds. */
const SILENCE_MS = 45_000;
/** Longest pause before a reconnection. */
const MAX_PAUSE_MS = 30_000;
/** Time for which a hidden page keeps its stream: browsers allow six connections to a host, and there may be many tabs. */
const HIDDEN_MS = 10_000;
/** Longest wait for an answer, and for more of one that has begun: a slow link takes its time, a dead one ends. */
const ANSWER_MS = 40_000;

/**
 * @typedef {{type: string, title: string, status: number, detail?: string, code: string, metadata?: Record<string, string>,
 *   errors?: {location: string, detail: string}[], request_id?: string}} Problem
 */

const SESSIONS_PATH = "/v1/console/sessions";
/** Name, in the browser's storage, of the mark that a session was opened, and when; it holds nothing secret. */
export const SESSION_MARK = "fedplcc-session";

/**
 * Says "missing" when the gateway asks for a session that is not there, "restored" when there is one again, and "known" when
 * the gateway has said who asks and whom.
 */
export const sessions = new EventTarget();
let isMissing = false;

/** @type {{caller: string, label: string, federation: string, is_exposed: boolean, scopes: string[]} | null} */
let me = null;

/** Who asks, and which federation: its name is empty where it asks nobody for a certificate. Null before that is known. */
export function whoami() {
  return me;
}

/** Ask the gateway who asks. @param {{signal?: AbortSignal}} options */
export async function askWhoami(options) {
  me = await get("/v1/me", options);
  sessions.dispatchEvent(new Event("known"));
  return /** @type {NonNullable<typeof me>} */ (me);
}

/** Whether nothing can be read before somebody signs in. */
export function isSignedOut() {
  return isMissing;
}

/**
 * Says "away" when the gateway or the aggregator does not answer, and "here" with the first answer after that.
 */
export const reach = new EventTarget();
/** Who does not answer, and when the last answer came. @type {{away: "" | "gateway" | "aggregator", answeredAt: number}} */
let reached = { away: "", answeredAt: Date.now() };
/** Paths whose answers come from the aggregator. */
const OF_AGGREGATOR = /^\/(?:readyz$|v1\/(?:runs|clients)(?:[/?]|$))/;

/** Who does not answer at present, and when the last answer came (milliseconds since the epoch). */
export function reachNow() {
  return reached;
}

/** A refusal of the gateway, or a failed connection; `message` is for people. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {Problem | null} problem The problem document; null if there was no answer that is one.
   * @param {number} status The HTTP status; 0 if there was no answer.
   */
  constructor(message, problem, status) {
    super(message);
    this.name = "ApiError";
    this.problem = problem;
    this.status = status;
  }

  /** Whether the gateway or the aggregator did not answer at all. */
  get isAway() {
    return this.status === 0 || this.problem?.code === "AGGREGATOR_UNAVAILABLE";
  }

  /** Whether a later retry may help. */
  get mayPass() {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500;
  }
}

/**
 * URL of a path of the gateway: below this page, so that the console works behind a proxy that adds a prefix.
 *
 * @param {string} path Such as "/v1/runs".
 */
export function urlOf(path) {
  return new URL(path.replace(/^\//, ""), new URL(".", document.baseURI)).href;
}

/**
 * Path of a run or of a part of it.
 *
 * @param {string} runId
 * @param {string} [part] Such as "/rounds".
 */
export function runPath(runId, part = "") {
  return `/v1/runs/${encodeURIComponent(runId)}${part}`;
}

/**
 * Fetch a document.
 *
 * @param {string} path
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function get(path, options = {}) {
  return ask(path, { headers: { Accept: "application/json" }, cache: "no-store" }, options.signal, documentOf);
}

/**
 * Size of a file of the gateway in bytes; null if the gateway does not know it before it sends the file.
 *
 * @param {string} path
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<number | null>}
 */
export async function sizeOf(path, options = {}) {
  const answer = await ask(path, { method: "HEAD", cache: "no-store" }, options.signal, justBegun);
  const length = answer.headers.get("Content-Length");
  return length === null ? null : Number(length);
}

/**
 * Fetch a file that has a document on each line.
 *
 * @param {string} path
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any[]>}
 */
export async function getLines(path, options = {}) {
  const text = await ask(path, { cache: "no-store" }, options.signal, textOf);
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/**
 * Send a command.
 *
 * @param {string} path
 * @param {unknown} [body] Sent as JSON.
 * @param {{key?: string, signal?: AbortSignal}} [options] `key` makes the wish count once; see `newKey`.
 * @returns {Promise<any>} The document that it is answered with.
 */
export async function post(path, body = {}, options = {}) {
  return send("POST", path, body, options);
}

/**
 * Change a document.
 *
 * @param {string} path
 * @param {unknown} body What changes, sent as JSON.
 * @param {{key?: string, signal?: AbortSignal}} [options] As of `post`.
 * @returns {Promise<any>} The document as it is then.
 */
export async function patch(path, body, options = {}) {
  return send("PATCH", path, body, options);
}

/**
 * Remove what a document describes.
 *
 * @param {string} path
 * @param {{key?: string, signal?: AbortSignal}} [options] As of `post`.
 * @returns {Promise<any>} The document that it is answered with.
 */
export async function remove(path, options = {}) {
  return send("DELETE", path, undefined, options);
}

/**
 * @param {"POST" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {unknown} body
 * @param {{key?: string, signal?: AbortSignal}} options
 */
async function send(method, path, body, options) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", "X-Fedplcc-Console": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (options.key) headers["Idempotency-Key"] = options.key;
  return ask(path, { method, headers, body: JSON.stringify(body) }, options.signal, documentOf);
}

/**
 * Open a session for a code of `fedplcc console`; its cookie comes with the answer, and scripts cannot read it.
 *
 * @param {string} code
 */
export async function openSession(code) {
  const init = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }) };
  await ask(SESSIONS_PATH, init, undefined, justBegun);
  markSession(true);
}

/** Note that the provider of single sign-on has led this browser back with a session. */
export function signedOn() {
  markSession(true);
}

/** Name of the provider at which people sign on; empty where none is set, or nobody says. */
export async function signOnProvider() {
  try {
    return String((await ask("/v1/sign-on", {}, undefined, documentOf)).name);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return "";
  }
}

/** End the session, in every tab. */
export async function endSession() {
  await ask("/v1/session/end", { method: "POST", headers: { "X-Fedplcc-Console": "1" } }, undefined, justBegun);
  markSession(false);
}

/** Whose session this browser has; null without one. Scripts cannot read the cookie, so the gateway is asked. */
export async function openedSession() {
  if (!mayHaveSession()) return null;
  try {
    const answer = await fetch(urlOf("/v1/me"), { cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.status === 401) return null;
    const me = answer.ok ? await answer.json() : {};
    return String(me.label || me.caller || "somebody");
  } catch {
    return "somebody"; // nobody knows, so it is asked
  }
}

/** @param {boolean} isOpen */
function markSession(isOpen) {
  try {
    if (isOpen) localStorage.setItem(SESSION_MARK, String(Date.now()));
    else localStorage.removeItem(SESSION_MARK);
  } catch {
    // A browser may forbid storage; then the gateway is asked each time.
  }
}

/** Whether a session was opened in this browser and not ended here. */
function mayHaveSession() {
  try {
    return localStorage.getItem(SESSION_MARK) !== null;
  } catch {
    return true;
  }
}

/** A new idempotency key: a request that is sent twice with it counts once. */
export function newKey() {
  // crypto.randomUUID is there only over TLS and on loopback.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * All rounds of a run after one, page by page.
 *
 * @param {string} runId
 * @param {number} after
 * @param {{signal?: AbortSignal}} [options]
 * @returns {AsyncGenerator<any[]>}
 */
export async function* roundPages(runId, after, options = {}) {
  for await (const page of pages(runPath(runId, `/rounds?after=${after}&page_size=1000`), options)) yield page.rounds;
}

/**
 * Every client that ever joined, by id.
 *
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any[]>}
 */
export async function allClients(options = {}) {
  const found = [];
  for await (const page of pages("/v1/clients?page_size=1000", options)) found.push(...page.clients);
  return found;
}

/**
 * The pages of a list, up to its last.
 *
 * @param {string} path With a query.
 * @param {{signal?: AbortSignal}} options
 * @returns {AsyncGenerator<any>}
 */
async function* pages(path, options) {
  let token = "";
  do {
    /** @type {any} */
    const page = await get(token ? `${path}&page_token=${token}` : path, options);
    yield page;
    token = page.next_page_token ?? "";
  } while (token);
}

/**
 * @typedef {{state: "connecting" | "live" | "hidden"} | {state: "lost", reason: string, retryAt: number}} Connection
 * @typedef {{
 *   after: number,
 *   onEvents: (events: any[]) => void,
 *   onEnd: (run: any) => void,
 *   onConnection: (connection: Connection) => void,
 *   onRefused: (error: ApiError) => void,
 * }} Follower
 */

/**
 * Follow a run's history: every event after a sequence, each once and in order, over any number of lost connections.
 *
 * @param {string} runId
 * @param {Follower} follower `onEvents` gets what came at one time. `onEnd` gets the run when it has ended, `onRefused` an
 *   error that a retry would not mend; no more events follow.
 * @returns {() => void} Stops it.
 */
export function followRun(runId, follower) {
  const stream = new RunStream(runId, follower);
  void stream.run();
  return () => stream.close();
}

class RunStream {
  #path;
  #follower;
  #after;
  #attempts = 0;
  #retryMs = 2000;
  #closed = new AbortController();
  /** @type {AbortController | null} */
  #request = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #hiding;
  #isLetGo = false;
  /** Ends a pause early. @type {() => void} */
  #wake = () => {};

  /**
   * @param {string} runId
   * @param {Follower} follower
   */
  constructor(runId, follower) {
    this.#path = runPath(runId, "/events");
    this.#follower = follower;
    this.#after = follower.after;
    const { signal } = this.#closed;
    document.addEventListener("visibilitychange", () => this.#visibilityChanged(), { signal });
    window.addEventListener("online", () => this.#wake(), { signal });
    sessions.addEventListener("restored", () => this.#wake(), { signal });
    reach.addEventListener("here", () => this.#wake(), { signal });
  }

  close() {
    clearTimeout(this.#hiding);
    this.#closed.abort();
    this.#request?.abort();
    this.#wake();
  }

  async run() {
    while (!this.#closed.signal.aborted) {
      if (this.#isLetGo) {
        this.#follower.onConnection({ state: "hidden" });
        await this.#pause(Infinity);
        continue;
      }
      let reason = "the gateway ended the connection";
      try {
        if (await this.#readOnce()) return this.close();
      } catch (error) {
        if (this.#closed.signal.aborted) return;
        // A session may be opened again.
        if (error instanceof ApiError && !error.mayPass && error.status !== 401) {
          this.#follower.onRefused(error);
          return this.close();
        }
        if (error instanceof ApiError) reason = error.message;
      }
      if (this.#closed.signal.aborted || this.#isLetGo) continue;
      // Half of the pause is random: a hundred pages must not come back to a gateway at one moment.
      const pauseMs = Math.min(MAX_PAUSE_MS, this.#retryMs * 2 ** this.#attempts) * (0.5 + Math.random() / 2);
      this.#attempts += 1;
      this.#follower.onConnection({ state: "lost", reason, retryAt: Date.now() + pauseMs });
      await this.#pause(isMissing ? Infinity : pauseMs);
    }
  }

  /** Read one stream to its end; returns whether the run has ended. */
  async #readOnce() {
    this.#request = new AbortController();
    const { signal } = this.#request;
    if (!this.#attempts) this.#follower.onConnection({ state: "connecting" });
    const headers = { Accept: "text/event-stream", "Last-Event-ID": String(this.#after) };
    const response = await ask(this.#path, { headers, cache: "no-store" }, signal, justBegun);
    this.#follower.onConnection({ state: "live" });
    if (!response.body) return false;
    const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const frames = new FrameReader();
    for (;;) {
      const silence = setTimeout(() => this.#request?.abort(), SILENCE_MS);
      const { value, done } = await pieces.read().finally(() => clearTimeout(silence));
      if (done) return false;
      const found = frames.read(value);
      this.#retryMs = frames.retryMs;
      this.#attempts = 0;
      if (this.#take(found)) return true;
    }
  }

  /**
   * Pass frames on; returns whether the run's end was among them.
   *
   * @param {import("./event_stream.js").Frame[]} frames
   */
  #take(frames) {
    const events = [];
    for (const frame of frames) {
      if (frame.event === "end" || frame.event === "problem") continue;
      const event = JSON.parse(frame.data);
      if (event.sequence <= this.#after) continue;
      this.#after = event.sequence;
      events.push(event);
    }
    if (events.length) this.#follower.onEvents(events);
    const last = frames.at(-1);
    if (last?.event === "problem") throw errorOf(JSON.parse(last.data));
    if (last?.event === "end") this.#follower.onEnd(JSON.parse(last.data));
    return last?.event === "end";
  }

  #visibilityChanged() {
    clearTimeout(this.#hiding);
    if (document.visibilityState === "hidden") {
      this.#hiding = setTimeout(() => {
        this.#isLetGo = true;
        this.#request?.abort();
        this.#wake();
      }, HIDDEN_MS);
    } else {
      this.#isLetGo = false;
      this.#attempts = 0;
      this.#wake();
    }
  }

  /** @param {number} milliseconds */
  #pause(milliseconds) {
    return /** @type {Promise<void>} */ (
      new Promise((resolve) => {
        const timer = Number.isFinite(milliseconds) ? setTimeout(resolve, milliseconds) : undefined;
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
        if (this.#closed.signal.aborted) this.#wake();
      })
    );
  }
}

/**
 * Send a request and convert the answer.
 *
 * @template T
 * @param {string} path
 * @param {RequestInit} init
 * @param {AbortSignal | undefined} signal
 * @param {(answer: Response, isAlive: () => void) => T | Promise<T>} make Calls `isAlive` when more of the answer has come.
 * @returns {Promise<T>}
 */
async function ask(path, init, signal, make) {
  const tooLate = new AbortController();
  const signals = signal ? [signal, tooLate.signal] : [tooLate.signal];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const isAlive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => tooLate.abort(), ANSWER_MS);
  };
  let failure = "the gateway does not answer";
  try {
    isAlive();
    const answer = await fetch(urlOf(path), { ...init, signal: AbortSignal.any(signals), credentials: "same-origin" });
    failure = "the gateway's answer broke off";
    noteSession(path, answer);
    if (answer.ok && OF_AGGREGATOR.test(path)) noteReach("");
    if (answer.ok) return await make(answer, isAlive);
    throw errorOf(await answer.json().catch(() => null), answer.status);
  } catch (error) {
    if (signal?.aborted) throw error;
    const refusal = error instanceof ApiError ? error : new ApiError(failure, null, 0);
    if (refusal.isAway || (path === "/readyz" && refusal.status >= 500)) noteReach(refusal.status ? "aggregator" : "gateway");
    throw refusal;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Tell who does not answer, or that both do again.
 *
 * @param {"" | "gateway" | "aggregator"} away
 */
function noteReach(away) {
  const before = reached.away;
  reached = { away, answeredAt: away ? reached.answeredAt : Date.now() };
  if (away !== before) reach.dispatchEvent(new Event(away ? "away" : "here"));
}

/**
 * Tell of a session that is missing, or there again.
 *
 * @param {string} path
 * @param {Response} answer
 */
function noteSession(path, answer) {
  const wasMissing = isMissing;
  if (answer.status === 401 && path !== SESSIONS_PATH) isMissing = true;
  // Paths without this beginning need no session.
  else if (answer.ok && path.startsWith("/v1/") && path !== "/v1/sign-on") isMissing = false;
  if (isMissing !== wasMissing) sessions.dispatchEvent(new Event(isMissing ? "missing" : "restored"));
}

/**
 * The answer without its body.
 *
 * @param {Response} answer
 */
function justBegun(answer) {
  return answer;
}

/**
 * The document of an answer.
 *
 * @param {Response} answer
 * @param {() => void} isAlive
 */
async function documentOf(answer, isAlive) {
  return JSON.parse(await textOf(answer, isAlive));
}

/**
 * The body of an answer as text.
 *
 * @param {Response} answer
 * @param {() => void} isAlive
 */
async function textOf(answer, isAlive) {
  if (!answer.body) return "";
  const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await pieces.read();
    if (done) return text;
    isAlive();
    text += value;
  }
}

/**
 * @param {Problem | null} problem
 * @param {number} [status]
 */
function errorOf(problem, status = problem?.status ?? 0) {
  if (!problem?.code) return new ApiError(`the gateway answered with HTTP status ${status}`, null, status);
  return new ApiError(problem.detail ?? problem.title, problem, status);
}
