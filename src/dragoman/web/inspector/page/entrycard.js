// @ts-check
// One entry in the reading view.
import { html } from "./vendor/libraries.js";
import { useStored } from "./stored.js";
import { beginning, headOf, lengthOf, LongText, More } from "./longtext.js";
import { Markdown } from "./markdown.js";
import { Tile, Trouble } from "./parts.js";
import { Picture } from "./picture.js";
import { FLAGS } from "./record.js";
import { link } from "./router.js";
import { plain, Safe } from "./safetext.js";
import { callWords, changesOf, ToolCard } from "./toolcard.js";
import { clock, modelName, moment, money, percent, provider, short } from "./words.js";

/**
 * @typedef {import("./record.js").SessionRecord} SessionRecord
 * @typedef {{record: SessionRecord, serial: number, hit?: string, calls?: Map<number, any>, onOpen?: (serial: number) => void,
 *   below?: (callId: string) => any}} Given
 */

/** @param {Given} given */
export function EntryCard(given) {
  const { record, serial } = given;
  const loaded = record.entry(serial);
  const problem = loaded ? null : record.problemOf(serial);
  if (problem) return html`<div class="entry"><${Trouble} problem=${problem} retry=${() => record.retry()} /></div>`;
  if (!loaded) return html`<div class="entry pending"><div class="skeleton" style=${{ width: "60%" }}></div></div>`;
  const kind = loaded.entry.kind;
  const draw = CARDS[kind] ?? Unknown;
  return draw({ ...given, entry: loaded.entry, payload: loaded.entry.payload });
}

/** The time of an entry, with its date where a pointer asks for it. @param {{of: string}} given */
const Time = ({ of }) => html`<time class="dim" datetime=${of} title=${moment(of)}>${clock(of)}</time>`;

/** @param {any} value @param {any} given */
function textBlock(value, { hit, record, serial }, index = 0) {
  const text = headOf(value);
  if (value?.$cut || text.length > 8000) return html`<${LongText} value=${value} path=${record.path} serial=${serial} name=${`text ${index}`} lines=${40} hit=${hit} />`;
  return html`<${Markdown} text=${text} hit=${hit} />`;
}

/** @param {any} given @param {any} parts */
const mediaOf = (parts, given) =>
  (parts ?? [])
    .filter((/** @type {any} */ part) => part.kind === "image" || part.kind === "file_ref")
    .map((/** @type {any} */ part) => html`<${Picture} part=${part} path=${given.record.path} serial=${given.serial} />`);

/** @param {any} parts @param {any} given */
const textsOf = (parts, given) =>
  (parts ?? []).filter((/** @type {any} */ part) => part.kind === "text").map((/** @type {any} */ part, /** @type {number} */ index) => textBlock(part.payload.text, given, index));

/** @param {any} given */
function Input(given) {
  const { entry, payload } = given;
  const isInjected = Boolean(entry.metadata?.injected);
  const name = { steering: "You, to the run", run_requested: `Requested of ${payload.agent}` }[/** @type {string} */ (entry.kind)];
  return html`<article class="entry input">
    <header><strong>${name ?? (isInjected ? "Program" : "You")}</strong><${Time} of=${entry.timestamp} /></header>
    <div class="said">${textsOf(payload.parts, given)}${mediaOf(payload.parts, given)}</div>
  </article>`;
}

/** @param {{part: any, index: number, given: any}} given */
function Thinking({ part, index, given }) {
  const [isOpen, setOpen] = useStored(`${given.record.path} ${given.serial} thinking ${index}`, false);
  const text = part.payload.text;
  const head = headOf(text);
  return html`<div class="thinking">
    <button class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span aria-hidden="true">${isOpen ? "▾" : "▸"}</span> Thinking
      ${!isOpen && html`<span class="cut grow dim"><${Safe} text=${beginning(head.split("\n").find((/** @type {string} */ line) => line.trim()) ?? "(not shown by its provider)", 160)} hit=${given.hit} /></span>`}
      <span class="dim">${short(lengthOf(text) / 4)}</span></button>
    ${isOpen && html`<div class="thought"><${LongText} value=${text} path=${given.record.path} serial=${given.serial} name=${`thought ${index}`} lines=${60} hit=${given.hit} open=${true} /></div>`}
  </div>`;
}

