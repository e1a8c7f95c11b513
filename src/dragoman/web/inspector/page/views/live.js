// @ts-check
// Follow a run, speak, decide, stop, fork. Focus never jumps to what asks.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/libraries.js";
import { get, post } from "../api.js";
import { Approval, deciders, TooLate, WHO } from "../approval.js";
import { EntryCard, estimate } from "../entrycard.js";
import { EntryList } from "../entrylist.js";
import { bindings, tell } from "../keys.js";
import { Follower } from "../live.js";
import { headOf } from "../longtext.js";
import { Tile } from "../parts.js";
import { go, link } from "../router.js";
import { plain, Safe, safe } from "../safetext.js";
import { VirtualList } from "../virtual.js";
import { modelName } from "../words.js";

/** @typedef {import("../record.js").SessionRecord} SessionRecord */

const ENDED = ["run_finished", "reset"];

/** What the run waits for: calls that were asked about and not decided. @param {SessionRecord} record */
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

/** @param {{follower: Follower, model: string | null}} given */
function UnderWay({ follower, model }) {
  const parts = follower.parts.value;
  if (!parts.length) return null;
  return html`<div class="line underway"><span class="serial mono">…</span><article class="entry output"><header><${Tile} model=${model} /><strong><${Safe} text=${modelName(model)} /></strong><span class="dim small">answers now</span></header>
    ${parts.map((part) => (part.kind === "thinking" ? html`<p class="thought">${safe(part.text.slice(-2000))}</p>` : part.kind === "call" ? html`<div class="toolcard"><div class="toolhead"><strong><${Safe} text=${part.name} /></strong></div><pre class="pad">${safe(part.text.slice(-4000))}</pre></div>` : html`<div class="prose"><p>${safe(part.text)}</p></div>`))}</article></div>`;
}

