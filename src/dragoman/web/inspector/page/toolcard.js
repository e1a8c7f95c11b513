// @ts-check
// A tool call and its result as one card. An edit is shown as a difference of lines.
import { diffLines, html } from "./vendor/libraries.js";
import { useStored } from "./stored.js";
import { headOf, LongText } from "./longtext.js";
import { Picture } from "./picture.js";
import { plain, Safe, safe } from "./safetext.js";
import { seconds } from "./words.js";

const MAIN = ["command", "file_path", "path", "pattern", "query", "url", "cmd", "file", "name", "prompt", "description"];
const DIFF_LINES = 40;

/** The argument that says most. @param {any} call @returns {[string, string]} its name and its text */
function mainArgument(call) {
  const given = call.arguments ?? {};
  for (const name of MAIN) if (typeof given[name] === "string" || given[name]?.$cut) return [name, headOf(given[name])];
  const other = Object.entries(given).find(([, value]) => typeof value === "string" || typeof value === "number");
  return other ? [other[0], String(other[1])] : ["", ""];
}

/** The text that was replaced, and the text that took its place. @param {any} given */
function edited(given) {
  const before = given?.old_string ?? given?.oldText ?? given?.old_str;
  const after = given?.new_string ?? given?.newText ?? given?.new_str;
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
      <span class="sign">${row.sign}</span><pre>${safe(row.line.slice(0, 2000))}</pre></div>`)}
    ${rows.length > shown.length && html`<button class="more" onClick=${() => setOpen(true)}>▾ ${rows.length - shown.length} more lines</button>`}
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
export function resultText(result) {
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
  return changed.map((name) => `${name}: ${brief(before?.[name])} → ${brief(after?.[name])}`).join(", ") || "the same as its own";
}

/** A call in one line: enough to tell it from others of the same tool. @param {any} call */
export const callWords = (call) => Object.entries(call?.arguments ?? {}).map(([name, value]) => `${name}: ${brief(value)}`).join(", ").slice(0, 160);

const STATUS = { success: ["✓", "ok", "done"], failed: ["✕", "bad", "failed"], skipped: ["⊘", "warn", "not run"] };

/** @param {{call: any, found?: {result: any, serial: number}, decision?: any, path: string, hit?: string, children?: any}} given */
export function ToolCard({ call, found, decision, path, hit, children }) {
  const [name, main] = mainArgument(call);
  const change = edited(call.arguments);
  const result = found?.result;
  const status = result ? STATUS[/** @type {keyof typeof STATUS} */ (result.status)] ?? ["?", "", result.status] : null;
  const others = Object.fromEntries(
    Object.entries(call.arguments ?? {}).filter(([key]) => key !== name && !(change && /old|new/.test(key))),
  );
  const own = `${path} ${call.toolCallId ?? result?.toolCallId}`;
  const [isOpen, setOpen] = useStored(`${own} arguments`, !found && !children); // nobody has to open what waits or runs
  const hasOthers = Object.keys(others).length > 0;
  const [added, removed] = change ? counts(change) : [0, 0];
  const isRead = /^(read|cat|view)/i.test(call.toolName ?? "") && !/^\s*\d+[→\t]/.test(headOf(resultText(result)));
  return html`<div role="group" class=${`toolcard ${result?.status === "failed" ? "failed" : ""}`} aria-label=${`Call of ${plain(String(call.toolName))}`}>
    <div class="toolhead">
      <strong class="cut"><${Safe} text=${call.toolName} hit=${hit} /></strong>
      <code class="cut grow"><${Safe} text=${main.split("\n")[0].slice(0, 200)} hit=${hit} /></code>
      ${change && html`<span class="ok small">+${added}</span><span class="bad small">-${removed}</span>`}
      ${status && html`<span class=${`${status[1]} small`}><span aria-hidden="true">${status[0]} </span>${result.status === "success" ? html`<span class="hidden">done</span>` : result.errorCode ?? status[2]}</span>`}
      ${result?.elapsedSeconds != null && html`<span class="dim small nowrap">${seconds(result.elapsedSeconds)}</span>`}
      ${found && html`<span class="dim small mono">#${found.serial}</span>`}
    </div>
    ${call.parseError && html`<p class="warn pad">Arguments cannot be read: <${Safe} text=${call.parseError} /></p>`}
    ${call.parseError && html`<pre class="pad">${safe(headOf(call.rawArgsText).slice(0, 4000), hit)}</pre>`}
    ${main.includes("\n") && html`<pre class="pad args">${safe(main.slice(0, 4000), hit)}</pre>`}
    ${hasOthers && html`<button class="more" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "▾" : "▸"} ${Object.keys(others).length === 1 ? "1 more argument" : `${Object.keys(others).length} more arguments`}</button>`}
    ${hasOthers && isOpen && html`<pre class="pad args">${safe(JSON.stringify(others, null, 2).slice(0, 20000), hit)}</pre>`}
    ${decision?.arguments && html`<p class="changed warn small">Run with other arguments: <code>${safe(changesOf(call.arguments, decision.arguments).slice(0, 4000))}</code></p>`}
    ${change && html`<${Diff} ...${change} name=${`${own} diff`} />`}
    ${result && !(change && result.status === "success") && html`<div class="result"><${LongText} value=${resultText(result)} path=${path} serial=${found?.serial} name=${own} hit=${hit} numbered=${isRead} /></div>`}
    ${result?.attachments?.map((/** @type {any} */ part) => html`<${Picture} part=${part} path=${path} serial=${found?.serial} />`)}
    ${children}
  </div>`;
}