/** @param {any} given */
function Output(given) {
  const { entry, payload, record, serial, hit } = given;
  const message = payload.message;
  const meta = message.meta ?? {};
  const model = meta.invocation ? `${meta.invocation.provider}:${meta.invocation.model}` : meta.modelId;
  const usage = meta.usage ?? {};
  const cost = given.calls?.get(serial)?.cost ?? usage.cost;
  const found = record.resultsOf(serial);
  const decisions = record.decisionsOf(serial);
  const cached = usage.cacheReadTokens;
  return html`<article class=${`entry output by-${provider(model)}`}>
    <header><${Tile} model=${model} /><strong class="cut"><${Safe} text=${modelName(model)} /></strong><${Time} of=${entry.timestamp} />
      <span class="grow"></span><span class="figures dim small">
        ${usage.inputTokens != null && html`<span>${short(usage.inputTokens)} in</span>`}
        ${cached != null && html`<span class=${cached === 0 && usage.inputTokens > 2000 ? "miss strong" : ""}>${percent(cached, usage.inputTokens)} cached</span>`}
        ${usage.outputTokens != null && html`<span>${short(usage.outputTokens)} out</span>`}
        ${cost != null && html`<span>${money(cost)}</span>`}</span></header>
    ${message.parts.map((/** @type {any} */ part, /** @type {number} */ index) => {
      if (part.kind === "text") return textBlock(part.payload.text, given, index);
      if (part.kind === "thinking") return html`<${Thinking} part=${part} index=${index} given=${given} />`;
      if (part.kind === "tool_call") return html`<${ToolCard} call=${part.payload} found=${found.get(part.payload.toolCallId)} decision=${decisions.get(part.payload.toolCallId)} path=${record.path} serial=${serial} at=${`/payload/message/parts/${index}/payload`} hit=${hit}>${given.below?.(part.payload.toolCallId)}</${ToolCard}>`;
      if (part.kind === "image" || part.kind === "file_ref") return html`<${Picture} part=${part} path=${record.path} serial=${serial} />`;
      if (part.$more) return html`<${More} more=${part.$more} path=${record.path} serial=${serial} what="parts" />`;
      return html`<div class="fence"><${LongText} value=${JSON.stringify(part, null, 2)} path=${record.path} serial=${serial} name=${`part ${index}`} hit=${hit} /></div>`;
    })}
    ${!message.parts.length && html`<p class="dim">(nothing)</p>`}
    ${meta.finishReason && !["stop", "tool_calls"].includes(meta.finishReason) && html`<p class="warn small">Ended by ${meta.finishReason}</p>`}
  </article>`;
}

/** @param {any} given */
function Results(given) {
  const { payload, record, serial, hit } = given;
  return html`<article class="entry">${(payload.results ?? []).map((/** @type {any} */ result) =>
    result.$more ? html`<${More} more=${result.$more} path=${record.path} serial=${serial} what="results" />` : html`<${ToolCard} call=${{ toolName: result.toolName, arguments: {} }} found=${{ result, serial }} path=${record.path} hit=${hit} />`)}
    ${payload.executeError && html`<p class="bad"><${Safe} text=${headOf(payload.executeError)} hit=${hit} /></p>`}</article>`;
}

/** @param {{class?: string, icon: string, title: any, children?: any, end?: any}} given */
const Band = ({ icon, title, children, end, class: name }) => html`<div class=${`entry band ${name ?? ""}`}>
  <span class="icon" aria-hidden="true">${icon}</span><strong>${title}</strong><span class="grow">${children}</span>${end}</div>`;

/** @param {any} given */
function Epoch({ payload, serial, record, calls, onOpen }) {
  const next = nextCall(record, serial);
  const sent = next == null ? null : calls?.get(next)?.sent;
  return html`<${Band} class="epoch" icon="≋" title="Epoch" end=${next != null && html`<button class="link" onClick=${() => onOpen?.(next)}>View</button>`}>
    <${Safe} text=${payload.reason} /> <span class="dim">${sent ? `${short(sent.fixed + sent.ledger + sent.turns + sent.live)} tokens after it, ${short(sent.ledger)} in the ledger` : ""}</span></${Band}>`;
}

/** @param {SessionRecord} record @param {number} serial */
function nextCall(record, serial) {
  for (let next = serial + 1; next < Math.min(record.length, serial + 12); next += 1) if (record.kindOf(next) === "model_output") return next;
  return null;
}

/** @param {any} given */
function Interruption(given) {
  const { payload } = given;
  return html`<div class="entry interruption"><p><span aria-hidden="true">⚡ </span><strong class="warn">Interrupted</strong> <code>${payload.reason}</code> <span class="dim"><${Safe} text=${headOf(payload.message)} /></span></p>
    ${payload.providerMessage && html`<p class="small">Message of the provider: <${Safe} text=${headOf(payload.providerMessage)} /></p>`}
    ${payload.partial && html`<div class="partial">${textsOf(payload.partial.parts, given)}</div><p class="small dim">The part that had arrived is kept. It does not count as an answer.</p>`}</div>`;
}