/** @param {{record: SessionRecord, theme: string}} given */
export function LiveView({ record }) {
  void record.version.value;
  const follower = useMemo(() => new Follower(record), [record]);
  const [behind, setBehind] = useState(0);
  const reading = useRef(/** @type {any} */ (null));
  const prompt = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [text, setText] = useState("");
  const [models, setModels] = useState(/** @type {string[]} */ ([]));
  const [model, setModel] = useState(record.lastModel() ?? "");
  const [forkName, setForkName] = useState("");
  const [chosen, setChosen] = useState(record.length - 1);
  useEffect(() => {
    follower.start();
    reading.current?.toEnd();
    get("api/models").then((found) => setModels(found.models), () => {});
    const timer = setInterval(() => setBehind(follower.lostAt ? Math.round((Date.now() - follower.lostAt) / 1000) : 0), 1000);
    return () => {
      follower.stop();
      clearInterval(timer);
    };
  }, [follower]);
  useEffect(() => {
    void record.refresh();
    setChosen(record.length - 1);
  }, [record.length]);
  const cards = useMemo(() => {
    const made = [];
    for (let each = 0; each < record.length; each += 1) if (record.owner[each] === each) made.push(each);
    return made;
  }, [record, record.length]);
  const listed = useMemo(() => {
    const made = [];
    for (let each = 0; each < record.length; each += 1) if (!record.isFolded(each)) made.push(each);
    return made;
  }, [record, record.length]);
  const approvals = openApprovals(record);
  const run = openRun(record);
  const info = record.info;
  const canWrite = !info?.isReadOnly && !record.gone.value;
  const state = follower.state.value;
  const status = run === null ? "no run" : approvals.size ? "awaiting_human" : info?.isRunning || follower.parts.value.length ? "running" : "left open";
  const act = async (/** @type {string} */ name, /** @type {any} */ body) => {
    try {
      return await post(`${record.path}/${name}`, body);
    } catch (error) {
      tell(/** @type {Error} */ (error).message);
      return null;
    }
  };
  const send = async () => {
    if (!text.trim()) return;
    if (await act("input", { text, model })) setText("");
    reading.current?.toEnd();
  };
  const fork = async () => {
    const made = await act("fork", { serial: chosen, id: forkName });
    if (made) go(link(made.session, "live"));
  };
  const stop = () => run !== null && act("stop", {});
  const [first] = approvals.values();
  // Nobody decides by a key about what is not on screen: it is shown first.
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
  const newest = record.lastModel();
  const below = (/** @type {string} */ callId) => {
    const asked = approvals.get(callId);
    if (!asked) return null;
    const parts = record.entry(asked.answer)?.entry.payload.message.parts ?? [];
    const call = parts.find((/** @type {any} */ part) => part.payload?.toolCallId === callId)?.payload;
    return html`<${Approval} key=${callId} asked=${asked} call=${call} record=${record} model=${model} isFirst=${asked === first} canWrite=${canWrite} />`;
  };
  const words = state === "lost" ? `${behind} s behind, trying again` : state;
  const tone = ["lost", "stopped", "paused"].includes(state) ? "warn" : "ok";
  const others = Math.max((info?.followers ?? 0) - (state === "following" ? 1 : 0), 0);
  return html`<div class="liveview" data-follow=${state}>
    <div class="side"><div class="tools row"><span class=${`grow ${tone}`} role="status"><span aria-hidden="true">● </span>${words}</span>${state === "paused" ? html`<button onClick=${() => follower.start()}>Follow</button>` : state === "following" ? html`<button onClick=${() => follower.pause()}>Pause</button>` : ""}</div>
      <${EntryList} record=${record} serials=${listed} chosen=${chosen} hits=${NO_HITS} onChoose=${(/** @type {number} */ serial) => (setChosen(serial), reading.current?.scrollTo(record.owner[serial], "middle"))} /></div>
    <div class="middle"><div class="livebar row"><span class=${`grow ${tone}`}><span aria-hidden="true">● </span>${words}</span><span class=${`chip ${status === "awaiting_human" ? "warn" : "plain"}`}>${status}</span></div>${follower.problem.value && html`<div class="trouble" role="alert"><${Safe} text=${follower.problem.value} /></div>`}
      <${VirtualList} keys=${cards} label="Entries, as they come" class="reading" handle=${reading} sticky estimate=${(/** @type {number} */ key) => estimate(record, key)} item=${(/** @type {number} */ key) => html`<div class="line"><span class="serial mono">#${key}</span><${EntryCard} record=${record} serial=${key} below=${below} /></div>`} />
      <div class="growing" aria-live="polite"><${UnderWay} follower=${follower} model=${newest} /></div>
      ${approvals.size > 0 && html`<div class="hidden" role="alert">A call waits for a decision: ${[...approvals.values()].map((asked) => plain(asked.toolName)).join(", ")}</div>`}
      <${TooLate} record=${record} />
      ${canWrite && html`<div class="composer"><textarea ref=${prompt} rows="2" aria-label="Say something" placeholder=${run === null ? "Say something; a run begins" : "Say something to the run; it is taken up before its next call"} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && !event.shiftKey && (event.preventDefault(), send())}></textarea>
        <div class="row wrap"><input list="models" class="modelchoice" aria-label="Model" placeholder="provider:model" value=${model} onInput=${(/** @type {any} */ event) => setModel(event.target.value)} /><datalist id="models">${models.map((name) => html`<option value=${name}></option>`)}</datalist><span class="grow"></span>
          ${run !== null && html`<button class="danger" onClick=${stop}>■ Stop <kbd>esc</kbd></button>`}<button class="primary" disabled=${!text.trim()} onClick=${send}>Send <kbd>↵</kbd></button></div></div>`}</div>
    <aside class="panel now" aria-label="Now"><div class="section row"><h2 class="grow">Now</h2><span class=${`chip ${status === "awaiting_human" ? "warn" : status === "running" ? "ok" : "plain"}`}>${status}</span></div>
      <dl class="section facts"><dt>Run</dt><dd class="mono">${run === null ? "none open" : html`began at #${run}`}</dd><dt>Owner</dt><dd><${Safe} text=${info?.owner ?? (info?.isRunning ? "this server" : "nobody")} /></dd><dt>Waits for</dt><dd>${approvals.size ? [...approvals.values()].map((asked) => html`<code><${Safe} text=${asked.toolName} /></code> `) : "nothing"}</dd><dt>Newest</dt><dd class="mono">#${record.length - 1}</dd><dt>Reader</dt><dd><${Safe} text=${WHO} />; the run goes on without you</dd></dl>
      <${Notebook} record=${record} />
      ${canWrite && html`<div class="section"><p class="label">Fork from here</p><p class="small dim">A copy that ends at <span class="mono">#${chosen}</span>; this session is left as it is.</p><div class="row"><input class="grow" aria-label="Id of the fork" placeholder="a random id" value=${forkName} onInput=${(/** @type {any} */ event) => setForkName(event.target.value)} /><button onClick=${fork}>Fork</button></div></div>`}
      <div class="section"><p class="label">Also following</p><p>${others === 0 ? "nobody else" : `${others} other reader${others === 1 ? "" : "s"} in a browser`}</p></div></aside></div>`;
}
const NO_HITS = new Set();

/** @param {{record: SessionRecord}} given */
function Notebook({ record }) {
  const kind = record.kinds.indexOf("notebook");
  const serial = kind < 0 ? -1 : record.kind.lastIndexOf(kind);
  const entry = serial < 0 ? undefined : record.entry(serial);
  if (!entry) return null;
  return html`<div class="section"><div class="row"><span class="label grow">Notebook</span><span class="mono dim small">#${serial}</span></div><pre class="notebook">${safe(headOf(entry.entry.payload.content).slice(0, 2000))}</pre></div>`;
}
