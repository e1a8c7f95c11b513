// @ts-check
// Requests to the server of this page, and nowhere else.

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

/** @param {string} id */
export const sessionPath = (id) => `api/s/${encodeURIComponent(id)}`;

/** @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
  const given = Object.entries({ ...query, key }).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return base + path + (text ? `?${text}` : "");
}

/** @param {string} path @param {Record<string, any>} [query] @returns {Promise<any>} */
export async function get(path, query) {
  return read(await fetch(address(path, query), { credentials: "same-origin", cache: "no-store" }));
}

/** @param {string} path @param {Record<string, any>} body @returns {Promise<any>} */
export async function post(path, body) {
  return read(
    await fetch(address(path), {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-Dragoman-Inspector": "1" },
      body: JSON.stringify(body),
    }),
  );
}

/** @param {Response} response */
async function read(response) {
  let value;
  try {
    value = await response.json();
  } catch {
    value = { error: { code: "unreadable", message: `the server answered ${response.status} without JSON` } };
  }
  if (!response.ok) throw new ApiError(value.error ?? { code: "http", message: `status ${response.status}` }, response.status);
  return value;
}
