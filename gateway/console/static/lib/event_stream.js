// @ts-check
/**
 * The text of server-sent events, read piece by piece. Pure.
 */

/** @typedef {{id: string, event: string, data: string}} Frame */

export class FrameReader {
  #rest = "";
  /** The server's delay before a reconnection, in milliseconds. */
  retryMs = 2000;

  /**
   * Take the next piece of the stream, which may end anywhere.
   *
   * @param {string} text
   * @returns {Frame[]} The frames that are complete now; comments are none.
   */
  read(text) {
    // A line break may come in two pieces: what ends in a carriage return waits for the next one.
    const held = (this.#rest + text).replaceAll("\r\n", "\n");
    const blocks = held.split("\n\n");
    this.#rest = blocks.pop() ?? "";
    return blocks.map((block) => this.#frame(block)).filter((frame) => frame !== null);
  }

  /**
   * @param {string} block
   * @returns {Frame | null}
   */
  #frame(block) {
    const frame = { id: "", event: "message", data: "" };
    /** @type {string[]} */
    const data = [];
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") data.push(value);
      else if (name === "event") frame.event = value;
      else if (name === "id") frame.id = value;
      else if (name === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    }
    if (!data.length) return null;
    frame.data = data.join("\n");
    return frame;
  }
}
