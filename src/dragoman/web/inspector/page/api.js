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

const ANEW = "The server was started anew, and its token is another one. Open the address that it printed last.";

/** @param {Response} response */
async function read(response) {
  let value;
  try {
    value = await response.json();
  } catch {
    value = { error: { code: "unreadable", message: `the server answered ${response.status} without JSON` } };
  }
  if (response.status === 401 && wasLetIn) value = { error: { code: "no_token", message: (broken.value = ANEW) } };
  else if (response.status !== 401) [wasLetIn, broken.value] = [true, ""];
  if (!response.ok) throw new ApiError(value.error ?? { code: "http", message: `status ${response.status}` }, response.status);
  return value;
}
