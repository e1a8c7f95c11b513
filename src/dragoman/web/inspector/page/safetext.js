// @ts-check
// Text of people, models and tools on its way to the page: text nodes alone. Characters that are invisible, or that turn
// the direction of text, are written out as marked escapes.
import { html, h } from "./vendor/libraries.js";

const UNSAFE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

// What may not be hidden in arguments either, though it has its place in prose: joiners, variants and wide spaces.
const UNSEEN = new RegExp(`${UNSAFE.source.slice(0, -1)}\\u00a0\\u2000-\\u200f\\u202f\\u3000\\ufe0e\\ufe0f]`, "gu");

/** @param {string} sign */
function written(sign) {
  const code = sign.codePointAt(0) ?? 0;
  if (code > 0xffff) return `\\u{${code.toString(16)}}`;
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** @param {string} text @returns {string} the text with unsafe characters written out, for attributes and canvases */
export const plain = (text) => text.replace(UNSAFE, written);

/** @param {string} text JSON @returns {string} the same value, with every character that cannot be seen as its escape */
export const visibleJson = (text) =>
  text.replace(UNSEEN, (sign) => sign.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`));

/** @param {string} text @param {string} [hit] words to mark @returns {any[]} pieces for the page */
export function safe(text, hit) {
  const pieces = [];
  let from = 0;
  for (const found of text.matchAll(UNSAFE)) {
    if (found.index > from) pieces.push(...marked(text.slice(from, found.index), hit));
    pieces.push(h("span", { class: "esc", title: "a character that cannot be seen" }, written(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) pieces.push(...marked(text.slice(from), hit));
  return pieces;
}

/** @param {string} text @param {string} [hit] */
function marked(text, hit) {
  if (!hit) return [text];
  const pieces = [];
  const lower = text.toLowerCase();
  const wanted = hit.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0 && pieces.length < 400; at = lower.indexOf(wanted, from)) {
    if (at > from) pieces.push(text.slice(from, at));
    pieces.push(h("mark", null, text.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  pieces.push(text.slice(from));
  return pieces;
}

/** @param {{text: string, hit?: string}} given */
export const Safe = ({ text, hit }) => html`${safe(String(text ?? ""), hit)}`;
