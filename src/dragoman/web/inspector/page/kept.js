// @ts-check
// What a reader opened stays open when its card leaves the page and comes back.
import { useState } from "./vendor/libraries.js";

/** @type {Map<string, any>} */
const kept = new Map();

/**
 * A state that outlives its component. @template T @param {string} key @param {T} first
 * @returns {[T, (value: T) => void]}
 */
export function useKept(key, first) {
  const [value, setValue] = useState(/** @type {T} */ (kept.has(key) ? kept.get(key) : first));
  return [value, (next) => (kept.set(key, next), setValue(next))];
}

/** Another session is read. */
export const forgetKept = () => kept.clear();
