// @ts-check
/**
 * Content of a prototype map: points, names and sentences, without the page. Pure.
 *
 * A map is the document of `/v1/runs/{run_id}/prototype-map`: places on a plane, global prototypes first.
 */

import { count, counted, listed, number, percent } from "../lib/format.js";

/**
 * @typedef {{x: number, y: number, class_id: number, client: number | null, weight: number, share: number,
 *   nearest: number | null}} Prototype
 * @typedef {{round: number, comparison: "cosine" | "distance", explained: number,
 *   clients: {client_id: string, domain: string, is_kept: boolean}[], prototypes: Prototype[],
 *   left_out_global: number, left_out_local: number, rounds: {first: number, last: number}[], aligned_from: number}} MapDocument
 * @typedef {{classes: readonly string[], domains: readonly string[]}} Names Names of the run's classes and domains, in order.
 * @typedef {{x: number, y: number, radius: number, alpha: number, classId: number, domain: number, client: string,
 *   index: number}} Point On the plane; `radius` is a share of the largest one of its kind, `domain` -1 and `client` empty for
 *   a global prototype, and `index` the prototype's place in the map, -1 for one that is leaving.
 *
 * @typedef {{x: number, y: number, scale: number}} View What of the plane is in the middle, and pixels a unit.
 */

/** The smallest radius that a prototype is drawn with, as a share of the largest of its kind. */
const LEAST_RADIUS = 0.36;
/** A view stays while prototypes fill this share of it. */
const LEAST_FILL = 0.55;
/** How much closer than the whole somebody can go. */
export const MOST_ZOOM = 40;
/** Names of so many classes find room on the plane. */
export const MOST_LABELS = 24;

/**
 * The numbers of rounds that spans hold.
 *
 * @param {readonly {first: number, last: number}[]} spans
 */
export function roundsOf(spans) {
  return spans.flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, index) => first + index));
}

/**
 * Names of domains in order: of those that have an accuracy, and of the clients on a map.
 *
 * @param {readonly Record<string, any>[]} rounds Lines of metrics.jsonl.
 * @param {Iterable<MapDocument>} maps
 */
export function domainsOf(rounds, maps) {
  const names = new Set();
  for (const each of rounds) for (const name in each.accuracy) names.add(name);
  names.delete("mean");
  names.delete("worst");
  for (const map of maps) for (const client of map.clients) names.add(client.domain);
  return [...names].sort();
}

/**
 * A map's prototypes as points; area goes by the share of the class for global prototypes, and by samples for local ones.
 *
 * @param {MapDocument} map
 * @param {Names} names
 * @returns {Point[]}
 */
export function pointsOf(map, names) {
  const heaviest = Math.max(...map.prototypes.map((each) => (each.client === null ? 0 : each.weight)), 1e-9);
  return map.prototypes.map((each, index) => ({
    x: each.x,
    y: each.y,
    radius: Math.max(LEAST_RADIUS, Math.sqrt(each.client === null ? each.share : each.weight / heaviest)),
    alpha: 1,
    classId: each.class_id,
    domain: each.client === null ? -1 : names.domains.indexOf(map.clients[each.client].domain),
    client: each.client === null ? "" : map.clients[each.client].client_id,
    index,
  }));
}

/**
 * The part of the plane to show: all points, in the middle; as before while they are all on it and fill it well, so that
 * nothing jumps for nothing.
 *
 * @param {readonly Point[]} points
 * @param {number} width In pixels, without a margin.
 * @param {number} height
 * @param {View | null} [before]
 * @returns {View}
 */
export function viewFor(points, width, height, before = null) {
  if (!points.length) return before ?? { x: 0, y: 0, scale: 1 };
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const { x, y } of points) {
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [low, high] = [Math.min(low, y), Math.max(high, y)];
  }
  const scale = Math.min(width / Math.max(right - left, 1e-9), height / Math.max(high - low, 1e-9));
  if (before && before.scale >= LEAST_FILL * scale) {
    const [wide, tall] = [width / 2 / before.scale, height / 2 / before.scale];
    const isOn = left >= before.x - wide && right <= before.x + wide && low >= before.y - tall && high <= before.y + tall;
    if (isOn) return before;
  }
  // A little more than they need, so that the next round is likely to fit too.
  return { x: (left + right) / 2, y: (low + high) / 2, scale: 0.92 * scale };
}

