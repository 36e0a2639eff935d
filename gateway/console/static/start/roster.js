// @ts-check
/**
 * Choice of a run's clients: known clients, names of future clients, or any client that joins.
 */

import { besideId, isFound, stateOf } from "../clients/state.js";
import { siteSteps } from "../lib/commands.js";
import { h, keyed, setAttribute, setText } from "../lib/dom.js";
import { ago, counted } from "../lib/format.js";
import { namesIn } from "./run_document.js";
import { numberIn } from "./fields.js";

/**
 * @typedef {Record<string, any>} Client A client of GET /v1/clients.
 * @typedef {import("./fields.js").Field} Field
 */

/** From how many clients on there is something to look for. */
const MANY = 12;

export class Roster {
  /** @type {Map<string, Client>} */
  #known = new Map();
  /** Clients that were added by name. @type {Set<string>} */
  #named = new Set();
  /** @type {Set<string>} */
  #picked = new Set();
  #isWhoeverJoins = false;
  /** Whether the last question after the clients was answered. */
  #isAnswered = false;
  #onChange;

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
    const mode = (/** @type {boolean} */ isWhoever, /** @type {string} */ label, /** @type {string} */ hint) =>
      h(
        "label",
        { class: "mode" },
        h("input", {
          type: "radio",
          name: "roster-mode",
          checked: isWhoever === this.#isWhoeverJoins,
          on: { change: () => this.#setMode(isWhoever) },
        }),
        h("span", null, h("strong", null, label), h("span", { class: "field-hint" }, hint)),
      );
    this._exactly = mode(false, "These clients", "The run waits until each of them has joined.");
    this._whoever = mode(true, "Whoever joins", "The run starts when enough clients have joined; others enter later.");
    this._search = h("input", {
      type: "search",
      "aria-label": "Look for a client or a domain",
      placeholder: "Look for a client or a domain",
      hidden: true,
      on: { input: () => this.#show() },
    });
    this._all = h("button", { type: "button", class: "button button-small", on: { click: () => this.#pickConnected() } }, "Pick all connected");
    this._none = h("button", { type: "button", class: "button button-small", on: { click: () => this.#pickNone() } }, "Pick none");
    this._count = h("span", { class: "muted small", role: "status" });
    this._list = h("ul", { class: "roster" });
    this._empty = h(
      "div",
      { class: "notice", hidden: true },
      h("p", null, "No client has joined this federation yet. Let one in, or name clients below: the run waits for them."),
      siteSteps(),
    );
    this._unknown = h("p", { class: "notice", "data-tone": "warning", role: "status", hidden: true });
    this._name = h("input", {
      type: "text",
      id: "roster-name",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "north, south",
      on: {
        // Enter adds, and does not start a run; so does going on to another field.
        keydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key !== "Enter") return;
          event.preventDefault();
          this.#addNames();
        },
        change: () => this.#addNames(),
      },
    });
    this._problem = h("p", { class: "field-problem", id: "roster-problem", hidden: true });
    this._pick = h(
      "div",
      { class: "roster-pick" },
      h("div", { class: "roster-tools" }, this._all, this._none, this._count, this._search),
      this._unknown,
      this._empty,
      this._list,
      h(
        "div",
        { class: "field" },
        h("div", { class: "field-line" }, h("label", { for: "roster-name" }, "Clients that have not joined yet, by name")),
        h("div", { class: "roster-add" }, this._name, h("button", { type: "button", class: "button", on: { click: () => this.#addNames() } }, "Add")),
      ),
    );
    this._least = h("input", {
      type: "text",
      id: "roster-least",
      class: "field-number",
      inputmode: "numeric",
      autocomplete: "off",
      value: "2",
      "aria-describedby": "least-problem",
      on: { input: () => this.#onChange() },
    });
    this._leastProblem = h("p", { class: "field-problem", id: "least-problem", hidden: true });
    this._enough = h(
      "div",
      { class: "field", hidden: true },
      h("div", { class: "field-line" }, h("label", { for: "roster-least" }, "Start when so many clients have joined")),
      this._least,
      this._leastProblem,
    );
    this.element = h(
      "fieldset",
      { class: "card roster-card", "aria-describedby": "roster-problem" },
      h("legend", { class: "card-legend" }, "Clients"),
      h("div", { class: "modes" }, this._exactly, this._whoever),
      this._problem,
      this._pick,
      this._enough,
    );
    this.#show();
  }

  /** @param {readonly Client[]} clients Every client that ever joined. */
  setKnown(clients) {
    this.#isAnswered = true;
    this._unknown.hidden = true;
    this.#known = new Map(clients.map((client) => [client.client_id, client]));
    this.#show();
  }

  /** @param {string} reason Why it is not known which clients have joined. */
  setUnknown(reason) {
    this.#isAnswered = false;
    setText(this._unknown, reason);
    this._unknown.hidden = false;
    this.#show();
  }

  /** The clients that the run will have, as far as they are known. @returns {Client[]} */
  get clients() {
    if (this.#isWhoeverJoins) return [...this.#known.values()].filter((client) => client.is_connected);
    return [...this.#picked].flatMap((name) => this.#known.get(name) ?? []);
  }

  /** Values of the roster, for `restore`. */
  get draft() {
    return {
      isWhoeverJoins: this.#isWhoeverJoins,
      picked: [...this.#picked],
      named: [...this.#named],
      least: this._least.value,
      name: this._name.value,
    };
  }

  /** @param {Roster["draft"]} draft */
  restore({ isWhoeverJoins, picked, named, least, name }) {
    this.#write(picked, isWhoeverJoins ? least : undefined);
    this.#picked = new Set(picked);
    this.#named = new Set(named);
    this._least.value = least;
    this._name.value = name;
    this.#show();
  }

  /** Take the names that are written and were not added: whoever reloads a page does not leave the field. */
  addWritten() {
    if (!this.#isWhoeverJoins) this.#addNames();
  }

  /** The two keys of a configuration that are chosen here. @returns {Field[]} */
  get fields() {
    return [
      {
        location: "run.clients",
        label: "Clients",
        element: this.element,
        read: () => (this.#isWhoeverJoins ? undefined : [...this.#picked].sort()),
        write: (value) => this.#write(value, undefined),
        focus: () => this.#focusRoster(),
        setProblem: (text) => {
          setText(this._problem, text);
          this._problem.hidden = !text;
        },
      },
      {
        location: "run.min_clients",
        label: "Start when so many clients have joined",
        element: this._enough,
        read: () => (this.#isWhoeverJoins ? numberIn(this._least.value) : undefined),
        write: (value) => value !== undefined && this.#write(undefined, value),
        focus: () => (this.#isWhoeverJoins ? this._least : this._name).focus(),
        setProblem: (text) => {
          setText(this._leastProblem, text);
          this._leastProblem.hidden = !text;
          setAttribute(this._least, "aria-invalid", text ? "true" : null);
        },
      },
    ];
  }

  /**
   * @param {unknown} names
   * @param {unknown} least
   */
  #write(names, least) {
    this.#picked = new Set(Array.isArray(names) ? names : []);
    this.#named = new Set(this.#picked);
    if (least !== undefined) this._least.value = String(least);
    this.#isWhoeverJoins = least !== undefined;
    const chosen = this.#isWhoeverJoins ? this._whoever : this._exactly;
    /** @type {HTMLInputElement} */ (chosen.querySelector("input")).checked = true;
    this.#show();
  }

  #focusRoster() {
    const target = this.#isWhoeverJoins ? this._least : (this._list.querySelector("input") ?? this._name);
    target.focus();
  }

  /** @param {boolean} isWhoever */
  #setMode(isWhoever) {
    this.#isWhoeverJoins = isWhoever;
    this.#show();
    this.#onChange();
  }

  #pickConnected() {
    for (const client of this.#known.values()) if (client.is_connected) this.#picked.add(client.client_id);
    this.#show();
    this.#onChange();
  }

  #pickNone() {
    this.#picked.clear();
    this.#show();
    this.#onChange();
  }

  #addNames() {
    const names = namesIn(this._name.value);
    if (!names.length) return;
    for (const name of names) {
      this.#named.add(name);
      this.#picked.add(name);
    }
    this._name.value = "";
    this.#show();
    this.#onChange();
  }

  #show() {
    this._pick.hidden = this.#isWhoeverJoins;
    this._enough.hidden = !this.#isWhoeverJoins;
    // Names that somebody wrote come first: there they are seen.
    const written = [...this.#named].filter((name) => !this.#known.has(name)).sort();
    const names = [...written, ...[...this.#known.keys()].sort()];
    const connected = [...this.#known.values()].filter((client) => client.is_connected).length;
    this._search.hidden = names.length < MANY;
    this._empty.hidden = this.#known.size > 0 || !this.#isAnswered;
    this._all.hidden = connected === 0;
    this._none.hidden = this.#picked.size === 0;
    setText(this._count, `${counted(this.#picked.size, "client")} picked`);
    const found = names.filter((name) => isFound(this.#known.get(name), name, this._search.value));
    keyed(
      this._list,
      found,
      (name) => name,
      (name) =>
        h(
          "li",
          null,
          h(
            "label",
            { class: "roster-row" },
            h("input", { type: "checkbox", on: { change: (/** @type {any} */ event) => this.#pick(name, event.target.checked) } }),
            h("span", { class: "roster-name" }, name),
            h("span", { class: "roster-domain" }),
            h("span", { class: "roster-samples muted small number" }),
            h("span", { class: "badge" }),
            h("span", { class: "roster-problem small", hidden: true }),
          ),
        ),
      (item, name) => this.#showRow(item, name),
    );
  }

  /**
   * @param {Element} item
   * @param {string} name
   */
  #showRow(item, name) {
    const client = this.#known.get(name);
    const [box, , domain, samples, badge, problem] = /** @type {any} */ (item.firstElementChild).children;
    box.checked = this.#picked.has(name);
    setText(domain, besideId(client));
    setText(samples, client ? `${client.num_examples ? counted(client.num_examples, "sample") : "evaluates only"}, ${counted(Object.keys(client.class_counts).length, "class", "classes")}` : "");
    const { state, tone } = stateOf(client);
    setAttribute(badge, "data-tone", tone);
    setText(badge, client && !client.is_connected ? `${state}, seen ${ago(client.last_seen_at, Date.now())}` : state);
    problem.hidden = !client?.problem;
    setText(problem, client?.problem ? [client.problem.detail, client.problem.hint].filter(Boolean).join("; ") : "");
  }

  /**
   * @param {string} name
   * @param {boolean} isPicked
   */
  #pick(name, isPicked) {
    if (isPicked) this.#picked.add(name);
    else this.#picked.delete(name);
    this.#show();
    this.#onChange();
  }
}
