// @ts-check
/**
 * Creation and change of elements. Text is always set as text; nothing from the network is read as markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An HTML element. Props are attributes, but for: `class`; `on` (listeners by event); `style` (CSS properties by name, set
 * one by one, as the content policy has it); `data` (dataset). `true` is an empty attribute; null, undefined and false none.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  assign(element, props ?? {});
  append(element, children);
  return element;
}

/**
 * An SVG element, as `h` makes HTML ones.
 *
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, props, ...children) {
  const element = /** @type {SVGElementTagNameMap[K]} */ (document.createElementNS(SVG, tag));
  assign(element, props ?? {});
  append(element, children);
  return element;
}

/**
 * Set an element's text. An unchanged text is not touched, so that a selection in it lasts.
 *
 * @param {Element} element
 * @param {string | number} text
 */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/**
 * Set or remove an attribute, unless it is right already.
 *
 * @param {Element} element
 * @param {string} name
 * @param {string | number | boolean | null | undefined} value
 */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const wanted = value === true ? "" : String(value);
  if (element.getAttribute(name) !== wanted) element.setAttribute(name, wanted);
}

/**
 * Make a container's children those of `items`, in order. Elements are kept by key, so that focus, selection and open
 * details outlive an update.
 *
 * @template T
 * @param {Element} container Holds nothing else.
 * @param {Iterable<T>} items
 * @param {(item: T) => string | number} keyOf
 * @param {(item: T) => Element} create
 * @param {(element: Element, item: T) => void} [update] Called for new elements too.
 */
export function keyed(container, items, keyOf, create, update) {
  /** @type {Map<string, Element>} */
  const known = new Map();
  for (const child of container.children) known.set(/** @type {any} */ (child).key, child);
  const focused = container.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
  /** @type {Element | null} */
  let next = container.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let element = known.get(key);
    if (element) {
      known.delete(key);
    } else {
      element = create(item);
      /** @type {any} */ (element).key = key;
    }
    update?.(element, item);
    if (element === next) next = next.nextElementSibling;
    else container.insertBefore(element, next);
  }
  for (const element of known.values()) element.remove();
  // An element that is moved loses the focus.
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/**
 * @param {Element} element
 * @param {Record<string, any>} props
 */
function assign(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "style") {
      for (const [property, text] of Object.entries(value)) {
        /** @type {HTMLElement} */ (element).style.setProperty(property, String(text));
      }
    } else if (name === "data") {
      Object.assign(/** @type {HTMLElement} */ (element).dataset, value);
    } else {
      setAttribute(element, name, value);
    }
  }
}

/**
 * @param {Element} element
 * @param {(Child | Child[])[]} children
 */
function append(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}
