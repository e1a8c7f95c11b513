// @ts-check
// Long texts: folded after some lines, long lines cut, and what the server left out fetched piece by piece.
import { html, useState } from "./vendor/libraries.js";
import { get } from "./api.js";
import { useStored } from "./stored.js";
import { safe } from "./safetext.js";
import { integer } from "./words.js";

const LINE = 2000;

/** The text that is here of a value that may be cut. @param {any} value */
export const headOf = (value) => (typeof value === "string" ? value : value?.$cut?.head ?? "");

/** How many characters a text has as the server counts them: a pair of surrogates is one. @param {string} text */
export const signs = (text) => text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);

/** @param {any} value */
export const lengthOf = (value) => (typeof value === "string" ? value.length : value?.$cut?.length ?? 0);

/** @param {any} value */
export const linesOf = (value) => (typeof value === "string" ? value.split("\n").length : value?.$cut?.lines ?? 0);

/**
 * @param {{value: any, path: string, serial: number, name: string, lines?: number, hit?: string, numbered?: boolean, open?: boolean}} given
 */
export function LongText({ value, path, serial, name, lines = 12, hit, numbered, open = false }) {
  const [isOpen, setOpen] = useStored(`${path} ${serial} ${name} open`, open);
  const [more, setMore] = useStored(`${path} ${serial} ${name} more`, "");
  const [problem, setProblem] = useState("");
  const text = headOf(value) + more;
  const all = text.split("\n");
  const total = linesOf(value);
  const here = typeof value === "string" ? 0 : signs(text);
  const rest = typeof value === "string" ? 0 : lengthOf(value) - here;
  const shown = isOpen ? all : all.slice(0, lines);
  const fetchMore = async () => {
    try {
      const found = await get(`${path}/entries/${serial}/text`, { at: value.$cut.at, from: here });
      setMore(more + found.text);
    } catch (error) {
      setProblem(String(/** @type {Error} */ (error).message));
    }
  };
  const unseen = rest + (isOpen ? 0 : shown.reduce((sum, line) => sum + Math.max(line.length - LINE, 0), 0));
  const isFolded = !isOpen && (all.length > lines || total > all.length);
  return html`<div class="longtext">
    ${numbered
      ? html`<div class="numbered">${shown.map((line, index) => html`<div class="codeline"><span class="number" aria-hidden="true">${index + 1}</span><pre>${cutLine(line, hit, isOpen)}</pre></div>`)}</div>`
      : html`<pre>${cutLines(shown, hit, isOpen)}</pre>`}
    ${isFolded && html`<button class="more" aria-expanded="false" onClick=${() => setOpen(true)}>▾ ${integer(total - shown.length)} more lines</button>`}
    ${isOpen && rest > 0 && html`<button class="more" onClick=${fetchMore}>${integer(rest)} more characters</button>`}
    ${!isFolded && !isOpen && unseen > 0 && html`<button class="more" aria-expanded="false" onClick=${() => (setOpen(true), rest > 0 && fetchMore())}>▾ ${integer(unseen)} more characters</button>`}
    ${isOpen && (all.length > lines || all.some((line) => line.length > LINE)) && html`<button class="more" aria-expanded="true" onClick=${() => setOpen(false)}>▴ Fold</button>`}
    ${problem && html`<p class="bad">${problem}</p>`}
  </div>`;
}

/** @param {string[]} lines @param {string | undefined} hit @param {boolean} isOpen */
function cutLines(lines, hit, isOpen) {
  const pieces = /** @type {any[]} */ ([]);
  lines.forEach((line, index) => {
    if (index) pieces.push("\n");
    pieces.push(...cutLine(line, hit, isOpen));
  });
  return pieces;
}

/** @param {string} line @param {string | undefined} hit @param {boolean} isOpen */
function cutLine(line, hit, isOpen) {
  if (line.length <= LINE || isOpen) return safe(line, hit);
  return [...safe(line.slice(0, LINE), hit), html`<span class="dim">…</span>`];
}
