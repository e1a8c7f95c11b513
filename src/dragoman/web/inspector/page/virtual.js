// @ts-check
// A list of which only one screen each side is in the page. Heights are measured, also when a card grows later, and kept by
// key; where they change above the reader, the anchor (key and offset) stays where it is.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/libraries.js";

const MARGIN = 700;
const SPACE = 16; // above a card that was scrolled to

/**
 * @typedef {{scrollTo: (key: number, where?: "top" | "middle") => void, element: () => HTMLElement | null,
 *   top: () => number, toEnd: () => void}} Handle
 * @param {{keys: number[], estimate: (key: number) => number, item: (key: number) => any, handle?: {current: Handle | null},
 *   class?: string, label: string, onRange?: (first: number, last: number) => void, sticky?: boolean}} given
 */
export function VirtualList({ keys, estimate, item, handle, label, onRange, sticky, class: name }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const known = useRef({ heights: new Map(), offsets: new Float64Array(1), keys: /** @type {number[]} */ ([]), dirty: true });
  const anchor = useRef(/** @type {{key: number, offset: number, isTarget: boolean} | null} */ (null));
  const atEnd = useRef(true);
  // An item that was drawn is not compared again while the page scrolls.
  const drawn = useRef({ item, nodes: new Map() });
  if (drawn.current.item !== item) drawn.current = { item, nodes: new Map() };
  const node = (/** @type {number} */ key) => {
    const { nodes } = drawn.current;
    if (!nodes.has(key)) nodes.set(key, item(key));
    return nodes.get(key);
  };
  const [, redraw] = useState(0);
  /** Watches every card in the page: one that is opened pushes the others down. */
  const cards = useRef(/** @type {{observer: ResizeObserver, seen: Set<Element>} | null} */ (null));
  const state = known.current;
  if (state.keys !== keys) {
    state.keys = keys;
    state.dirty = true;
  }
  const offsets = () => {
    if (state.dirty) {
      const made = new Float64Array(keys.length + 1);
      for (let index = 0; index < keys.length; index += 1) {
        made[index + 1] = made[index] + (state.heights.get(keys[index]) ?? estimate(keys[index]));
      }
      state.offsets = made;
      state.dirty = false;
    }
    return state.offsets;
  };
  /** @param {number} at */
  const indexAt = (at) => {
    const made = offsets();
    let low = 0;
    let high = keys.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (made[middle] <= at) low = middle;
      else high = middle;
    }
    return low;
  };
  /** @param {number} key */
  const indexOf = (key) => {
    let low = 0;
    let high = keys.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (keys[middle] <= key) low = middle;
      else high = middle;
    }
    return low;
  };
  const top = box.current?.scrollTop ?? 0;
  const height = box.current?.clientHeight ?? 900;
  const made = offsets();
  const first = keys.length ? indexAt(Math.max(top - MARGIN, 0)) : 0;
  const last = keys.length ? Math.min(indexAt(top + height + MARGIN) + 1, keys.length) : 0;

  const note = () => {
    const element = box.current;
    if (!element || !keys.length) return;
    const index = indexAt(element.scrollTop);
    // What the page scrolled to stays the anchor until the reader scrolls: cards around it are still being loaded.
    if (!anchor.current?.isTarget) anchor.current = { key: keys[index], offset: element.scrollTop - offsets()[index], isTarget: false };
    atEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 40;
    onRange?.(keys[index], keys[indexAt(element.scrollTop + element.clientHeight)]);
  };
  const restore = () => {
    const element = box.current;
    if (!element) return;
    if (sticky && atEnd.current) {
      element.scrollTop = element.scrollHeight;
      return;
    }
    const held = anchor.current;
    if (!held) return;
    const wanted = Math.max(Math.round(offsets()[indexOf(held.key)] + held.offset), 0);
    if (Math.abs(element.scrollTop - wanted) > 1) element.scrollTop = wanted;
  };
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    let changed = false;
    cards.current ??= {
      observer: new ResizeObserver((sized) => sized.some(({ target }) => known.current.heights.get(Number(/** @type {HTMLElement} */ (target).dataset.key)) !== /** @type {HTMLElement} */ (target).offsetHeight) && redraw((count) => count + 1)),
      seen: new Set(),
    };
    const { observer, seen } = cards.current;
    for (const child of seen) if (!child.isConnected) (observer.unobserve(child), seen.delete(child));
    for (const child of element.querySelectorAll(":scope > .space > [data-key]")) {
      const key = Number(/** @type {HTMLElement} */ (child).dataset.key);
      const size = /** @type {HTMLElement} */ (child).offsetHeight;
      if (!seen.has(child)) (observer.observe(child), seen.add(child));
      if (child.querySelector(":scope .pending")) continue; // it is still to come
      const before = state.heights.get(key);
      if (before === size) continue;
      const held = anchor.current;
      if (held?.key === key && size < before && held.offset > size) held.offset = 0; // it was folded: show its head
      state.heights.set(key, size);
      changed = true;
    }
    if (changed) {
      state.dirty = true;
      /** @type {HTMLElement} */ (element.firstElementChild).style.height = `${offsets()[keys.length]}px`;
      restore();
      redraw((count) => count + 1);
    } else restore();
  });
  useEffect(() => () => cards.current?.observer.disconnect(), []);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    let frame = 0;
    const scrolled = () => {
      if (frame) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        note();
        redraw((count) => count + 1);
      });
    };
    element.addEventListener("scroll", scrolled, { passive: true });
    const moved = (/** @type {Event} */ event) => {
      if (anchor.current) anchor.current.isTarget = false;
      // What the reader opens stays under the pointer, also at the end of a list that is followed.
      if (event.type === "click" && /** @type {Element} */ (event.target).closest("[aria-expanded], [aria-pressed]")) atEnd.current = false;
    };
    const moves = ["wheel", "touchmove", "pointerdown", "keydown", "click"];
    for (const name of moves) element.addEventListener(name, moved, { passive: true });
    const observer = new ResizeObserver(() => redraw((count) => count + 1));
    observer.observe(element);
    observer.observe(/** @type {Element} */ (element.firstElementChild));
    note();
    return () => {
      element.removeEventListener("scroll", scrolled);
      for (const name of moves) element.removeEventListener(name, moved);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [keys]);
  if (handle) {
    handle.current = {
      element: () => box.current,
      top: () => keys[indexAt((box.current?.scrollTop ?? 0) + SPACE)] ?? 0,
      toEnd: () => {
        atEnd.current = true;
        anchor.current = null;
        redraw((count) => count + 1);
      },
      scrollTo: (key, where = "top") => {
        const element = box.current;
        if (!element || !keys.length) return;
        const index = indexOf(key);
        const space = where === "middle" ? element.clientHeight / 3 : SPACE;
        atEnd.current = false;
        anchor.current = { key: keys[index], offset: -space, isTarget: true };
        element.scrollTop = Math.max(offsets()[index] - space, 0);
        redraw((count) => count + 1);
      },
    };
  }
  return html`<div class=${`scroll virtual ${name ?? ""}`} ref=${box} tabindex="0" role="region" aria-label=${label}>
    <div class="space" style=${{ height: `${made[keys.length]}px` }}>
      ${keys.slice(first, last).map((key, place) => html`<div data-key=${key} key=${key} class="placed" style=${{ transform: `translateY(${made[first + place]}px)` }}>${node(key)}</div>`)}
    </div>
  </div>`;
}
