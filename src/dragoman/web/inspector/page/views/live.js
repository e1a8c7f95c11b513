// @ts-check
// Follow a run, speak, decide, stop, fork. Focus never jumps to what asks.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/libraries.js";
import { get, post } from "../api.js";
import { Approval, deciders, TooLate, WHO } from "../approval.js";
import { forking } from "../dialogs.js";
import { DayBand, EntryCard, estimate } from "../entrycard.js";
import { EntryList } from "../entrylist.js";
import { bindings, tell } from "../keys.js";
import { Follower } from "../live.js";
import { LongText } from "../longtext.js";
import { Tile, useLoaded } from "../parts.js";
import { plain, Safe, safe } from "../safetext.js";
import { VirtualList } from "../virtual.js";
import { count, modelName } from "../words.js";

/** @typedef {import("../record.js").SessionRecord} SessionRecord */

const ENDED = ["run_finished", "reset"];

/** The calls that wait for a decision, by their ids. @param {SessionRecord} record */
function openApprovals(record) {
  /** @type {Map<string, any>} */
  const open = new Map();
  for (let serial = record.length - 1; serial >= 0 && serial > record.length - 400; serial -= 1) {
    if (["model_output", ...ENDED].includes(record.kindOf(serial))) {
      for (let next = serial; next < record.length; next += 1) {
        const kind = record.kindOf(next);
        if (!["approval_asked", "approval_answered", "tool_result", "tool_finished", "run_finished"].includes(kind)) continue;
        const entry = record.entry(next)?.entry;
        if (!entry) continue;
        if (kind === "approval_asked") open.set(entry.payload.toolCallId, { ...entry.payload, serial: next, time: entry.timestamp, answer: serial });
        else if (kind === "approval_answered") open.delete(entry.payload.toolCallId);
        else if (kind === "tool_finished") open.delete(entry.payload.result.toolCallId);
        else open.clear();
      }
      break;
    }
  }
  return open;
}

/** The newest run that is open. @param {SessionRecord} record */
function openRun(record) {
  for (let serial = record.length - 1; serial >= 0; serial -= 1) {
    const kind = record.kindOf(serial);
    if (kind === "run_finished" || kind === "reset") return null;
    if (kind === "run_started") return serial;
  }
  return null;
}

/** A piece of a text that is drawn once. @param {{text: string}} given */
const Piece = ({ text }) => html`<span>${useMemo(() => safe(text), [text])}</span>`;

/** @param {{part: any}} given */
function GrowingPart({ part }) {
  if (part.kind === "text") return html`<div class="prose"><p>${part.done.map((/** @type {string} */ text, /** @type {number} */ index) => html`<${Piece} key=${index} text=${text} />`)}${safe(part.text)}</p></div>`;
  // Of thinking and of arguments the end is shown: the whole comes with the entry.
  const end = (part.done[part.done.length - 1] ?? "") + part.text;
  if (part.kind === "thinking") return html`<p class="thought">${part.done.length > 1 ? "… " : ""}${safe(end)}</p>`;
  return html`<div class="toolcard"><div class="toolhead"><strong><${Safe} text=${part.name} /></strong></div><pre class="pad">${part.done.length > 1 ? "… " : ""}${safe(end)}</pre></div>`;
}

/** @param {{follower: Follower, model: string | null, isLeft: boolean}} given */
function UnderWay({ follower, model, isLeft }) {
  const parts = follower.parts.value;
  if (!parts.length) return null;
  return html`<div class="line underway"><span class="serial mono">…</span><article class="entry output"><header><${Tile} model=${model} /><strong><${Safe} text=${modelName(model)} /></strong><span class=${`small ${isLeft ? "warn" : "dim"}`}>${isLeft ? "broken off: the rest of this answer was not recorded" : "answers now"}</span></header>
    ${parts.map((part, index) => html`<${GrowingPart} key=${index} part=${part} />`)}</article></div>`;
}

