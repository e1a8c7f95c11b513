// @ts-check
// Keys of the page. None fires while a person types; each view says which ones it has.
import { signal } from "./vendor/libraries.js";

/** @typedef {{keys: string[], words: string, run: (event: KeyboardEvent) => void, short?: string}} Binding */

export const bindings = signal(/** @type {Binding[]} */ ([]));
export const helpIsOpen = signal(false);
export const paletteIsOpen = signal(false);
export const toast = signal("");

/** @param {string} words */
export function tell(words) {
  toast.value = words;
  setTimeout(() => {
    if (toast.peek() === words) toast.value = "";
  }, 5000);
}

const PRESSED = new Set(["checkbox", "radio", "button"]); // inputs that take no text

/** @param {EventTarget | null} target */
function isTyping(target) {
  if (target instanceof HTMLInputElement) return !PRESSED.has(target.type);
  return target instanceof HTMLElement && (target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName));
}

export function startKeys() {
  addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      paletteIsOpen.value = true;
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") /** @type {HTMLElement} */ (event.target).blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "?") {
      helpIsOpen.value = true;
      event.preventDefault();
      return;
    }
    const isButton = event.target instanceof HTMLElement && event.target.closest("button, a, summary, input");
    if (isButton && (event.key === "Enter" || event.key === " ")) return;
    const found = bindings.value.find((binding) => binding.keys.includes(event.key));
    if (found) {
      event.preventDefault();
      found.run(event);
    }
  });
}
