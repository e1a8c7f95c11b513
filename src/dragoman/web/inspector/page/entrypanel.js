// @ts-check
// Everything about one entry: facts, usage, timing, checksums, JSON, provider data, and how a call was shown it.
import { html, useEffect, useState } from "./vendor/libraries.js";
import { get } from "./api.js";
import { tell } from "./keys.js";
import { Skeleton, Tile, UsageBar } from "./parts.js";
import { link } from "./router.js";
import { Safe, safe } from "./safetext.js";
import { bytes, money, percent, seconds, integer } from "./words.js";

/** @typedef {import("./record.js").SessionRecord} SessionRecord */

const TABS = ["Entry", "JSON", "Provider data", "As sent"];

/** @param {{record: SessionRecord, serial: number, call?: any, level?: string, onFork?: () => void, onClose?: () => void}} given */
export function EntryPanel({ record, serial, call, level, onFork, onClose }) {
  const [tab, setTab] = useState("Entry");
  void record.version.value;
  const loaded = record.entry(serial);
  if (!loaded) return html`<aside class="panel" aria-label="Entry"><${Skeleton} /></aside>`;
  const { entry } = loaded;
  const model = record.modelOf(serial);
  const copy = (/** @type {string} */ text, /** @type {string} */ words) => navigator.clipboard?.writeText(text).then(() => tell(words), () => tell("The browser does not let the page copy."));
  return html`<aside class="panel" aria-label=${`Entry ${serial}`}>
    <div class="panel-tabs" role="tablist" aria-label="What to show of the entry">${TABS.map((name) => html`<button role="tab" aria-selected=${tab === name} class="plain" onClick=${() => setTab(name)}>${name}</button>`)}
      ${onClose && html`<span class="grow"></span><button class="plain" aria-label="Close" onClick=${onClose}>✕</button>`}</div>
    <div class="scroll grow" tabindex="0" role="tabpanel" aria-label=${tab}>
      <div class="section row">${model && html`<${Tile} model=${model} />`}<strong class="mono big">#${serial}</strong><span class="dim grow"><${Safe} text=${entry.kind} /></span>${level && html`<span class="chip plain"><span class=${`level ${level}`} aria-hidden="true"></span>${level}</span>`}</div>
      ${tab === "Entry" && html`<${Facts} entry=${entry} model=${model} /><${Usage} entry=${entry} call=${call} /><${Timing} call=${call} /><${Checksums} record=${record} serial=${serial} size=${loaded.size} />`}
      ${tab === "JSON" && html`<div class="section"><div class="row"><span class="label grow">JSON</span><button class="link" onClick=${() => copy(JSON.stringify(entry, null, 2), "Copied.")}>Copy</button></div><pre class="json">${json(entry)}</pre></div>`}
      ${tab === "Provider data" && html`<div class="section">${providerData(entry).length ? providerData(entry).map(([name, value]) => html`<p class="label"><${Safe} text=${name} /></p><pre class="json">${json(value)}</pre>`) : html`<p class="dim">The entry holds no data that only its provider understands.</p>`}</div>`}
      ${tab === "As sent" && html`<${AsSent} record=${record} serial=${serial} />`}
    </div>
    <div class="actions">${onFork && html`<button onClick=${onFork}>Fork from here</button>`}
      ${entry.kind === "model_output" && html`<a class="button" href=${link(record.id, "diff", null, { a: previous(record, serial), b: String(serial) })}>Request</a><a class="button" href=${link(record.id, "context", serial)}>Context</a>`}
      <span class="grow"></span><button onClick=${() => copy(new URL(link(record.id, "timeline", serial), location.href).href, "The link is copied.")}>Link</button></div>
  </aside>`;
}

/** @param {SessionRecord} record @param {number} serial */
export function previous(record, serial) {
  const own = record.modelOf(serial);
  for (let before = serial - 1; before >= 0; before -= 1) if (record.kindOf(before) === "model_output" && record.modelOf(before) === own) return String(before);
  return String(serial);
}

/** @param {any} value */
const json = (value) => safe(JSON.stringify(value, null, 2).slice(0, 60_000));

/** @param {any} entry @returns {[string, any][]} */
function providerData(entry) {
  /** @type {[string, any][]} */
  const found = [];
  const message = entry.payload?.message ?? entry.payload?.partial;
  if (message?.meta?.providerData) found.push(["message", message.meta.providerData]);
  (message?.parts ?? []).forEach((/** @type {any} */ part, /** @type {number} */ index) => {
    if (part.payload?.providerData) found.push([`part ${index}, ${part.kind}`, part.payload.providerData]);
    if (part.kind === "provider_item") found.push([`part ${index}, ${part.payload.itemType}`, part.payload.item]);
  });
  return found;
}

