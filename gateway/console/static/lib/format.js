// @ts-check
/**
 * Values in the form for people. Pure: the time is an argument.
 */

const NUMBER = new Intl.NumberFormat("en");
const DAY_AND_TIME = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** Text in place of a missing value. */
export const NONE = "–";

/**
 * A fraction in percent with one decimal: 0.934 is "93.4 %".
 *
 * @param {number | null | undefined} fraction
 */
export function percent(fraction) {
  return isNumber(fraction) ? `${(100 * fraction).toFixed(1)} %` : NONE;
}

/**
 * A whole number with separators.
 *
 * @param {number | null | undefined} value
 */
export function count(value) {
  return isNumber(value) ? NUMBER.format(value) : NONE;
}

/**
 * A number with at most so many significant digits; very large and small ones with an exponent.
 *
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(Math.max(1, digits, Math.ceil(Math.log10(size + 1))))));
}

/**
 * A count of things with its noun: "1 client", "3 clients".
 *
 * @param {number} value
 * @param {string} noun
 * @param {string} [plural]
 */
export function counted(value, noun, plural = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/**
 * A size in decimal units, as disks and networks have it.
 *
 * @param {number | null | undefined} size
 */
export function bytes(size) {
  if (!isNumber(size)) return NONE;
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let value = size;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit ? Number(value.toPrecision(3)) : value} ${value === 1 && !unit ? "byte" : units[unit]}`;
}

/**
 * A span of time in its two largest units: "3 min 20 s", "2 d 4 h".
 *
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 0) return duration(0);
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const parts = /** @type {[number, string][]} */ ([
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ]);
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

/**
 * Time since an event: "now", "12 s ago", "3 min ago".
 *
 * @param {string | null | undefined} time RFC 3339.
 * @param {number} now Milliseconds since the epoch.
 */
export function ago(time, now) {
  if (!time) return "never";
  const seconds = (now - Date.parse(time)) / 1000;
  if (seconds < 2) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/**
 * Date and time of this browser's zone.
 *
 * @param {string | null | undefined} time RFC 3339.
 */
export function dateTime(time) {
  return time ? DAY_AND_TIME.format(new Date(time)) : NONE;
}

/**
 * Time of day in this browser's zone.
 *
 * @param {string | null | undefined} time RFC 3339.
 */
export function timeOfDay(time) {
  return time ? TIME.format(new Date(time)) : NONE;
}

/**
 * Names as a list in a sentence: "ann, bob and cid"; of many only the first.
 *
 * @param {readonly string[]} names
 * @param {number} [most]
 */
export function listed(names, most = 5) {
  if (names.length > most) return `${names.slice(0, most).join(", ")} and ${count(names.length - most)} more`;
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

/**
 * A clause as a sentence: with a capital, unless it begins with what may be an id, and with a full stop.
 *
 * @param {string} text
 */
export function sentence(text) {
  const begun = /^[a-z]+[ ,:]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

/**
 * A reading of a trainer: its name in words without the unit, and its value with it.
 *
 * @param {string} name With the unit as suffix: "device_memory_bytes".
 * @param {number} value
 * @returns {[string, string]}
 */
export function reading(name, value) {
  const units = /** @type {[string, (value: number) => string][]} */ ([
    ["_per_second", (each) => `${number(each)} / s`],
    ["_bytes", bytes],
    ["_ratio", percent],
    ["_seconds", (each) => (Math.abs(each) < 1 ? `${number(1000 * each)} ms` : duration(each))],
  ]);
  const unit = units.find(([suffix]) => name.endsWith(suffix));
  return unit ? [words(name.slice(0, -unit[0].length)), unit[1](value)] : [words(name), number(value)];
}

/**
 * A name in snake case as words: "samples_per_second" is "samples per second".
 *
 * @param {string} name
 */
export function words(name) {
  return name.replaceAll("_", " ");
}

/**
 * @param {unknown} value
 * @returns {value is number}
 */
function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}