/**
 * A view that is closer, or further away, around a place that stays where it is.
 *
 * @param {View} view
 * @param {View} whole The one with all points: nobody goes further away than that.
 * @param {number} factor
 * @param {number} x Of the place, in pixels from the middle.
 * @param {number} y Downwards.
 * @returns {View | null} Null for the whole.
 */
export function zoomed(view, whole, factor, x, y) {
  const scale = Math.min(view.scale * factor, MOST_ZOOM * whole.scale);
  if (scale <= whole.scale * 1.001) return null;
  return { x: view.x + x / view.scale - x / scale, y: view.y - y / view.scale + y / scale, scale };
}

/**
 * A view that was pushed by some pixels; its middle stays on the whole.
 *
 * @param {View} view
 * @param {View} whole
 * @param {number} x To the right.
 * @param {number} y Downwards.
 * @param {readonly [number, number]} room Width and height in pixels.
 * @returns {View}
 */
export function pushed(view, whole, x, y, [width, height]) {
  const held = (/** @type {number} */ value, /** @type {number} */ middle, /** @type {number} */ size) =>
    Math.min(Math.max(value, middle - size / 2 / whole.scale), middle + size / 2 / whole.scale);
  return { x: held(view.x - x / view.scale, whole.x, width), y: held(view.y + y / view.scale, whole.y, height), scale: view.scale };
}

/**
 * A view on the way from one to another.
 *
 * @param {View} from
 * @param {View} to
 * @param {number} share Of the way, 0 to 1.
 * @returns {View}
 */
export function viewBetween(from, to, share) {
  const mix = (/** @type {number} */ one, /** @type {number} */ other) => one + (other - one) * share;
  return { x: mix(from.x, to.x), y: mix(from.y, to.y), scale: Math.exp(mix(Math.log(from.scale), Math.log(to.scale))) };
}

/**
 * Which points of a map go on as which of another: prototypes have no names, so each takes the nearest one of its class and
 * its client, or of the global ones, that nobody has taken. The others come or leave.
 *
 * @param {readonly Point[]} before
 * @param {readonly Point[]} after
 * @returns {{from: Point, to: Point}[]}
 */
export function paired(before, after) {
  const keyOf = (/** @type {Point} */ point) => `${point.classId} ${point.client}`;
  /** @type {Map<string, Point[]>} */
  const waiting = new Map();
  for (const point of before) {
    const others = waiting.get(keyOf(point));
    if (others) others.push(point);
    else waiting.set(keyOf(point), [point]);
  }
  const pairs = after.map((to) => {
    const others = waiting.get(keyOf(to)) ?? [];
    let best = -1;
    let least = Infinity;
    others.forEach((other, place) => {
      const square = (other.x - to.x) ** 2 + (other.y - to.y) ** 2;
      if (square < least) [best, least] = [place, square];
    });
    const from = best < 0 ? { ...to, radius: 0, alpha: 0 } : others.splice(best, 1)[0];
    return { from, to };
  });
  const leaving = [...waiting.values()].flat().map((from) => ({ from, to: { ...from, radius: 0, alpha: 0, index: -1 } }));
  return [...leaving, ...pairs];
}

/**
 * Points on their way.
 *
 * @param {readonly {from: Point, to: Point}[]} pairs
 * @param {number} share Of the way, 0 to 1.
 * @returns {Point[]}
 */
export function between(pairs, share) {
  const eased = share * share * (3 - 2 * share);
  const mix = (/** @type {number} */ from, /** @type {number} */ to) => from + (to - from) * eased;
  return pairs.map(({ from, to }) => ({
    ...to,
    x: mix(from.x, to.x),
    y: mix(from.y, to.y),
    radius: mix(from.radius, to.radius),
    alpha: mix(from.alpha, to.alpha),
  }));
}

/**
 * A round in a sentence: what is on its map, and how much of it a plane can show.
 *
 * @param {MapDocument} map
 */