/** @param {{entry: any, model: string | null}} given */
function Facts({ entry, model }) {
  const meta = entry.payload?.message?.meta ?? {};
  /** @type {[string, any][]} */
  const facts = [["Id", entry.id], ["Time", entry.timestamp], ["Run", entry.runId], ["Model", model], ["Finish", meta.finishReason && `${meta.finishReason}${meta.rawFinishReason ? ` (wire: ${meta.rawFinishReason})` : ""}`], ["Request", meta.requestId]];
  for (const [name, value] of Object.entries(entry.metadata ?? {})) facts.push([name, typeof value === "string" ? value : JSON.stringify(value)]);
  return html`<dl class="section facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<dt><${Safe} text=${name} /></dt><dd class="mono"><${Safe} text=${String(value).slice(0, 300)} /></dd>`)}</dl>`;
}

/** @param {{entry: any, call?: any}} given */
function Usage({ entry, call }) {
  const usage = entry.payload?.message?.meta?.usage;
  if (entry.kind !== "model_output") return null;
  if (!usage) return html`<div class="section"><span class="label">Usage</span> <span class="dim">unknown: the provider reported none</span></div>`;
  const fresh = usage.inputTokens == null ? null : usage.inputTokens - (usage.cacheReadTokens ?? 0);
  return html`<div class="section"><div class="row"><span class="label grow">Usage</span><span>${call || usage.cost != null ? money(call?.cost ?? usage.cost) : ""}</span></div>
    <${UsageBar} used=${usage.inputTokens} cached=${usage.cacheReadTokens} />
    <dl class="facts"><dt>Input</dt><dd>${integer(usage.inputTokens)}</dd><dt><span class="key fromcache" aria-hidden="true"></span>from cache</dt><dd>${integer(usage.cacheReadTokens)} <span class="dim">${usage.cacheReadTokens != null ? percent(usage.cacheReadTokens, usage.inputTokens) : ""}</span></dd>
      <dt><span class="key fresh" aria-hidden="true"></span>new</dt><dd>${integer(fresh)}</dd><dt>Output</dt><dd>${integer(usage.outputTokens)}</dd>
      ${usage.reasoningTokens != null && html`<dt>reasoning</dt><dd>${integer(usage.reasoningTokens)}</dd>`}</dl></div>`;
}

/** @param {{call?: any}} given */
function Timing({ call }) {
  if (!call) return null;
  const speed = call.seconds && call.usage?.outputTokens ? `${Math.round(call.usage.outputTokens / call.seconds)} tokens/s` : "";
  return html`<div class="section"><div class="row"><span class="label grow">Timing</span><span>${seconds(call.seconds)}</span></div>
    <div class="row dim small"><span class="grow">first token ${seconds(call.firstTokenSeconds)}</span><span>${speed}</span></div></div>`;
}

/** @param {{record: SessionRecord, serial: number, size: number}} given */
function Checksums({ record, serial, size }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let isOver = false;
    setFound(null);
    get(`${record.path}/entries/${serial}/checksum`).then((value) => !isOver && setFound(value), () => {});
    return () => {
      isOver = true;
    };
  }, [record, serial]);
  return html`<div class="section"><span class="label">Checksum chain</span>
    ${found && html`<p class="mono small dim cut">${serial > 0 ? `#${serial - 1} ` : ""}${found.previous}</p><p class="mono small cut">#${serial} ${found.checksum}</p>`}
    <p class="small dim">${bytes(size)} of JSON</p></div>`;
}

/** @param {{record: SessionRecord, serial: number}} given */
function AsSent({ record, serial }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  let call = -1;
  for (let next = record.length - 1; next > serial && call < 0; next -= 1) if (record.kindOf(next) === "model_output") call = next;
  useEffect(() => {
    setFound(null);
    if (call >= 0) get(`${record.path}/calls/${call}/entries/${serial}`).then(setFound, () => setFound({ blocks: [] }));
  }, [record, serial, call]);
  if (call < 0) return html`<div class="section dim">No model was called after this entry.</div>`;
  if (!found) return html`<${Skeleton} />`;
  return html`<div class="section"><p class="label">What the newest call, <a href=${link(record.id, "context", call)}>#${call}</a>, was shown of it</p>${found.blocks.length ? found.blocks.map((/** @type {any} */ block) => html`<${Kept} block=${block} />`) : html`<p class="dim">Nothing: it is no part of the conversation, or it was folded.</p>`}</div>`;
}

/** Lines of an entry, those that a call was shown and where others were folded. @param {{block: any, all?: boolean}} given */
export function Kept({ block, all = false }) {
  const kept = new Set(block.kept);
  const rows = [];
  let folded = 0;
  block.lines.forEach((/** @type {string} */ line, /** @type {number} */ index) => {
    if (kept.has(index) || all) {
      if (folded) rows.push(html`<div class="foldedline">⋯ ${folded} line${folded === 1 ? "" : "s"} folded</div>`);
      folded = 0;
      rows.push(html`<div class=${`codeline ${kept.has(index) ? "kept" : ""}`}><span class="number" aria-hidden="true">${index + 1}</span><pre>${safe(line.slice(0, 2000))}</pre></div>`);
    } else folded += 1;
  });
  if (folded) rows.push(html`<div class="foldedline">⋯ ${folded} line${folded === 1 ? "" : "s"} folded</div>`);
  return html`<div class="keptblock"><p class="small"><strong>${kept.size}</strong> of ${block.lines.length} lines kept${block.tool ? html`, <${Safe} text=${block.tool} />` : ""}</p>${rows.slice(0, 1500)}</div>`;
}
