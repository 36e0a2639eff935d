// @ts-check
/**
 * Colours of classes and marks of domains: the same on all pages, distinct without colour vision.
 *
 * Colours are CSS custom properties of console.css, which has a value of each for light and for dark. They were chosen for the
 * greatest distance between any two, with red or green weakness too; a test keeps them apart. From the eleventh class on they
 * begin again, so colour never stands alone: charts name what they draw, and domains have a shape and a dash of their own.
 */

/** Colours that are there; index modulo this. */
export const NUM_COLOURS = 10;

/**
 * Colour of a class or of a domain's line, as a CSS value.
 *
 * @param {number} index From 0.
 */
export function colour(index) {
  return `var(--series-${(index % NUM_COLOURS) + 1})`;
}

/** Marks of domains, in the order of their names; paths around (0, 0) of about the area of a circle with radius 1. */
const SHAPES = [
  { name: "circle", path: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z" },
  { name: "square", path: "M-.89-.89H.89V.89H-.89Z" },
  { name: "triangle", path: "M0-1.24 1.28.98H-1.28Z" },
  { name: "diamond", path: "M0-1.3 1.2 0 0 1.3-1.2 0Z" },
  { name: "cross", path: "M-.42-1.2H.42V-.42H1.2V.42H.42V1.2H-.42V.42H-1.2V-.42H-.42Z" },
  { name: "triangle down", path: "M0 1.24 1.28-.98H-1.28Z" },
  { name: "star", path: "M0-1.5 .38-.52 1.43-.46 .61.2 .88 1.21 0 .65-.88 1.21-.61.2-1.43-.46-.38-.52Z" },
  { name: "hexagon", path: "M0-1.1 .95-.55V.55L0 1.1-.95.55V-.55Z" },
];

/**
 * Mark of a domain.
 *
 * @param {number} index From 0; domains are in the order of their names.
 * @returns {{name: string, path: string}} An SVG path (also for Path2D) around (0, 0); scale it.
 */
export function shape(index) {
  return SHAPES[index % SHAPES.length];
}

/**
 * Dash of a domain's line, an SVG stroke-dasharray; solid for the first.
 *
 * @param {number} index
 */
export function dash(index) {
  return ["none", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4", "6 2 2 2 2 2"][index % 8];
}
