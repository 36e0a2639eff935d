// @ts-check
/**
 * Start of the console: the part of the address after # selects the page.
 *
 * A page is a module with `show(root, params, shell)`, which fills `root` and returns a function that ends the page.
 */

import { announce, setTitle } from "./lib/shell.js";
import { ApiError, openedSession, openSession, sessions, signedOn } from "./lib/api.js";
import { h } from "./lib/dom.js";
import { begin as beginRun } from "./run/opening.js";
import { watchHealth } from "./lib/health.js";
import { signOnFailed, watchSession } from "./lib/session.js";

/**
 * @typedef {{show: (root: HTMLElement, params: Record<string, string>) => () => void}} View
 * @type {{pattern: RegExp, title: string, load: () => Promise<View>, begin?: (params: Record<string, string>) => void}[]}
 *
 * `begin` asks for what the page will show, while its modules come.
 */
const ROUTES = [
  { pattern: /^#?\/?(?:\?(?<query>.{0,600}))?$/, title: "Overview", load: () => import("./overview/overview.js") },
  { pattern: /^#\/start(?:\?from=(?<from>[A-Za-z0-9._-]{1,128}))?$/, title: "Start a run", load: () => import("./start/start.js") },
  { pattern: /^#\/clients$/, title: "Clients", load: () => import("./clients/clients.js") },
  { pattern: /^#\/messages$/, title: "Messages to people", load: () => import("./messages/messages.js") },
  { pattern: /^#\/runs\/compare(?:\?.{0,2000})?$/, title: "Compare runs", load: () => import("./compare/compare.js") },
  { pattern: /^#\/runs\/(?<runId>[A-Za-z0-9._-]{1,128})(?:\?.{0,200})?$/, title: "Run", load: () => import("./run/run.js"), begin: ({ runId }) => beginRun(runId) },
];

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
let cleanUp = () => {};
let visits = 0;

async function navigate() {
  const visit = ++visits;
  const { hash } = location;
  const route = ROUTES.find(({ pattern }) => pattern.test(hash));
  const params = { ...route?.pattern.exec(hash)?.groups };
  markCurrent(hash);
  /** @type {View} */
  let view;
  route?.begin?.(params);
  try {
    view = route ? await route.load() : { show: showNothing };
  } catch {
    view = { show: showBroken };
  }
  if (visit !== visits) return;
  cleanUp();
  main.replaceChildren();
  setTitle(route?.title ?? "Not found");
  cleanUp = view.show(main, params);
  window.scrollTo(0, 0);
  if (visit > 1) focusHeading();
}

/** Announce the new page to screen readers, and let the next Tab start at its beginning. */
function focusHeading() {
  const heading = main.querySelector("h1");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/** @param {string} hash */
function markCurrent(hash) {
  for (const link of document.querySelectorAll(".top-nav a")) {
    const isCurrent = link.getAttribute("href") === (hash.split("?")[0] || "#/");
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** @param {HTMLElement} root */
function showNothing(root) {
  root.append(
    h("h1", null, "There is no such page"),
    h("p", null, "The address leads nowhere. ", h("a", { href: "#/" }, "Go to the overview"), "."),
  );
  return () => {};
}

/** @param {HTMLElement} root */
function showBroken(root) {
  root.append(
    h("h1", null, "The page could not be loaded"),
    h("p", { role: "alert" }, "The gateway does not answer, or another version of it is running now."),
    h("p", null, h("button", { class: "button", type: "button", on: { click: () => location.reload() } }, "Load again")),
  );
  return () => {};
}

window.addEventListener("hashchange", ({ oldURL }) => void change(oldURL));
window.addEventListener("unhandledrejection", (event) => {
  // Aborted reads of a page that was left are no errors.
  if (event.reason?.name === "AbortError") event.preventDefault();
  else if (event.reason instanceof ApiError) announce(event.reason.message);
});
sessions.addEventListener("restored", () => {
  // A page that was refused reads again; a form keeps what is in it.
  if (!main.querySelector("form")) void navigate();
});
document.getElementById("skip-link")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
/**
 * Show what the address names now. A link of `fedplcc console` that was pasted into the address of an open page signs in, and
 * the page stays.
 *
 * @param {string} before The address until now.
 */
async function change(before) {
  if (!(await login(new URL(before).hash))) await navigate();
}

/**
 * Open a session if the address brings a code, or tells how single sign-on has ended. Both leave the address and the history at once. A link may come from anybody:
 * where a session is open, the person is asked before another takes its place.
 *
 * @param {string} [page] What the address names in its place.
 * @returns {Promise<boolean>} Whether it brought one.
 */
async function login(page = "#/") {
  if (location.hash === "#signed-on") {
    history.replaceState(null, "", page || "#/");
    signedOn();
    return false;
  }
  const failed = /^#sign-on-failed=(?<check>[a-z_]{1,32})$/.exec(location.hash)?.groups?.check;
  if (failed) {
    history.replaceState(null, "", page || "#/");
    signOnFailed(failed);
    return false;
  }
  const code = /^#code=(?<code>[A-Za-z0-9_-]{1,64})$/.exec(location.hash)?.groups?.code;
  if (!code) return false;
  history.replaceState(null, "", page || "#/");
  try {
    const whose = await openedSession();
    if (whose === null) await openSession(code);
    else await askToReplace(whose, code);
  } catch (error) {
    announce(error instanceof ApiError ? error.message : "The console could not be opened");
  }
  return true;
}

/**
 * @param {string} whose
 * @param {string} code
 */
async function askToReplace(whose, code) {
  const { ask } = await import("./lib/dialog.js");
  await ask({
    title: "Sign in anew?",
    text: `You are signed in by ${whose}. The link that you opened brings another session, in which somebody else may see what you do. Go on only if you made the link yourself.`,
    confirm: "Sign in anew",
    act: () => openSession(code),
  });
}

watchHealth(/** @type {HTMLElement} */ (document.getElementById("health")), /** @type {HTMLElement} */ (document.getElementById("bars")));
void login().then(() => {
  watchSession(/** @type {HTMLElement} */ (document.getElementById("bars")), /** @type {HTMLElement} */ (document.getElementById("account")));
  return navigate();
});
