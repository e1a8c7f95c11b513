// @ts-check
// A call that waits for a decision: its arguments as they will run, never cut, and the decision. A decision that comes second is told so.
import { html, signal, useEffect, useState } from "./vendor/libraries.js";
import { ApiError, post, wholeText } from "./api.js";
import { useStored } from "./stored.js";
import { headOf } from "./longtext.js";
import { Trouble, useLoaded } from "./parts.js";
import { plain, Safe, safe, visibleJson } from "./safetext.js";
import { tell } from "./keys.js";
import { clock, moment } from "./words.js";

/** @typedef {import("./record.js").SessionRecord} SessionRecord */

export const WHO = (() => {
  const known = localStorage.getItem("dragoman-who") ?? `browser ${Math.random().toString(36).slice(2, 6)}`;
  localStorage.setItem("dragoman-who", known);
  return known;
})();

/** The decisions that keys reach, by their calls: those whose arguments are in the page. @type {Map<string, (approved: boolean) => void>} */
export const deciders = new Map();

/** Decisions that came second: their card has gone by then. */
export const late = signal(/** @type {{session: string, words: string}[]} */ ([]));

/** @param {SessionRecord} record @param {any} asked @param {boolean} approved @param {any} decision */
function tellLate(record, asked, approved, decision) {
  const done = (/** @type {boolean} */ value) => (value ? "approved" : "denied");
  const words = `You ${done(approved)} ${asked.toolName}, but ${decision.who} had ${done(decision.approved)} it on ${moment(decision.time)}, entry #${decision.serial}. That decision counts.`;
  late.value = [...late.value, { session: record.id, words }];
}

/** @param {{record: SessionRecord}} given */
export const TooLate = ({ record }) => html`<div role="alert">${late.value.filter((each) => each.session === record.id).map((each) => html`<div class="toolate row"><span class="grow"><${Safe} text=${each.words} /></span><button class="plain" aria-label="Close" onClick=${() => (late.value = late.value.filter((other) => other !== each))}>✕</button></div>`)}</div>`;

/** Who decides, with which words. @typedef {{asked: any, place: number, record: SessionRecord, model: string, isFirst: boolean, canWrite: boolean}} Given */

/**
 * The arguments of a call as the server will run them, in its own JSON: a browser rounds long numbers, and entries come cut.
 * Characters that cannot be seen are written as JSON's escapes, also where the arguments are edited.
 * @param {SessionRecord} record @param {any} asked @param {number} place of the call among the parts of its answer
 */
function useArguments(record, asked, place) {
  const found = useLoaded(() => (place < 0 ? Promise.resolve("") : wholeText(record.path, asked.answer, `/payload/message/parts/${place}/payload/arguments`)), [record, asked.answer, place]);
  return { text: visibleJson(found.value ?? ""), isWhole: Boolean(found.value), problem: found.problem, reload: found.reload };
}

/** Record a decision. @param {Given} given @param {boolean} approved @param {string} reason @param {string | undefined} edited the arguments that were edited, as JSON */
async function sendDecision(given, approved, reason, edited) {
  const { asked, model } = given;
  const done = await post(`${given.record.path}/${approved ? "approve" : "deny"}`, { call: asked.toolCallId, reason, who: WHO, model, arguments: edited });
  if (done.problem) tell(`The decision is recorded. ${done.problem}`);
}

/** @param {Given} given */
export function Approval(given) {
  const { asked, record: session, place, isFirst, canWrite } = given;
  const own = `${session.path} ${asked.toolCallId}`;
  const [reason, setReason] = useStored(`${own} reason`, "");
  const [edited, setEdited] = useStored(`${own} edited`, /** @type {string | null} */ (null));
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const found = useArguments(session, asked, place);
  const decide = async (/** @type {boolean} */ approved) => {
    if (isBusy || (approved && !found.isWhole)) return;
    setBusy(true);
    try {
      await sendDecision(given, approved, reason, approved && edited !== null && edited !== found.text ? edited : undefined);
    } catch (error) {
      const decision = error instanceof ApiError ? error.problem.decision : null;
      if (decision) tellLate(session, asked, approved, decision);
      setProblem(decision ? "" : /** @type {Error} */ (error).message);
      void session.extend().catch(() => {});
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
    <div class="row"><strong>${canWrite ? "Run this call?" : "Waits for a decision"}</strong><span class="dim grow"><code><${Safe} text=${asked.toolName} /></code> <${Safe} text=${headOf(asked.reason ?? "")} /></span><time class="dim small" datetime=${asked.time} title=${moment(asked.time)}>asked ${clock(asked.time)}</time></div>
    ${found.problem ? html`<${Trouble} problem=${found.problem} retry=${found.reload} />` : edited === null ? html`<pre class="fence whole">${found.isWhole ? safe(found.text) : html`<span class="dim">(loading the arguments)</span>`}</pre>` : html`<textarea class="mono" rows=${Math.min(Math.max(edited.split("\n").length, 4), 20)} aria-label="Arguments as JSON" value=${edited} onInput=${(/** @type {any} */ event) => setEdited(event.target.value)}></textarea>`}
    ${problem && html`<p class="warn" role="alert"><${Safe} text=${problem} /></p>`}
    ${canWrite && html`<div class="row wrap"><button class="primary" disabled=${isBusy || !found.isWhole} onClick=${() => decide(true)}>Approve ${isFirst && html`<kbd>a</kbd>`}</button><button class="danger" disabled=${isBusy} onClick=${() => decide(false)}>Deny ${isFirst && html`<kbd>d</kbd>`}</button>
      <button onClick=${() => setEdited(edited === null ? found.text : null)} disabled=${!found.isWhole} aria-pressed=${edited !== null}>${edited === null ? "Edit arguments" : "Discard changes"}</button><input class="grow" placeholder="Reason, for the model" aria-label="Reason, for the model" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)} /></div>`}</div>`;
}
