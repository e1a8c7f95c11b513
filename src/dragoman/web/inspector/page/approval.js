// @ts-check
// A call that waits for a decision: its arguments, never cut, and the decision itself. Who comes too late is told.
import { html, signal, useEffect, useState } from "./vendor/libraries.js";
import { ApiError, get, post } from "./api.js";
import { useStored } from "./stored.js";
import { headOf, signs } from "./longtext.js";
import { plain, Safe, safe } from "./safetext.js";
import { clock } from "./words.js";

/** @typedef {import("./record.js").SessionRecord} SessionRecord */

export const WHO = (() => {
  const known = localStorage.getItem("dragoman-who") ?? `browser ${Math.random().toString(36).slice(2, 6)}`;
  localStorage.setItem("dragoman-who", known);
  return known;
})();

/** The decisions that keys reach, by their calls: those whose arguments are in the page. @type {Map<string, (approved: boolean) => void>} */
export const deciders = new Map();

/** Clicks that came too late: the card has gone by then. */
export const late = signal(/** @type {{session: string, words: string}[]} */ ([]));

/** @param {SessionRecord} record @param {any} asked @param {boolean} approved @param {any} decision */
function tellLate(record, asked, approved, decision) {
  const done = (/** @type {boolean} */ value) => (value ? "approved" : "denied");
  const words = `You ${done(approved)} ${asked.toolName}, but ${decision.who} had ${done(decision.approved)} it at ${clock(decision.time)}, entry #${decision.serial}. That decision counts.`;
  late.value = [...late.value, { session: record.id, words }];
}

/** @param {{record: SessionRecord}} given */
export const TooLate = ({ record }) => html`<div role="alert">${late.value.filter((each) => each.session === record.id).map((each) => html`<div class="toolate row"><span class="grow"><${Safe} text=${each.words} /></span><button class="plain" aria-label="Close" onClick=${() => (late.value = late.value.filter((other) => other !== each))}>✕</button></div>`)}</div>`;

/** All arguments of a call: what the server left out is fetched first. @param {SessionRecord} record @param {any} asked @param {any} call */
function useArguments(record, asked, call) {
  const cut = call?.rawArgsText?.$cut;
  const [fetched, setFetched] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!cut) return undefined;
    let isOver = false;
    const fetchAll = async () => {
      let text = "";
      let from = 0;
      while (!isOver && from < cut.length) {
        const found = await get(`${record.path}/entries/${asked.answer}/text`, { at: cut.at, from });
        if (!found.text) break;
        text += found.text;
        from += signs(found.text);
      }
      if (!isOver && from === cut.length) setFetched(text);
    };
    fetchAll().catch((error) => setProblem(error.message));
    return () => {
      isOver = true;
    };
  }, [asked.toolCallId, cut?.length]);
  const isWhole = Boolean(call) && (!cut || fetched !== "");
  const text = cut ? fetched || "(the arguments are being fetched)" : call?.arguments ? JSON.stringify(call.arguments, null, 2) : headOf(call?.rawArgsText);
  return { text, isWhole, problem };
}

/** @param {{asked: any, call: any, record: SessionRecord, model: string, isFirst: boolean, canWrite: boolean}} given */
export function Approval({ asked, call, record, model, isFirst, canWrite }) {
  const own = `${record.path} ${asked.toolCallId}`;
  const [reason, setReason] = useStored(`${own} reason`, "");
  const [edited, setEdited] = useStored(`${own} edited`, /** @type {string | null} */ (null));
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const found = useArguments(record, asked, call);
  const decide = async (/** @type {boolean} */ approved) => {
    if (approved && !found.isWhole) return;
    setBusy(true);
    try {
      const given = edited === null || !approved ? undefined : JSON.parse(edited);
      await post(`${record.path}/${approved ? "approve" : "deny"}`, { call: asked.toolCallId, reason, who: WHO, model, arguments: given });
    } catch (error) {
      const decision = error instanceof ApiError ? error.problem.decision : null;
      if (decision) tellLate(record, asked, approved, decision);
      setProblem(decision ? "" : /** @type {Error} */ (error).message);
      void record.extend().catch(() => {});
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    if (canWrite) deciders.set(asked.toolCallId, decide);
    return () => {
      deciders.delete(asked.toolCallId);
    };
  });
  return html`<div role="group" class="approval" aria-label=${`Decision about ${plain(asked.toolName)}`}>
    <div class="row"><strong>${canWrite ? "Run this call?" : "Waits for a decision"}</strong><span class="dim grow"><code><${Safe} text=${asked.toolName} /></code> <${Safe} text=${headOf(asked.reason ?? "")} /></span><span class="dim small">asked ${clock(asked.time)}</span></div>
    ${edited === null ? html`<pre class="fence whole">${safe(found.text)}</pre>` : html`<textarea class="mono" rows="6" aria-label="Arguments as JSON" value=${edited} onInput=${(/** @type {any} */ event) => setEdited(event.target.value)}></textarea>`}
    ${problem || found.problem ? html`<p class="warn" role="alert"><${Safe} text=${problem || found.problem} /></p>` : ""}
    ${canWrite && html`<div class="row wrap"><button class="primary" disabled=${isBusy || !found.isWhole} onClick=${() => decide(true)}>Approve ${isFirst && html`<kbd>a</kbd>`}</button><button class="danger" disabled=${isBusy} onClick=${() => decide(false)}>Deny ${isFirst && html`<kbd>d</kbd>`}</button>
      <button onClick=${() => setEdited(edited === null ? found.text : null)} disabled=${!found.isWhole} aria-pressed=${edited !== null}>${edited === null ? "Edit arguments" : "Keep arguments"}</button><input class="grow" placeholder="Reason, for the model" aria-label="Reason, for the model" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)} /></div>`}</div>`;
}
