// @ts-check
// Small pieces that all views share.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/libraries.js";
import { Safe, plain } from "./safetext.js";
import { integer, letter, modelName, provider } from "./words.js";

/** @param {{model: string | null | undefined}} given */
export function Tile({ model }) {
  const name = provider(model);
  return html`<span class=${`tile ${name}`} aria-hidden="true">${plain(letter(model))}</span>`;
}

/** @param {{model: string | null | undefined}} given */
export const Model = ({ model }) => html`<span class="row"><${Tile} model=${model} /><span class="cut"><${Safe} text=${modelName(model)} /></span></span>`;

/** @param {{level: string}} given */
export const Level = ({ level }) => html`<span class=${`level ${level}`} aria-hidden="true"></span>`;

/** @param {{problem: any, retry?: () => void}} given */
export const Trouble = ({ problem, retry }) => html`<div class="trouble" role="alert">
  <span><${Safe} text=${problem?.message ?? String(problem)} /></span>
  ${retry && html` <button class="link" onClick=${retry}>Try again</button>`}
</div>`;

/** A dialog that keeps the focus, and gives it back. @param {{open: any, title: string, children: any, class?: string}} given */
export function Dialog({ open, title, children, class: name }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  // Before the next key: what is typed fast belongs to the dialog.
  useLayoutEffect(() => {
    if (open.value && !element.current?.open) element.current?.showModal();
    if (!open.value && element.current?.open) element.current.close();
  }, [open.value]);
  return html`<dialog ref=${element} class=${name} aria-label=${title} onClose=${() => (open.value = false)} onClick=${(/** @type {MouseEvent} */ event) => event.target === element.current && element.current?.close()}>${open.value && children}</dialog>`;
}

/** Scroll a box to an element in it: the box alone, never the document. @param {Element | null | undefined} box @param {Element | null | undefined} element @param {boolean} [toTop] else no further than it must */
export function scrollBox(box, element, toTop = false) {
  if (!box || !element) return;
  const [around, own] = [box.getBoundingClientRect(), element.getBoundingClientRect()];
  if (toTop || own.top < around.top) box.scrollTop += own.top - around.top;
  else if (own.bottom > around.top + box.clientHeight) box.scrollTop += own.bottom - around.top - box.clientHeight;
}

/** Shown only if loading takes longer than a moment. @param {{lines?: number}} given */
export function Skeleton({ lines = 6 }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 150);
    return () => clearTimeout(timer);
  }, []);
  if (!late) return null;
  return html`<div class="note" aria-busy="true"><span class="hidden">Loading</span>
    ${Array.from({ length: lines }, (_, index) => html`<div class="skeleton" style=${{ width: `${90 - (index % 4) * 17}%` }}></div>`)}</div>`;
}

/**
 * What a request gives. While the answer for other inputs is on its way there is no value: never the one of the inputs
 * before. Where only the `growth` differs, the old value stays until the new one is here.
 * @template T @param {() => Promise<T>} load @param {readonly unknown[]} inputs @param {readonly unknown[]} [growth]
 * @returns {{value: T | null, problem: any, reload: () => void}}
 */
export function useLoaded(load, inputs, growth = []) {
  const [state, setState] = useState(/** @type {any} */ ({ inputs, value: null, problem: null }));
  const [round, setRound] = useState(0);
  useEffect(() => {
    let isOver = false;
    load().then(
      (value) => !isOver && setState({ inputs, value, problem: null }),
      (problem) => !isOver && setState({ inputs, value: null, problem }),
    );
    return () => {
      isOver = true;
    };
  }, [...inputs, ...growth, round]);
  const isOwn = inputs.every((each, index) => Object.is(each, state.inputs[index]));
  return { value: isOwn ? state.value : null, problem: isOwn ? state.problem : null, reload: () => setRound((times) => times + 1) };
}

/**
 * The first of many things, and a button that shows the others. @template T @param {T[]} items @param {number} most
 * @returns {[T[], any]}
 */
export function useFirst(items, most) {
  const [isAll, setAll] = useState(false);
  const hidden = isAll ? 0 : Math.max(items.length - most, 0);
  return [hidden ? items.slice(0, most) : items, hidden ? html`<button class="more" onClick=${() => setAll(true)}>▾ ${integer(hidden)} more</button>` : ""];
}

/** @param {{used: number | null | undefined, cached: number | null | undefined}} given */
export function UsageBar({ used, cached }) {
  if (!used) return null;
  const share = `${(100 * (cached ?? 0)) / used}%`;
  return html`<div class="usagebar" aria-hidden="true"><span class="fromcache" style=${{ width: share }}></span><span class="fresh"></span></div>`;
}
