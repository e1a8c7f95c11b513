// @ts-check
// The list of entries: one line each, of which only those on screen are in the page.
import { html, useEffect, useRef, useState } from "./vendor/libraries.js";
import { headOf } from "./longtext.js";
import { Tile } from "./parts.js";
import { FLAGS } from "./record.js";
import { Safe } from "./safetext.js";
import { provider, short } from "./words.js";

/** @typedef {import("./record.js").SessionRecord} SessionRecord */

const ROW = 28;
const MARKS = new Set(["epoch", "interruption", "approval_asked", "approval_answered", "notebook", "system_instruction", "compaction", "reset", "takeover", "abort_requested", "steering", "tool_set"]);

/** @type {Record<string, {words: string, fits: (record: SessionRecord, serial: number) => boolean}>} */
export const FILTERS = {
  all: { words: "All", fits: () => true },
  turns: { words: "Turns", fits: (record, serial) => record.kindOf(serial) === "model_input" },
  calls: { words: "Calls", fits: (record, serial) => record.kindOf(serial) === "model_output" },
  tools: { words: "Tools", fits: (record, serial) => record.kindOf(serial) === "tool_result" },
  marks: { words: "Marks", fits: (record, serial) => MARKS.has(record.kindOf(serial)) || Boolean(record.flags[serial] & (FLAGS.failed | FLAGS.cut)) },
};

const ICONS = /** @type {Record<string, string>} */ ({
  model_input: "❯", tool_result: "↩", run_started: "┌", run_finished: "└", epoch: "≋", interruption: "⚡", approval_asked: "?",
  approval_answered: "✓", notebook: "✎", system_instruction: "§", compaction: "≡", reset: "↺", steering: "❯", takeover: "⇄", abort_requested: "■", tool_set: "⚒", client_request: "→", client_answer: "←",
});

/** @param {{record: SessionRecord, serials: number[], chosen: number, hits: Set<number>, hit?: string, onChoose: (serial: number) => void}} given */
export function EntryList({ record, serials, chosen, hits, hit, onChoose }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const height = box.current?.clientHeight ?? 800;
  const first = Math.max(Math.floor(top / ROW) - 15, 0);
  const last = Math.min(Math.ceil((top + height) / ROW) + 15, serials.length);
  const place = nearest(serials, chosen);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    let frame = 0;
    const scrolled = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => setTop(element.scrollTop));
    };
    element.addEventListener("scroll", scrolled, { passive: true });
    setTop(element.scrollTop);
    const observer = new ResizeObserver(() => setTop(element.scrollTop + 0.01));
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", scrolled);
      observer.disconnect();
    };
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const at = place * ROW;
    if (at < element.scrollTop + ROW || at > element.scrollTop + element.clientHeight - 2 * ROW) element.scrollTop = at - element.clientHeight / 2;
  }, [chosen, serials]);
  if (!serials.length) return html`<div class="note"><p>${record.length ? "No entry of this kind." : "No entry yet."}</p></div>`;
  return html`<div class="scroll list" ref=${box} role="listbox" aria-label="Entries" tabindex="0" aria-activedescendant=${place >= first && place < last ? `entry-${serials[place]}` : undefined}>
    <div class="space" style=${{ height: `${serials.length * ROW}px` }} role="presentation">${serials.slice(first, last).map((serial, index) => html`<${Row} key=${serial} record=${record} serial=${serial} place=${first + index} count=${serials.length} isChosen=${first + index === place} isHit=${hits.has(serial)} hit=${hit} onChoose=${onChoose} />`)}</div></div>`;
}

/** @param {{record: SessionRecord, serial: number, place: number, count: number, isChosen: boolean, isHit: boolean, hit?: string, onChoose: (serial: number) => void}} given */
function Row({ record, serial, place, count, isChosen, isHit, hit, onChoose }) {
  const kind = record.kindOf(serial);
  const model = record.modelOf(serial);
  const loaded = record.entry(serial);
  const flags = record.flags[serial];
  const line = loaded ? (LINES[kind]?.(record, serial, loaded) ?? loaded.line) : "";
  const icon = kind === "approval_answered" && loaded?.entry.payload.approved === false ? "✕" : ICONS[kind] ?? "·";
  const name = `entryrow ${isChosen ? "chosen" : ""} ${isHit ? "hitrow" : ""} kind-${kind} ${flags & FLAGS.failed ? "failed" : ""} rail-${model ? provider(model) : "none"}`;
  return html`<div role="option" id=${`entry-${serial}`} aria-selected=${isChosen} aria-setsize=${count} aria-posinset=${place + 1} class=${name} style=${{ transform: `translateY(${place * ROW}px)` }} onClick=${() => onChoose(serial)}>
    <span class="mono serial">${serial}</span>${model || kind === "model_output" ? html`<${Tile} model=${model} />` : html`<span class="icon" aria-hidden="true">${icon}</span>`}
    <span class="cut grow"><span class="hidden">${kind}: </span><${Safe} text=${line} hit=${hit} /></span>${record.tokens[serial] > 0 && html`<span class="dim small">${short(record.tokens[serial])}</span>`}</div>`;
}

/** @param {SessionRecord} record @param {number} serial @param {import("./record.js").Loaded} loaded */
function resultLine(record, serial, loaded) {
  const owner = record.owner[serial];
  const answer = owner !== serial ? record.entry(owner) : undefined;
  const call = answer?.entry.payload.message.parts.find((/** @type {any} */ part) => part.kind === "tool_call")?.payload;
  const main = call?.arguments && Object.values(call.arguments).find((value) => typeof value === "string");
  return main ? `${loaded.line} ${String(main).split("\n")[0].split("/").pop()?.slice(0, 80)}` : loaded.line;
}

/** @param {SessionRecord} record @param {number} serial @param {import("./record.js").Loaded} loaded */
function decisionLine(record, serial, loaded) {
  const { approved, arguments: changed, reason, toolCallId } = loaded.entry.payload;
  const call = record.callOf(serial, toolCallId)?.call;
  return [approved ? "Approved" : "Denied", call?.toolName, changed && "changed", headOf(reason)].filter(Boolean).join(" ");
}

/** @type {Record<string, (record: SessionRecord, serial: number, loaded: import("./record.js").Loaded) => string>} */
const LINES = { tool_result: resultLine, approval_answered: decisionLine };

/** The place of a serial in the list, or of the one before it. @param {number[]} serials @param {number} serial */
function nearest(serials, serial) {
  let low = 0;
  let high = serials.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (serials[middle] <= serial) low = middle;
    else high = middle;
  }
  return low;
}
