// @ts-check
// Long texts: folded after some lines, long lines cut, and what the server left out fetched piece by piece.
import { html, useState } from "./vendor/libraries.js";
import { characters, textPiece } from "./api.js";
import { Skeleton, Trouble, useLoaded } from "./parts.js";
import { useStored } from "./stored.js";
import { safe } from "./safetext.js";
import { integer } from "./words.js";

const LINE = 2000;

/** The text that is here of a value that may be cut. @param {any} value */
export const headOf = (value) => (typeof value === "string" ? value : value?.$cut?.head ?? "");

/** @param {any} value */
export const lengthOf = (value) => (typeof value === "string" ? value.length : value?.$cut?.length ?? 0);

/** @param {any} value */
const linesOf = (value) => (typeof value === "string" ? value.split("\n").length : value?.$cut?.lines ?? 0);

/**
 * @param {{value: any, path: string, serial: number, name: string, lines?: number, line?: number, hit?: string, numbered?: boolean, open?: boolean}} given
 */
export function LongText({ value, path, serial, name, lines = 12, line: longest = LINE, hit, numbered, open = false }) {
  const [isOpen, setOpen] = useStored(`${path} ${serial} ${name} open`, open);
  const [more, setMore] = useStored(`${path} ${serial} ${name} more`, "");
  const [problem, setProblem] = useState("");
  const text = headOf(value) + more;
  const all = text.split("\n");
  const total = linesOf(value);
  const here = typeof value === "string" ? 0 : characters(text);
  const rest = typeof value === "string" ? 0 : lengthOf(value) - here;
  const shown = isOpen ? all : all.slice(0, lines);
  const fetchMore = async () => {
    try {
      const found = await textPiece(path, serial, value.$cut.at, here);
      setMore(more + found.text);
    } catch (error) {
      setProblem(String(/** @type {Error} */ (error).message));
    }
  };
  const unseen = rest + (isOpen ? 0 : shown.reduce((sum, line) => sum + Math.max(line.length - longest, 0), 0));
  const isFolded = !isOpen && (all.length > lines || total > all.length);
  return html`<div class="longtext">
    ${numbered
      ? html`<div class="numbered">${shown.map((line, index) => html`<div class="codeline"><span class="number" aria-hidden="true">${index + 1}</span><pre>${cutLine(line, hit, isOpen ? Infinity : longest)}</pre></div>`)}</div>`
      : html`<pre>${cutLines(shown, hit, isOpen ? Infinity : longest)}</pre>`}
    ${isFolded && html`<button class="more" aria-expanded="false" onClick=${() => setOpen(true)}>▾ ${integer(total - shown.length)} more lines</button>`}
    ${isOpen && rest > 0 && html`<button class="more" onClick=${fetchMore}>${integer(rest)} more characters</button>`}
    ${!isFolded && !isOpen && unseen > 0 && html`<button class="more" aria-expanded="false" onClick=${() => (setOpen(true), rest > 0 && fetchMore())}>▾ ${integer(unseen)} more characters</button>`}
    ${isOpen && (all.length > lines || all.some((line) => line.length > longest)) && html`<button class="more" aria-expanded="true" onClick=${() => setOpen(false)}>▴ Fold</button>`}
    ${problem && html`<p class="bad">${problem}</p>`}
  </div>`;
}

/** @param {string[]} lines @param {string | undefined} hit @param {number} longest */
function cutLines(lines, hit, longest) {
  const pieces = /** @type {any[]} */ ([]);
  lines.forEach((line, index) => {
    if (index) pieces.push("\n");
    pieces.push(...cutLine(line, hit, longest));
  });
  return pieces;
}

/** A line of at most so many characters, and a mark where there are more. @param {string} line @param {string | undefined} hit @param {number} [longest] */
export function cutLine(line, hit, longest = LINE) {
  if (line.length <= longest) return safe(line, hit);
  return [...safe(line.slice(0, longest), hit), html`<span class="dim">…</span>`];
}

/** A text of an entry that the page asks for, or the JSON of an object in it: the server writes it, since a browser rounds long numbers.
 * @param {{path: string, serial: number, at: string, name: string, lines?: number, hit?: string}} given */
export function ServerText({ path, serial, at, name, lines = 40, hit }) {
  const found = useLoaded(() => textPiece(path, serial, at, 0), [path, serial, at]);
  if (found.problem) return html`<${Trouble} problem=${found.problem} retry=${found.reload} />`;
  if (!found.value) return html`<${Skeleton} lines=${2} />`;
  const { text, length } = found.value;
  const value = characters(text) === length ? text : { $cut: { at, head: text, length, lines: text.split("\n").length } };
  return html`<${LongText} value=${value} path=${path} serial=${serial} name=${name} lines=${lines} hit=${hit} />`;
}

/** What the server left out of a list or an object. @param {{more: {at: string, left: number}, path: string, serial: number, what: string}} given */
export function More({ more, path, serial, what }) {
  const [isOpen, setOpen] = useStored(`${path} ${serial} ${more.at} all`, false);
  return html`<button class="more" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "▴ Fold" : `▾ ${integer(more.left)} more ${what}, as JSON`}</button>${isOpen && html`<${ServerText} path=${path} serial=${serial} at=${more.at} name=${`${more.at} all`} />`}`;
}

/** The beginning of a text in one line, with a mark where there is more of it. @param {string} text @param {number} most */
export const beginning = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);
