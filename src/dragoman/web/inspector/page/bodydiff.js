// @ts-check
// The bodies of two requests as they are sent: their JSON line by line, or the bytes from the first that differs.
import { diffLines, html, useMemo } from "./vendor/libraries.js";
import { get } from "./api.js";
import { Skeleton, Trouble, useLoaded } from "./parts.js";
import { safe } from "./safetext.js";
import { integer } from "./words.js";

const AROUND = 3; // lines that are shown before and after a change
const MOST_LINES = 3000;
const LONGEST = 400; // characters of one line
const PATIENCE = 3000; // milliseconds for the comparison
const BEFORE = 200; // bytes
const AFTER = 2000;
const MARKED = 24;

/** @typedef {{path: string, query: Record<string, string>}} Side */

/** JSON in lines. @param {string} body */
function lines(body) {
  try {
    return `${JSON.stringify(JSON.parse(body), null, 2)}\n`;
  } catch {
    return `${body}\n`;
  }
}

/** Lines with a mark each; runs of equal ones are folded. @param {{value: string, added?: boolean, removed?: boolean}[]} changes */
function rows(changes) {
  /** @type {{mark: string, text: string}[]} */
  const made = [];
  changes.forEach((change, index) => {
    const texts = change.value.replace(/\n$/, "").split("\n");
    const mark = change.added ? "+" : change.removed ? "−" : " ";
    const [head, tail] = [index ? AROUND : 0, index < changes.length - 1 ? AROUND : 0];
    const isLong = mark === " " && texts.length > head + tail + 1;
    if (isLong) {
      for (const text of texts.slice(0, head)) made.push({ mark, text });
      made.push({ mark: "", text: `${integer(texts.length - head - tail)} lines equal` });
      for (const text of tail ? texts.slice(-tail) : []) made.push({ mark, text });
    } else for (const text of texts) made.push({ mark, text });
  });
  return made;
}

const TONE = /** @type {Record<string, string>} */ ({ "+": "addedline", "−": "removedline" });
const WORDS = /** @type {Record<string, string>} */ ({ "+": "only right", "−": "only left" });

/** @param {{left: string, right: string}} given */
function Lines({ left, right }) {
  const found = useMemo(() => {
    const changes = diffLines(lines(left), lines(right), { timeout: PATIENCE });
    return changes && rows(changes);
  }, [left, right]);
  if (!found) return html`<p class="note dim">These requests differ in too many lines. By entry they can be compared.</p>`;
  return html`<div class="bodylines">${found.slice(0, MOST_LINES).map(({ mark, text }) => (mark ? html`<div class=${TONE[mark] ?? ""}><span class="mark" aria-hidden="true">${mark}</span>${WORDS[mark] && html`<span class="hidden">${WORDS[mark]}: </span>`}<pre>${safe(text.slice(0, LONGEST))}${text.length > LONGEST ? html`<span class="dim">… ${integer(text.length - LONGEST)} more characters</span>` : ""}</pre></div>` : html`<div class="foldrow">${text}</div>`))}
    ${found.length > MOST_LINES ? html`<p class="note dim">${integer(found.length - MOST_LINES)} more lines</p>` : ""}</div>`;
}

/** @param {{left: string, right: string}} given */
function Bytes({ left, right }) {
  const [a, b, common] = useMemo(() => {
    const [one, other] = [left, right].map((text) => new TextEncoder().encode(text));
    let place = 0;
    while (place < one.length && place < other.length && one[place] === other[place]) place += 1;
    return [one, other, place];
  }, [left, right]);
  const text = (/** @type {Uint8Array} */ side, /** @type {number} */ from, /** @type {number} */ to) => new TextDecoder().decode(side.slice(from, to));
  const shown = (/** @type {string} */ name, /** @type {Uint8Array} */ side) => html`<section class="pad" aria-label=${name}><p class="label">${name}, ${integer(side.length)} bytes</p>
    <pre class="fence">${common > BEFORE ? "…" : ""}${safe(text(a, Math.max(common - BEFORE, 0), common))}<mark>${safe(text(side, common, common + MARKED))}</mark>${safe(text(side, common + MARKED, common + AFTER))}${side.length > common + AFTER ? html`<span class="dim">… ${integer(side.length - common - AFTER)} more bytes</span>` : ""}</pre></section>`;
  return html`<div class="bodybytes"><p class="byteline"><strong>${integer(common)} bytes</strong> are the same at the beginning${common === a.length && common === b.length ? ", and that is all of both." : "; then they differ."}</p>${shown("Left", a)}${shown("Right", b)}</div>`;
}

/** @param {{left: Side, right: Side, mode: "line" | "bytes"}} given */
export function BodyDiff({ left, right, mode }) {
  const key = JSON.stringify([left, right]);
  const found = useLoaded(() => Promise.all([left, right].map((side) => get(`${side.path}/request`, side.query))), [key]);
  if (found.problem) return html`<${Trouble} problem=${found.problem} retry=${found.reload} />`;
  if (!found.value) return html`<${Skeleton} />`;
  const [one, other] = found.value.map((each) => each.body);
  const cut = found.value.filter((each) => each.isCut);
  const shown = mode === "line" ? html`<${Lines} left=${one} right=${other} />` : html`<${Bytes} left=${one} right=${other} />`;
  return cut.length ? html`<p class="warn pad">Only the beginning is compared: the ${cut.length > 1 ? "bodies have" : "body has"} ${cut.map((each) => integer(each.bytes)).join(" and ")} bytes.</p>${shown}` : shown;
}
