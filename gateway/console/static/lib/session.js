// @ts-check
/**
 * Who uses the console: bars above every page where a session is missing or nobody is asked for one, and the button that ends
 * a session. A page stays as it is while its session is missing, so what was typed into it is kept.
 */

import { ApiError, SESSION_MARK, askWhoami, endSession, openSession, sessions, signOnProvider, urlOf } from "./api.js";
import { h } from "./dom.js";
import { sentence } from "./format.js";
import { announce, repeat } from "./shell.js";

/** Pause between two looks at the session; it may end. */
const INTERVAL_MS = 15_000;
const CODE = /(?:^|#code=)(?<code>[A-Za-z0-9_-]{20,64})$/;

/** Why single sign-on failed, by the check that refused it. @type {Record<string, string>} */
const WHY_NOT = {
  role: "The provider knows you, and gives you no role in this federation; ask who runs it.",
  acr: "The provider has to ask you for a second factor.",
  code: "It was not finished at the provider; try again.",
  state: "It began too long ago, in another browser, or was not finished; try again.",
};
let failedSignOn = "";

/**
 * Note that single sign-on has failed; whoever is not signed in reads it.
 *
 * @param {string} check
 */
export function signOnFailed(check) {
  failedSignOn = `Signing in failed. ${Object.hasOwn(WHY_NOT, check) ? WHY_NOT[check] : `The check ${check} failed; who runs the federation finds more in the audit.`}`;
}

/**
 * Keep the bars and the button true.
 *
 * @param {HTMLElement} bars Above the page.
 * @param {HTMLElement} account Beside the mark of health.
 */
export function watchSession(bars, account) {
  let wasOpen = false;
  /** @type {HTMLElement | null} */
  let missing = null;

  const { soon } = repeat(async (signal) => {
    try {
      const me = await askWhoami({ signal });
      wasOpen = wasOpen || me.federation !== "";
      show(account, "sign-out", me.federation ? signOutButton(me) : null);
      show(bars, "exposed", me.is_exposed ? exposedBar() : null);
    } catch (error) {
      // A lack of answers is shown by the mark of health.
      if (!(error instanceof ApiError)) throw error;
    }
  }, INTERVAL_MS);

  sessions.addEventListener("missing", () => {
    account.replaceChildren();
    missing = missingBar(wasOpen);
    bars.append(missing);
  });
  // Nobody asks again and again without a session; that one begins in another tab is told by the browser.
  window.addEventListener("storage", ({ key, newValue }) => {
    if (key === SESSION_MARK && newValue !== null) soon();
  });
  sessions.addEventListener("restored", () => {
    missing?.remove();
    if (wasOpen) announce("You are signed in again");
    soon();
  });
}

/**
 * Show an element once, or remove it.
 *
 * @param {HTMLElement} parent
 * @param {string} name
 * @param {HTMLElement | null} element
 */
function show(parent, name, element) {
  const there = parent.querySelector(`[data-name="${name}"]`);
  if (element) element.dataset.name = name;
  if (element && !there) parent.append(element);
  if (!element) there?.remove();
}

function exposedBar() {
  return h(
    "div",
    { class: "notice", "data-tone": "warning", role: "status" },
    h(
      "p",
      null,
      h("strong", null, "Anyone may steer this federation. "),
      "It runs with --insecure: whoever reaches it on the network sees and changes everything, without a key and unencrypted.",
    ),
  );
}

/** @param {boolean} wasOpen Whether this page had a session. */
function missingBar(wasOpen) {
  const failure = h("p", { class: "dialog-failure", role: "alert", "data-tone": "bad" });
  const code = h("input", {
    id: "session-code",
    name: "code",
    required: true,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    maxlength: 2000,
  });
  const button = h("button", { class: "button", type: "submit", "data-kind": "primary" }, "Sign in");
  const form = h(
    "form",
    { class: "sign-in" },
    h("label", { for: "session-code" }, "Address or code that it prints"),
    h("div", { class: "buttons" }, code, button),
    failure,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const found = CODE.exec(code.value.trim())?.groups?.code;
    failure.textContent = "";
    if (!found) {
      failure.textContent = "This is no code of fedplcc console.";
      return;
    }
    button.disabled = true;
    try {
      await openSession(found);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      failure.textContent =
        error.status === 401 ? "The code has been used or has ended; each opens the console once, within five minutes." : sentence(error.message);
      button.disabled = false;
    }
  });
  const bar = h(
    "div",
    { class: "notice", "data-tone": wasOpen ? "bad" : "info", role: "alert" },
    h("p", null, h("strong", null, wasOpen ? "Your session has ended. " : "Sign in to use the console. "), wasOpen ? "What is below may be old; what you have typed is kept." : ""),
    h("p", null, "Run ", h("code", null, "fedplcc console --no-browser"), " on the aggregator's host."),
    form,
  );
  if (failedSignOn) bar.children[0].after(h("p", { class: "dialog-failure", "data-tone": "bad" }, failedSignOn));
  failedSignOn = "";
  void signOnProvider().then((name) => {
    // The one way of most people stands before the owner's.
    if (name) bar.children[0].after(h("p", null, h("a", { class: "button", "data-kind": "primary", href: urlOf("/v1/sign-on/start") }, `Sign in with ${name}`)));
  });
  return bar;
}

/** @param {{caller: string, label: string}} me */
function signOutButton(me) {
  const button = h("button", { class: "button button-small", type: "button", title: `Signed in by ${me.label || me.caller}` }, "Sign out");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await endSession();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status !== 401) {
        button.disabled = false;
        announce(`You are still signed in. ${sentence(error.message)}`);
        button.title = sentence(error.message);
        return;
      }
    }
    // Nothing of what was seen or typed stays for whoever comes next.
    try {
      sessionStorage.clear();
    } catch {
      // A browser may forbid storage; then nothing is in it.
    }
    location.replace(new URL(".", document.baseURI));
    if (location.hash) location.reload();
  });
  return button;
}