/** What a screen reader is told of a growing answer. @param {{follower: Follower}} given */
const Spoken = ({ follower }) => html`<div class="hidden" aria-live="polite">${follower.sentences.value.map(({ number, text }) => html`<p key=${number}>${plain(text)}</p>`)}</div>`;

const TONES = /** @type {Record<string, string>} */ ({ running: "ok", "waits for approval": "warn", "left open": "warn" });

/** What happens in a session now. @param {SessionRecord} record */
function statusOf(record) {
  const run = openRun(record);
  const approvals = openApprovals(record);
  const { info } = record;
  const isSeen = run !== null && info?.entries > run; // by the server, when it said whether a process has the run
  const without = info?.isRequested ? "waits for a worker" : "left open";
  const status = run === null ? "no run" : approvals.size ? "waits for approval" : isSeen && !info.isRunning ? without : "running";
  return { run, approvals, status, isLeft: status === "left open", tone: TONES[status] ?? "plain" };
}

/** Why nothing happens in a run that no process has, and what a person can do. @param {{record: SessionRecord}} given */
function LeftOpen({ record }) {
  const canAsk = record.canWrite() && record.info?.hasAgent;
  const isDecided = record.kindOf(record.length - 1) === "approval_answered";
  const said = isDecided ? "Left open: the decision is recorded. The process that has the run's tools carries it on." : "Left open: its process is gone.";
  const next = canAsk ? "Say something to go on from here, or start its own process again." : "It goes on when its own process is started again.";
  return html`<div class="leftopen" role="status">${said}${isDecided ? "" : ` ${next}`}</div>`;
}

/** @typedef {ReturnType<typeof statusOf>} Status */

/** @param {string} state */
const inWords = (state) => (state === "lost" ? "connection lost, trying again" : state);

/** How the page follows, and since when it does not. @param {{follower: Follower}} given */
function Following({ follower }) {
  const state = follower.state.value;
  const [behind, setBehind] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setBehind(follower.lostAt ? Math.round((Date.now() - follower.lostAt) / 1000) : 0), 1000);
    return () => clearInterval(timer);
  }, [follower]);
  const isLost = state === "lost";
  return html`<span class=${`grow ${["lost", "stopped", "paused"].includes(state) ? "warn" : "ok"}`}><span aria-hidden="true">● </span>${inWords(state)}${isLost && html`<span aria-hidden="true">, ${behind} s behind</span>`}</span>
    ${state === "paused" ? html`<button onClick=${() => follower.start()}>Follow</button>` : state === "following" ? html`<button onClick=${() => follower.pause()}>Pause</button>` : ""}`;
}

