// @ts-check
// A tool call and its result as one card. An edit is shown as a difference of lines.
import { diffLines, html } from "./vendor/libraries.js";
import { useStored } from "./stored.js";
import { beginning, headOf, lengthOf, LongText, ServerText } from "./longtext.js";
import { Picture } from "./picture.js";
import { plain, Safe, safe } from "./safetext.js";
import { seconds } from "./words.js";

const MAIN = ["command", "file_path", "path", "pattern", "query", "url", "cmd", "file", "name", "prompt", "description"];
const DIFF_LINES = 40;
const HEAD = 200; // characters of an argument in the head of its card
const LONGEST_LINE = 2000;

/** The argument that says most. @param {any} call @returns {[string, any]} its name and its text, which may be cut */
function mainArgument(call) {
  const given = call.arguments ?? {};
  const isText = (/** @type {any} */ value) => typeof value === "string" || Boolean(value?.$cut);
  const name = MAIN.find((each) => isText(given[each])) ?? Object.keys(given).find((each) => isText(given[each]) || Number.isSafeInteger(given[each]));
  return name === undefined ? ["", ""] : [name, typeof given[name] === "number" ? String(given[name]) : given[name]];
}

const BEFORE = ["old_string", "oldText", "old_str"];
const AFTER = ["new_string", "newText", "new_str"];

/** The text that was replaced, and the text that took its place. @param {any} given */
function edited(given) {
  const [before, after] = [BEFORE, AFTER].map((names) => names.map((name) => given?.[name]).find((value) => value != null));
  return typeof before === "string" && typeof after === "string" ? { before, after } : null;
}

/** @param {{before: string, after: string, name: string}} given */
function Diff({ before, after, name }) {
  const [isOpen, setOpen] = useStored(name, false);
  const rows = [];
  let [left, right] = [1, 1];
  for (const piece of diffLines(before, after)) {
    const lines = piece.value.replace(/\n$/, "").split("\n");
    for (const line of lines) {
      const sign = piece.added ? "+" : piece.removed ? "-" : " ";
      rows.push({ sign, line, left: piece.added ? "" : left, right: piece.removed ? "" : right });
      if (!piece.added) left += 1;
      if (!piece.removed) right += 1;
    }
  }
  const shown = isOpen ? rows : rows.slice(0, DIFF_LINES);
  return html`<div class="diff" role="group" aria-label="Changed lines">
    ${shown.map((row) => html`<div class=${`codeline ${row.sign === "+" ? "added" : row.sign === "-" ? "removed" : ""}`}>
      <span class="number" aria-hidden="true">${row.left}</span><span class="number" aria-hidden="true">${row.right}</span>
      <span class="sign">${row.sign}</span><pre>${safe(isOpen ? row.line : beginning(row.line, LONGEST_LINE))}</pre></div>`)}
    ${!isOpen && (rows.length > shown.length || shown.some((row) => row.line.length > LONGEST_LINE)) && html`<button class="more" onClick=${() => setOpen(true)}>▾ ${rows.length > shown.length ? `${rows.length - shown.length} more lines` : "all characters"}</button>`}
  </div>`;
}

/** @param {{before: string, after: string}} given */
function counts({ before, after }) {
  let [added, removed] = [0, 0];
  for (const piece of diffLines(before, after)) {
    if (piece.added) added += piece.count ?? 0;
    else if (piece.removed) removed += piece.count ?? 0;
  }
  return [added, removed];
}

/** @param {any} result @returns {any} the first text of a result, which may be cut */
function resultText(result) {
  const live = result?.result?.live ?? [];
  if (live.length === 1) return live[0][1];
  return live.map((/** @type {any} */ section) => headOf(section[1])).join("\n");
}

/** A value in few words. @param {any} value */
const brief = (value) => (value === undefined ? "nothing" : value?.$cut ? JSON.stringify(`${value.$cut.head.slice(0, 200)}…`) : JSON.stringify(value));

/** What a decision changed in the arguments of a call. @param {any} before @param {any} after */
export function changesOf(before, after) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  const changed = names.filter((name) => JSON.stringify(before?.[name]) !== JSON.stringify(after?.[name]));
  return changed.map((name) => `${name}: ${brief(before?.[name])} → ${brief(after?.[name])}`).join(", ") || "unchanged";
}

