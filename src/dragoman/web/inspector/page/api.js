// @ts-check
// Requests to the server of this page, and nowhere else.

import { signal } from "./vendor/libraries.js";

/** @typedef {{code: string, message: string, decision?: any}} Problem */

export class ApiError extends Error {
  /** @param {Problem} problem @param {number} status */
  constructor(problem, status) {
    super(problem.message);
    this.code = problem.code;
    this.status = status;
    this.problem = problem;
  }
}

/** The path below which the page stands, with a slash at its end. */
export const base = new URL(document.baseURI).pathname;

// The server gives the key with the page, once, for its token. Storage has it per port; cookies go to all ports.
const key = (() => {
  const place = `dragoman-key ${base}`;
  const given = /** @type {HTMLMetaElement | null} */ (document.querySelector('meta[name="dragoman-key"]'))?.content;
  if (given) localStorage.setItem(place, given);
  return given || localStorage.getItem(place);
})();

/** What is wrong between this page and its server; empty if nothing is. */
export const broken = signal("");
let wasLetIn = false;

/** An id as one step of an address: `.` and `..` would lead elsewhere, so they get a sign before them. @param {string} id */
export const step = (id) => encodeURIComponent(/^~*\.{1,2}$/.test(id) ? `~${id}` : id);

/** @param {string} id */
export const sessionPath = (id) => `api/s/${step(id)}`;

/** @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
  const given = Object.entries({ ...query, key }).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return base + path + (text ? `?${text}` : "");
}

/** @param {string} path @param {Record<string, any>} [query] @returns {Promise<any>} */
export async function get(path, query) {
  return read(await ask(address(path, query), { credentials: "same-origin", cache: "no-store" }));
}

/** @param {string} path @param {Record<string, any>} body @returns {Promise<any>} */
export async function post(path, body) {
  return read(
    await ask(address(path), {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-Dragoman-Inspector": "1" },
      body: JSON.stringify(body),
    }),
  );
}

/** @param {string} place @param {RequestInit} options */
async function ask(place, options) {
  try {
    return await fetch(place, options);
  } catch {
    broken.value = "The server does not answer. What is shown was read before; the page tries again.";
    throw new ApiError({ code: "no_answer", message: "the server does not answer" }, 0);
  }
}

const RESTARTED = "The server was restarted and has a new token. Open the newest address that it printed.";

/** @type {{rawJSON?: (text: string) => any}} */
const { rawJSON } = /** @type {any} */ (JSON);

/** An integer that a number of JavaScript rounds: it counts as the rounded one, and is written as it was read. */
class LongInteger extends Number {
  /** @param {string} text */
  constructor(text) {
    super(text);
    this.text = text;
  }

  toString() {
    return this.text;
  }

  toJSON() {
    return rawJSON?.(this.text);
  }
}

/** JSON with its long integers as they are written; a browser that cannot do that rounds them. @param {string} text @returns {any} */
function parseExactly(text) {
  if (!rawJSON || !/\d{16}/.test(text)) return JSON.parse(text);
  const exact = (/** @type {string} */ _, /** @type {any} */ value, /** @type {any} */ context) => (typeof value === "number" && /^-?\d{16,}$/.test(context?.source ?? "") && !Number.isSafeInteger(value) ? new LongInteger(context.source) : value);
  return JSON.parse(text, /** @type {any} */ (exact));
}

/** @param {Response} response */
async function read(response) {
  let value;
  try {
    value = parseExactly(await response.text());
  } catch {
    value = { error: { code: "unreadable", message: `the server answered ${response.status} without JSON` } };
  }
  if (response.status === 401 && wasLetIn) value = { error: { code: "no_token", message: (broken.value = RESTARTED) } };
  else if (response.status !== 401) [wasLetIn, broken.value] = [true, ""];
  if (!response.ok) throw new ApiError(value.error ?? { code: "http", message: `status ${response.status}` }, response.status);
  return value;
}

/** All sessions that fit, page by page. @param {Record<string, any>} [query] @returns {Promise<any[]>} */
export async function allSessions(query) {
  const found = await get("api/sessions", query);
  const sessions = [...found.sessions];
  while (sessions.length < found.found) {
    const { sessions: more } = await get("api/sessions", { ...query, from: sessions.length });
    if (!more.length) break;
    sessions.push(...more);
  }
  return sessions;
}

/** A long text of an entry, piece by piece, or the JSON of an object in it. @param {string} path of the session @param {number} serial @param {string} at @param {number} from
 * @returns {Promise<{text: string, length: number}>} */
export const textPiece = (path, serial, at, from) => get(`${path}/entries/${serial}/text`, { at, from });

/** The whole of such a text. @param {string} path @param {number} serial @param {string} at @param {() => boolean} [isOver] says that nobody wants it any more
 * @returns {Promise<string>} */
export async function wholeText(path, serial, at, isOver = () => false) {
  let text = "";
  for (let from = 0, length = 1; from < length && !isOver(); from = characters(text)) {
    const found = await textPiece(path, serial, at, from);
    if (!found.text && from < found.length) throw new ApiError({ code: "cut", message: "the server sent less than it announced" }, 200);
    text += found.text;
    length = found.length;
  }
  return text;
}

/** How many characters a text has as the server counts them: a pair of surrogates is one. @param {string} text */
export const characters = (text) => text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);
