// @ts-check
// Addresses: `s/{session}/{serial}`, `s/{session}/{serial}/context`, `s/{session}/diff?a=&b=`, `?q=&kind=`.
// A selection replaces the address, a view pushes it. The token leaves the address at once: it is a cookie by then.
import { signal } from "./vendor/libraries.js";
import { base, step } from "./api.js";

/** @typedef {{view: string, session: string, serial: number | null, query: URLSearchParams}} Route */

const VIEWS = ["context", "diff", "cost", "live"];

/** @returns {Route} */
function read() {
  const place = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : "";
  const steps = place.split("/").filter(Boolean);
  const query = new URLSearchParams(location.search);
  if (steps[0] !== "s" || !steps[1]) return { view: "sessions", session: "", serial: null, query };
  const session = decode(steps[1]).replace(/^~(~*\.{1,2})$/, "$1");
  const serial = steps[2] !== undefined && /^\d{1,15}$/.test(steps[2]) ? Number(steps[2]) : null;
  const view = steps[serial === null ? 2 : 3] ?? "timeline";
  return { view: view === "timeline" || VIEWS.includes(view) ? view : "unknown", session, serial, query };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export { base };

export const route = signal(/** @type {Route} */ (read()));

/** @param {string} session @param {string} [view] @param {number | null} [serial] @param {Record<string, string>} [query] */
export function link(session, view = "timeline", serial = null, query = {}) {
  const steps = ["s", step(session)];
  if (serial !== null) steps.push(String(serial));
  if (view !== "timeline") steps.push(view);
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return base + steps.join("/") + (text ? `?${text}` : "");
}

/** @param {string} place @param {boolean} [replaces] */
export function go(place, replaces = false) {
  if (replaces) history.replaceState(null, "", place);
  else history.pushState(null, "", place);
  route.value = read();
}

/** Let links of the page change the view without loading it anew. @param {MouseEvent} event */
function follow(event) {
  const anchor = /** @type {HTMLElement} */ (event.target).closest?.("a[href]");
  if (!(anchor instanceof HTMLAnchorElement) || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (anchor.origin !== location.origin || !anchor.pathname.startsWith(base)) return;
  event.preventDefault();
  go(anchor.pathname + anchor.search);
}

export function startRouter() {
  const query = new URLSearchParams(location.search);
  if (query.has("token")) {
    query.delete("token");
    const text = query.toString();
    history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
    route.value = read();
  }
  addEventListener("popstate", () => {
    route.value = read();
  });
  addEventListener("click", follow);
}
