// @ts-check
// What a reader opened stays open when its card leaves the page and comes back.
import { useState } from "./vendor/libraries.js";

/** @type {Map<string, any>} */
const stored = new Map();

/**
 * A state that outlives its component. @template T @param {string} key @param {T} first
 * @returns {[T, (value: T) => void]}
 */
export function useStored(key, first) {
  const [value, setValue] = useState(/** @type {T} */ (stored.has(key) ? stored.get(key) : first));
  return [value, (next) => (stored.set(key, next), setValue(next))];
}

/** Another session is read. */
export const forgetStored = () => stored.clear();