export function summaryOf(map) {
  const made = map.prototypes.filter((each) => each.client === null);
  const classes = new Set(map.prototypes.map((each) => each.class_id)).size;
  const domains = new Set(map.clients.map((client) => client.domain)).size;
  if (!map.prototypes.length) return `No client sent a prototype in round ${map.round}.`;
  return (
    `${count(made.length)} global and ${count(map.prototypes.length - made.length)} local prototypes of ` +
    `${counted(classes, "class", "classes")} from ${counted(domains, "domain")}, compared by ` +
    `${map.comparison === "cosine" ? "angle" : "distance"}. ` +
    `The plane shows ${percent(map.explained)} of the local ones' spread.`
  );
}

/**
 * Sentences about prototypes that a map leaves out; empty if it shows all.
 *
 * @param {MapDocument} map
 */
export function missingFrom(map) {
  const gone = map.clients.filter((client) => !client.is_kept).map((client) => client.client_id);
  const left = [
    map.left_out_global && `${count(map.left_out_global)} lighter global`,
    map.left_out_local && `${count(map.left_out_local)} lighter local`,
  ].filter(Boolean);
  return [
    gone.length ? `Prototypes of ${listed(gone)} are not kept any more.` : "",
    left.length ? `${left.join(" and ")} prototypes are left out.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

/**
 * A prototype in a few short texts: what it is, whose, how heavy, and what it goes with.
 *
 * @param {MapDocument} map
 * @param {number} index
 * @param {Names} names
 * @returns {string[]}
 */
export function readoutOf(map, index, names) {
  const each = map.prototypes[index];
  const className = names.classes[each.class_id] ?? String(each.class_id);
  const share = percent(each.share);
  if (each.client === null) {
    const around = attachedTo(map, index).map((place) => map.clients[map.prototypes[place].client ?? 0].domain);
    const domains = [...new Set(around)].sort();
    return [
      `Global prototype of ${className}`,
      `${share} of the class's weight`,
      around.length
        ? `the nearest for ${counted(around.length, "local prototype")} from ${listed(domains)}`
        : "the nearest for no local prototype",
    ];
  }
  const client = map.clients[each.client];
  return [
    `Local prototype of ${className}`,
    client.domain === client.client_id ? `client ${client.client_id}` : `client ${client.client_id}, domain ${client.domain}`,
    `${counted(Math.round(each.weight), "sample")}, ${share} of the client's ${className}`,
  ];
}

/**
 * The prototypes that one is drawn together with: the local ones nearest to a global one, or the global one nearest to a
 * local one.
 *
 * @param {MapDocument} map
 * @param {number} index
 * @returns {number[]}
 */
export function attachedTo(map, index) {
  const { nearest, client } = map.prototypes[index];
  if (client !== null) return nearest === null ? [] : [nearest];
  return map.prototypes.flatMap((each, place) => (each.nearest === index ? [place] : []));
}

/**
 * The map as a table: a row for each class.
 *
 * @param {MapDocument} map
 * @param {Names} names
 * @returns {{head: string[], rows: string[][]}}
 */
export function tableOf(map, names) {
  const shown = names.domains.filter((domain) => map.clients.some((client) => client.domain === domain));
  /** @type {Map<number, {made: number[], local: Map<string, [number, number]>}>} */
  const classes = new Map();
  for (const each of map.prototypes) {
    /** @type {{made: number[], local: Map<string, [number, number]>}} */
    const entry = classes.get(each.class_id) ?? { made: [], local: new Map() };
    classes.set(each.class_id, entry);
    if (each.client === null) {
      entry.made.push(each.share);
    } else {
      const { domain } = map.clients[each.client];
      const [prototypes, samples] = entry.local.get(domain) ?? [0, 0];
      entry.local.set(domain, [prototypes + 1, samples + each.weight]);
    }
  }
  const rows = [...classes].sort(([one], [other]) => one - other);
  return {
    head: ["Class", "Global, with share of the class", ...shown.map((domain) => `Local of ${domain}`)],
    rows: rows.map(([classId, { made, local }]) => [
      names.classes[classId] ?? String(classId),
      `${count(made.length)}${made.length ? `: ${made.map((share) => number(share, 2)).join(", ")}` : ""}`,
      ...shown.map((domain) => {
        const [prototypes, samples] = local.get(domain) ?? [0, 0];
        return prototypes ? `${count(prototypes)} for ${counted(Math.round(samples), "sample")}` : "0";
      }),
    ]),
  };
}