/** A call in one line: enough to tell it from others of the same tool. @param {any} call */
export const callWords = (call) => beginning(Object.entries(call?.arguments ?? {}).map(([name, value]) => `${name}: ${brief(value)}`).join(", "), 160);

const STATUS = { success: ["✓", "ok", "done"], failed: ["✕", "bad", "failed"], skipped: ["⊘", "warn", "not run"] };

/** A call with `at`, its place in the entry `serial`, and its result.
 * @param {{call: any, serial?: number, at?: string, found?: {result: any, serial: number}, decision?: any, path: string, hit?: string, children?: any}} given */
export function ToolCard({ call, serial, at, found, decision, path, hit, children }) {
  const [name, main] = mainArgument(call);
  const head = headOf(main).split("\n")[0];
  const isMore = lengthOf(main) > Math.min(head.length, HEAD); // than stands in the head
  const change = edited(call.arguments);
  const result = found?.result;
  const status = result ? STATUS[/** @type {keyof typeof STATUS} */ (result.status)] ?? ["?", "", result.status] : null;
  const others = Object.keys(call.arguments ?? {}).filter((key) => key !== name && !(change && [...BEFORE, ...AFTER].includes(key)));
  const own = `${path} ${call.toolCallId ?? result?.toolCallId}`;
  const [isOpen, setOpen] = useStored(`${own} arguments`, !found && !children); // those of a call that runs are open
  const [added, removed] = change ? counts(change) : [0, 0];
  const isRead = /^(read|cat|view)/i.test(call.toolName ?? "") && !/^\s*\d+[→\t]/.test(headOf(resultText(result)));
  return html`<div role="group" class=${`toolcard ${result?.status === "failed" ? "failed" : ""}`} aria-label=${`Call of ${plain(String(call.toolName))}`}>
    <div class="toolhead">
      <strong class="cut"><${Safe} text=${call.toolName} hit=${hit} /></strong>
      <code class="cut grow"><${Safe} text=${beginning(head, HEAD)} hit=${hit} /></code>
      ${change && html`<span class="ok small">+${added}</span><span class="bad small">-${removed}</span>`}
      ${status && html`<span class=${`${status[1]} small`}><span aria-hidden="true">${status[0]} </span>${result.status === "success" ? html`<span class="hidden">done</span>` : result.errorCode ?? status[2]}</span>`}
      ${result?.elapsedSeconds != null && html`<span class="dim small nowrap">${seconds(result.elapsedSeconds)}</span>`}
      ${found && html`<span class="dim small mono">#${found.serial}</span>`}
    </div>
    ${call.parseError && html`<p class="warn pad">Arguments cannot be read: <${Safe} text=${call.parseError} /></p>`}
    ${call.parseError && html`<div class="pad"><${LongText} value=${call.rawArgsText ?? ""} path=${path} serial=${serial} name=${`${own} raw`} hit=${hit} /></div>`}
    ${isMore && html`<div class="pad args"><${LongText} value=${main} path=${path} serial=${serial} name=${`${own} main`} line=${HEAD} lines=${12} hit=${hit} /></div>`}
    ${others.length > 0 && html`<button class="more" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "▾" : "▸"} ${others.length === 1 ? "1 more argument" : `${others.length} more arguments`}</button>`}
    ${others.length > 0 && isOpen && html`<div class="pad args"><${ServerText} path=${path} serial=${serial} at=${`${at}/arguments`} name=${`${own} arguments`} hit=${hit} /></div>`}
    ${decision?.arguments && html`<p class="changed warn small">Run with other arguments: <code>${safe(beginning(changesOf(call.arguments, decision.arguments), 4000))}</code></p>`}
    ${change && html`<${Diff} ...${change} name=${`${own} diff`} />`}
    ${result && !(change && result.status === "success") && html`<div class="result"><${LongText} value=${resultText(result)} path=${path} serial=${found?.serial} name=${own} hit=${hit} numbered=${isRead} /></div>`}
    ${result?.attachments?.map((/** @type {any} */ part) => html`<${Picture} part=${part} path=${path} serial=${found?.serial} />`)}
    ${children}
  </div>`;
}
