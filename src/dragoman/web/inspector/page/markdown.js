// @ts-check
// A small subset of Markdown, by hand: paragraphs, headings, lists, quotes, fences, code, bold, emphasis. No HTML, and a
// link is text. Every character ends up in a text node.
import { html } from "./vendor/libraries.js";
import { safe } from "./safetext.js";

const INLINE = /(`[^`\n]{1,400}`)|(\*\*[^*\n]{1,400}\*\*)|(?<![\w*])(\*[^*\s][^*\n]{0,400}\*)(?!\w)/;

/** Words with code, bold and emphasis, also within each other; code holds only text. @param {string} text @param {string} [hit] @returns {any[]} */
function inline(text, hit) {
  const pieces = [];
  let rest = text;
  for (let count = 0; count < 200; count += 1) {
    const found = INLINE.exec(rest);
    if (!found) break;
    pieces.push(...safe(rest.slice(0, found.index), hit));
    const marked = found[0];
    if (found[1]) pieces.push(html`<code>${safe(marked.slice(1, -1), hit)}</code>`);
    else if (found[2]) pieces.push(html`<strong>${inline(marked.slice(2, -2), hit)}</strong>`);
    else pieces.push(html`<em>${inline(marked.slice(1, -1), hit)}</em>`);
    rest = rest.slice(found.index + marked.length);
  }
  pieces.push(...safe(rest, hit));
  return pieces;
}

/** @param {{text: string, hit?: string}} given */
export function Markdown({ text, hit }) {
  const blocks = [];
  const lines = text.split("\n");
  let paragraph = /** @type {string[]} */ ([]);
  const flush = () => {
    if (paragraph.length) blocks.push(html`<p>${inline(paragraph.join("\n"), hit)}</p>`);
    paragraph = [];
  };
  for (let index = 0; index < lines.length; index += 1) {
    const line = lines[index];
    const fence = /^\s*(```+|~~~+)\s*([\w+-]*)/.exec(line);
    if (fence) {
      flush();
      const inside = [];
      for (index += 1; index < lines.length && !lines[index].trim().startsWith(fence[1]); index += 1) inside.push(lines[index]);
      blocks.push(html`<pre class="fence">${safe(inside.join("\n"), hit)}</pre>`);
      continue;
    }
    const heading = /^(#{1,6})\s+(.*)/.exec(line);
    const item = /^(\s{0,12})([-*+]|\d{1,3}[.)])\s+(.*)/.exec(line);
    if (heading) {
      flush();
      blocks.push(html`<p class="heading">${inline(heading[2], hit)}</p>`);
    } else if (item) {
      flush();
      const depth = Math.min(Math.floor(item[1].length / 2), 4);
      const sign = /\d/.test(item[2]) ? item[2] : "•";
      blocks.push(html`<p class=${`item depth-${depth}`}><span class="sign">${sign}</span><span>${inline(item[3], hit)}</span></p>`);
    } else if (/^\s*>\s?/.test(line)) {
      flush();
      blocks.push(html`<p class="quote">${inline(line.replace(/^\s*>\s?/, ""), hit)}</p>`);
    } else if (/^\s*\|.*\|\s*$/.test(line)) {
      flush();
      blocks.push(html`<pre class="tablerow">${safe(line, hit)}</pre>`);
    } else if (!line.trim()) flush();
    else paragraph.push(line);
  }
  flush();
  return html`<div class="prose">${blocks}</div>`;
}
