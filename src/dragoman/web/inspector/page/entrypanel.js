// @ts-check
// Everything about one entry: facts, usage, timing, checksums, JSON, provider data, and how a call was shown it.
import { html, useState } from "./vendor/libraries.js";
import { get, wholeText } from "./api.js";
import { tell } from "./keys.js";
import { cutLine, LongText, ServerText } from "./longtext.js";
import { Skeleton, Tile, Trouble, UsageBar, useFirst, useLoaded } from "./parts.js";
import { link } from "./router.js";
import { Safe } from "./safetext.js";
import { bytes, money, percent, seconds, integer } from "./words.js";

/** @typedef {import("./record.js").SessionRecord} SessionRecord */

const TABS = ["Entry", "JSON", "Provider data", "As sent"];

/** @param {{record: SessionRecord, serial: number, call?: any, level?: string, onFork?: () => void, onClose?: () => void}} given */
export function EntryPanel({ record, serial, call, level, onFork, onClose }) {
  const [tab, setTab] = useState("Entry");
  void record.version.value;
  const loaded = record.entry(serial);
  if (!loaded) return html`<aside class="panel" aria-label="Entry">${record.problemOf(serial) ? html`<${Trouble} problem=${record.problemOf(serial)} retry=${() => record.retry()} />` : html`<${Skeleton} />`}</aside>`;
  const { entry } = loaded;
  const model = record.modelOf(serial);
  const copy = (/** @type {string} */ text, /** @type {string} */ words) => navigator.clipboard?.writeText(text).then(() => tell(words), () => tell("The browser does not let the page copy."));
  return html`<aside class="panel" aria-label=${`Entry ${serial}`}>
    <div class="panel-tabs"><div role="tablist" aria-label="What to show of the entry" onKeyDown=${(/** @type {KeyboardEvent} */ event) => setTab(tabAfter(event, tab))}>${TABS.map((name) => html`<button role="tab" id=${tabId(name)} aria-selected=${tab === name} aria-controls="entry-tab" tabindex=${tab === name ? 0 : -1} class="plain" onClick=${() => setTab(name)}>${name}</button>`)}</div>
      ${onClose && html`<span class="grow"></span><button class="plain" aria-label="Close" onClick=${onClose}>✕</button>`}</div>
    <div class="scroll grow" tabindex="0" role="tabpanel" id="entry-tab" aria-labelledby=${tabId(tab)}>
      <div class="section row">${model && html`<${Tile} model=${model} />`}<strong class="mono big">#${serial}</strong><span class="dim grow"><${Safe} text=${entry.kind} /></span>${level && html`<span class="chip plain"><span class=${`level ${level}`} aria-hidden="true"></span>${level}</span>`}</div>
      ${tab === "Entry" && html`<${Facts} path=${record.path} serial=${serial} entry=${entry} model=${model} /><${Usage} entry=${entry} call=${call} /><${Timing} call=${call} /><${Checksums} record=${record} serial=${serial} size=${loaded.size} />`}
      ${tab === "JSON" && html`<div class="section"><div class="row"><span class="label grow">JSON</span><button class="link" onClick=${() => wholeText(record.path, serial, "").then((text) => copy(text, "Copied."), (error) => tell(error.message))}>Copy</button></div><${ServerText} path=${record.path} serial=${serial} at="" name="json" lines=${400} /></div>`}
      ${tab === "Provider data" && html`<div class="section">${providerData(entry).length ? providerData(entry).map(([name, value]) => html`<p class="label"><${Safe} text=${name} /></p><${LongText} value=${JSON.stringify(value, null, 2)} path=${record.path} serial=${serial} name=${`data ${name}`} lines=${200} />`) : html`<p class="dim">The entry holds no data that only its provider understands.</p>`}</div>`}
      ${tab === "As sent" && html`<${AsSent} record=${record} serial=${serial} />`}
    </div>
    <div class="actions">${onFork && html`<button onClick=${onFork}>Fork from here</button>`}
      ${entry.kind === "model_output" && html`<a class="button" href=${besides(record, serial)}>Request</a><a class="button" href=${link(record.id, "context", serial)}>Context</a>`}
      <span class="grow"></span><button onClick=${() => copy(new URL(link(record.id, "timeline", serial), location.href).href, "The link is copied.")}>Link</button></div>
  </aside>`;
}