/** @param {{record: SessionRecord, follower: Follower, now: Status, chosen: number, canWrite: boolean}} given */
function Now({ record, follower, now, chosen, canWrite }) {
  const { info } = record;
  const { run, approvals, status, tone } = now;
  const others = Math.max((info?.followers ?? 0) - (follower.state.value === "following" ? 1 : 0), 0);
  const fork = () => {
    forking.value = { session: record.id, serial: chosen, newest: record.length - 1, view: "live" };
  };
  return html`<aside class="panel now" aria-label="Now"><div class="section row"><h2 class="grow">Now</h2><span class=${`chip ${tone}`}>${status}</span></div>
    <dl class="section facts"><dt>Run</dt><dd class="mono">${run === null ? "none open" : html`began at #${run}`}</dd><dt>Owner</dt><dd><${Safe} text=${info?.owner ?? (info?.isRunning ? "this server" : "no process")} /></dd><dt>Waits for</dt><dd>${approvals.size ? [...approvals.values()].map((asked) => html`<code><${Safe} text=${asked.toolName} /></code> `) : "nothing"}</dd><dt>Newest</dt><dd class="mono">${record.length ? `#${record.length - 1}` : "none"}</dd><dt>Reader</dt><dd><${Safe} text=${WHO} />; the run continues without you</dd></dl>
    <${Notebook} record=${record} />
    ${canWrite && record.length > 0 && html`<div class="section"><p class="small dim">A fork ends at the chosen entry. This session is left as it is.</p><button onClick=${fork}>Fork from #${chosen}</button></div>`}
    <div class="section"><p class="label">Also following</p><p>${others === 0 ? "no other browser" : count(others, "other browser")}</p></div></aside>`;
}

/** @param {{record: SessionRecord, now: Status, prompt: any, model: string, setModel: (model: string) => void, onSent: () => void, onStop: () => void}} given */
function Composer({ record, now: { run, isLeft }, prompt, model, setModel, onSent, onStop }) {
  const [text, setText] = useState("");
  const models = useLoaded(() => get("api/models"), []).value?.models ?? [];
  const send = async () => {
    if (!text.trim()) return;
    if (await act(record, "input", { text, model })) setText("");
    onSent();
  };
  const typed = (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && !event.shiftKey && (event.preventDefault(), send());
  return html`<div class="composer"><textarea ref=${prompt} rows="2" aria-label="Say something" placeholder=${run === null ? "Say something; a run begins" : isLeft ? "Say something; the run goes on" : "Say something to the run; it is read before its next call"} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} onKeyDown=${typed}></textarea>
    <div class="row wrap"><input list="models" class="modelchoice" aria-label="Model" placeholder="provider:model" value=${model} onInput=${(/** @type {any} */ event) => setModel(event.target.value)} /><datalist id="models">${models.map((/** @type {string} */ name) => html`<option value=${name}></option>`)}</datalist><span class="grow"></span>
      ${run !== null && html`<button class="danger" onClick=${onStop}>■ Stop <kbd>esc</kbd></button>`}<button class="primary" disabled=${!text.trim()} onClick=${send}>Send <kbd>↵</kbd></button></div></div>`;
}

/** Post an action, and tell what went wrong. @param {SessionRecord} record @param {string} name @param {any} body */
async function act(record, name, body) {
  try {
    const done = await post(`${record.path}/${name}`, body);
    if (done.problem) tell(done.problem);
    return done;
  } catch (error) {
    tell(/** @type {Error} */ (error).message);
    return null;
  }
}

/** The serial that is chosen: the newest, until the reader chooses another. @param {SessionRecord} record @returns {[number, (serial: number) => void]} */
function useChosen(record) {
  const [chosen, setChosen] = useState(record.length - 1);
  const length = useRef(record.length);
  useEffect(() => {
    const newest = length.current - 1;
    length.current = record.length;
    setChosen((old) => (old === newest ? record.length - 1 : old));
  }, [record, record.length]);
  return [chosen, setChosen];
}

/** @param {{record: SessionRecord, theme: string}} given */
export function LiveView({ record }) {
  void record.version.value;
  const follower = useMemo(() => new Follower(record), [record]);
  const reading = useRef(/** @type {any} */ (null));
  const prompt = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [model, setModel] = useState(record.lastModel() ?? "");
  const [chosen, setChosen] = useChosen(record);
  useEffect(() => {
    follower.start();
    reading.current?.toEnd();
    return () => follower.stop();
  }, [follower]);
  useEffect(() => void record.refresh(), [record.length]);
  const cards = useMemo(() => record.cards(), [record, record.length]);
  const listed = useMemo(() => record.listed(), [record, record.length]);
  const now = statusOf(record);
  const { approvals, run } = now;
  const canWrite = record.canWrite();
  const state = follower.state.value;
  const stop = () => void (run !== null && act(record, "stop", {}));
  const [first] = approvals.values();
  // No key decides about a call that is not on screen: the page shows it first.
  const decide = (/** @type {boolean} */ approved) => {
    if (!first) return;
    const found = deciders.get(first.toolCallId);
    if (found) found(approved);
    else reading.current?.scrollTo(first.answer, "middle");
  };
  useLayoutEffect(() => {
    bindings.value = [
      ...(canWrite ? [
        { keys: ["a"], words: "approve", short: "approve", run: () => decide(true) },
        { keys: ["d"], words: "deny", short: "deny", run: () => decide(false) },
        { keys: ["Escape"], words: "stop the run", short: "stop", run: stop },
        { keys: ["i"], words: "write a prompt", short: "prompt", run: () => prompt.current?.focus() },
      ] : []),
      { keys: ["G", "End"], words: "newest entry", short: "newest", run: () => reading.current?.toEnd() },
    ];
  });
  const below = (/** @type {string} */ callId) => {
    const asked = approvals.get(callId);
    if (!asked) return null;
    const parts = record.entry(asked.answer)?.entry.payload.message.parts ?? [];
    const place = parts.findIndex((/** @type {any} */ part) => part.payload?.toolCallId === callId);
    return html`<${Approval} key=${callId} asked=${asked} place=${place} record=${record} model=${model} isFirst=${asked === first} canWrite=${canWrite} />`;
  };
  const choose = (/** @type {number} */ serial) => (setChosen(serial), reading.current?.scrollTo(record.owner[serial], "middle"));
  const item = (/** @type {number} */ key) => html`<${DayBand} record=${record} serial=${key} /><div class="line"><span class="serial mono">#${key}</span><${EntryCard} record=${record} serial=${key} below=${below} /></div>`;
  return html`<div class="liveview" data-follow=${state}>
    <div class="side"><div class="tools row"><${Following} follower=${follower} /></div>
      <${EntryList} record=${record} serials=${listed} chosen=${chosen} hits=${NO_HITS} onChoose=${choose} /></div>
    <div class="middle"><div class="livebar row"><${Following} follower=${follower} /></div>${follower.problem.value && html`<div class="trouble" role="alert"><${Safe} text=${follower.problem.value} /></div>`}
      ${record.length === 0 && html`<div class="note"><p>The session has no entry yet. ${canWrite ? "What you say here begins it." : "Its entries will stand here as they come."}</p></div>`}
      <${VirtualList} keys=${cards} label="Entries, as they come" class="reading" handle=${reading} sticky estimate=${(/** @type {number} */ key) => estimate(record, key)} item=${item} />
      <div class="growing"><${UnderWay} follower=${follower} model=${record.lastModel()} isLeft=${now.isLeft} /></div><${Spoken} follower=${follower} />
      ${approvals.size > 0 && html`<div class="hidden" role="alert">A call waits for a decision: ${[...approvals.values()].map((asked) => plain(asked.toolName)).join(", ")}</div>`}
      <${TooLate} record=${record} />
      ${now.isLeft && html`<${LeftOpen} record=${record} />`}
      <div class="hidden" role="status">${inWords(state)}</div>
      ${canWrite && html`<${Composer} record=${record} now=${now} prompt=${prompt} model=${model} setModel=${setModel} onSent=${() => reading.current?.toEnd()} onStop=${stop} />`}</div>
    <${Now} record=${record} follower=${follower} now=${now} chosen=${chosen} canWrite=${canWrite} /></div>`;
}
const NO_HITS = new Set();

/** @param {{record: SessionRecord}} given */
function Notebook({ record }) {
  const kind = record.kinds.indexOf("notebook");
  const serial = kind < 0 ? -1 : record.kind.lastIndexOf(kind);
  const entry = serial < 0 ? undefined : record.entry(serial);
  if (!entry) return null;
  return html`<div class="section"><div class="row"><span class="label grow">Notebook</span><span class="mono dim small">#${serial}</span></div><div class="notebook"><${LongText} value=${entry.entry.payload.content} path=${record.path} serial=${serial} name="notebook" lines=${20} /></div></div>`;
}