/** @param {any} given */
function Approval({ entry, payload, hit, record, serial }) {
  const about = record.callOf(serial, payload.toolCallId);
  const call = about && html`<code><${Safe} text=${about.call.toolName} hit=${hit} /></code> <span class="mono small"><${Safe} text=${callWords(about.call)} hit=${hit} /></span> <a class="mono small" href=${link(record.id, "timeline", about.serial)}>#${about.serial}</a>`;
  if (entry.kind === "approval_asked") {
    return html`<${Band} icon="?" title="Asked">${call ?? html`<code><${Safe} text=${payload.toolName} hit=${hit} /></code>`} <span class="dim"><${Safe} text=${headOf(payload.reason)} /></span></${Band}>`;
  }
  const who = entry.metadata?.decided_by ?? `a ${payload.by ?? "person"}`;
  return html`<${Band} class=${payload.approved ? "" : "denied"} icon=${payload.approved ? "✓" : "✕"} title=${payload.approved ? "Approved" : "Denied"}>
    ${call ?? html`<code><${Safe} text=${payload.toolCallId} /></code>`} ${payload.arguments && html`<span class="warn">with other arguments: <code><${Safe} text=${beginning(changesOf(about?.call.arguments, payload.arguments), 4000)} /></code></span> `}${payload.reason && html`“<${Safe} text=${headOf(payload.reason)} hit=${hit} />” `}<span class="dim">by <${Safe} text=${who} />, ${clock(entry.timestamp)}</span></${Band}>`;
}

/** @param {any} given */
function Run({ entry, payload }) {
  const words = { run_started: "Run began", run_finished: `Run ${payload.status ?? ""}`, takeover: "Another process carries on", abort_requested: "Asked to stop", reset: "The conversation starts again" };
  return html`<div class="entry runline"><span>${words[/** @type {keyof typeof words} */ (entry.kind)]}${payload.errorCode ? `: ${payload.errorCode}` : ""}
    ${entry.runId && html` <code class="dim"><span title=${plain(String(entry.runId))}><${Safe} text=${beginning(String(entry.runId), 12)} /></span></code>`} <${Safe} text=${headOf(payload.message ?? payload.reason ?? "")} /> <${Time} of=${entry.timestamp} /></span></div>`;
}

/** @param {any} given */
function Folded(given) {
  const { entry, payload, record, serial, hit } = given;
  const [title, value] = { system_instruction: ["System", payload.instruction], notebook: ["Notebook", payload.content], compaction: [`Summary of #${payload.firstSerial} to #${payload.lastSerial}`, payload.summary] }[/** @type {string} */ (entry.kind)] ?? ["", ""];
  return html`<article class="entry note-entry"><header><strong>${title}</strong><${Time} of=${entry.timestamp} /></header>
    <${LongText} value=${value || "(none)"} path=${record.path} serial=${serial} name="text" lines=${6} hit=${hit} /></article>`;
}

/** @param {any} given */
function Unknown({ entry, hit, record, serial }) {
  return html`<article class="entry note-entry"><header><strong><${Safe} text=${entry.kind} /></strong><${Time} of=${entry.timestamp} /></header>
    <${LongText} value=${JSON.stringify(entry.payload, null, 2)} path=${record.path} serial=${serial} name="payload" lines=${40} hit=${hit} /></article>`;
}

/** @param {any} given */
function ToolSet({ payload }) {
  const names = (payload.specs ?? []).map((/** @type {any} */ spec) => spec.name).join(", ");
  return html`<${Band} icon="⚒" title="Tools">${payload.digests?.length ?? 0} for <${Safe} text=${modelName(`:${payload.invocation?.model ?? ""}`)} /> ${names && html`<span class="dim">new: <${Safe} text=${beginning(names, 400)} /></span>`}</${Band}>`;
}

/** @param {any} given */
function Client({ entry, payload }) {
  if (entry.kind === "client_request") return html`<${Band} icon="→" title="Client asked"><code><${Safe} text=${`${payload.method ?? "POST"} ${headOf(payload.path)}`} /></code> <span class="dim"><${Safe} text=${headOf(payload.model)} /> ${clock(entry.timestamp)}</span></${Band}>`;
  return html`<${Band} icon="←" title="Client was answered">${payload.status} <span class="dim"><${Safe} text=${headOf(payload.model ?? "")} />${payload.isWhole === false ? ", cut off" : ""} ${clock(entry.timestamp)}</span></${Band}>`;
}

/** @type {Record<string, (given: any) => any>} */
const CARDS = {
  model_input: Input, steering: Input, run_requested: Input, model_output: Output, tool_result: Results,
  tool_set: ToolSet, client_request: Client, client_answer: Client, epoch: Epoch, interruption: Interruption, approval_asked: Approval, approval_answered: Approval,
  run_started: Run, run_finished: Run, takeover: Run, abort_requested: Run, reset: Run,
  system_instruction: Folded, notebook: Folded, compaction: Folded,
};

/** The date above the first card of a day, in a session of several days. @param {{record: SessionRecord, serial: number}} given */
export function DayBand({ record, serial }) {
  const name = record.dayAt(serial);
  return name ? html`<div class="dayband"><span>${name}</span></div>` : null;
}

/** About how high a card is before it was measured. @param {SessionRecord} record @param {number} serial */
export function estimate(record, serial) {
  const kind = record.kindOf(serial);
  const tokens = record.tokens[serial] ?? 0;
  if (kind === "model_output") return 60 + Math.min(tokens / 3, 500) + (record.flags[serial] & FLAGS.calls ? 180 : 0);
  if (kind === "model_input") return 80 + Math.min(tokens / 3, 500);
  return kind === "system_instruction" || kind === "interruption" ? 110 : 48;
}