/** The call before to the same model. @param {SessionRecord} record @param {number} serial @returns {string | null} */
export function previous(record, serial) {
  const own = record.modelOf(serial);
  for (let before = serial - 1; before >= 0; before -= 1) if (record.kindOf(before) === "model_output" && record.modelOf(before) === own) return String(before);
  return null;
}

/** The address of a request beside the one before; the first of a model stands beside itself. @param {SessionRecord} record @param {number} serial */
export const besides = (record, serial) => link(record.id, "diff", null, { a: previous(record, serial) ?? String(serial), b: String(serial) });

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

/** @param {string} name */
const tabId = (name) => `tab-${name.toLowerCase().replace(" ", "-")}`;

/** The tab that an arrow key goes to, with the focus. @param {KeyboardEvent} event @param {string} tab */
function tabAfter(event, tab) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const end = { Home: 0, End: TABS.length - 1 }[event.key];
  if (by === undefined && end === undefined) return tab;
  event.preventDefault();
  event.stopPropagation();
  const next = TABS[end ?? (TABS.indexOf(tab) + (by ?? 0) + TABS.length) % TABS.length];
  document.getElementById(tabId(next))?.focus();
  return next;
}

/** @param {{path: string, serial: number, entry: any, model: string | null}} given */
function Facts({ path, serial, entry, model }) {
  const meta = entry.payload?.message?.meta ?? {};
  /** @type {[string, any][]} */
  const facts = [["Id", entry.id], ["Time", entry.timestamp], ["Run", entry.runId], ["Model", model], ["Finish", meta.finishReason && `${meta.finishReason}${meta.rawFinishReason ? ` (wire: ${meta.rawFinishReason})` : ""}`], ["Request", meta.requestId]];
  for (const [name, value] of Object.entries(entry.metadata ?? {})) facts.push([name, typeof value === "string" || value?.$cut ? value : JSON.stringify(value)]);
  return html`<dl class="section facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<dt><${Safe} text=${name} /></dt><dd class="mono"><${LongText} value=${value?.$cut ? value : String(value)} path=${path} serial=${serial} name=${`fact ${name}`} lines=${6} line=${300} /></dd>`)}</dl>`;
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
  const { value: found, problem, reload } = useLoaded(() => get(`${record.path}/entries/${serial}/checksum`), [record, serial]);
  return html`<div class="section"><span class="label">Checksum chain</span>
    ${found && html`<p class="mono small dim cut">${serial > 0 ? `#${serial - 1} ` : ""}${found.previous}</p><p class="mono small cut">#${serial} ${found.checksum}</p>`}
    ${problem && html`<${Trouble} problem=${problem} retry=${reload} />`}<p class="small dim">${bytes(size)} of JSON</p></div>`;
}

/** @param {{record: SessionRecord, serial: number}} given */
function AsSent({ record, serial }) {
  const last = record.find("model_output", record.length - 1, -1) ?? -1;
  const call = last > serial ? last : -1;
  const found = useLoaded(() => (call < 0 ? Promise.resolve(null) : get(`${record.path}/calls/${call}/entries/${serial}`)), [record, serial], [call]);
  if (call < 0) return html`<div class="section dim">No model was called after this entry.</div>`;
  if (found.problem) return html`<${Trouble} problem=${found.problem} retry=${found.reload} />`;
  if (!found.value) return html`<${Skeleton} />`;
  const { blocks } = found.value;
  return html`<div class="section"><p class="label">What the newest call, <a href=${link(record.id, "context", call)}>#${call}</a>, was shown of it</p>${blocks.length ? blocks.map((/** @type {any} */ block) => html`<${Kept} block=${block} />`) : html`<p class="dim">Nothing: it is no part of the conversation, or it was folded.</p>`}</div>`;
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
      rows.push(html`<div class=${`codeline ${kept.has(index) ? "kept" : ""}`}><span class="number" aria-hidden="true">${index + 1}</span><pre>${cutLine(line, undefined)}</pre></div>`);
    } else folded += 1;
  });
  if (folded) rows.push(html`<div class="foldedline">⋯ ${folded} line${folded === 1 ? "" : "s"} folded</div>`);
  const [shown, more] = useFirst(rows, 1500);
  return html`<div class="keptblock"><p class="small"><strong>${kept.size}</strong> of ${block.lines.length} lines kept${block.tool ? html`, <${Safe} text=${block.tool} />` : ""}</p>${shown}${more}</div>`;
}
