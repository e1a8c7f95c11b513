// @ts-check
// A session as it grows: server-sent events, the answer under way, and how far behind the page is.
import { signal } from "./vendor/libraries.js";
import { address, ApiError, get } from "./api.js";
import { headOf } from "./longtext.js";

const PIECE = 2000; // characters
const MOST_SENTENCES = 20;

/** @typedef {{kind: string, payload: any}} Delta */

export class Follower {
  /** @param {import("./record.js").SessionRecord} record */
  constructor(record) {
    this.record = record;
    /** The parts of the answer under way, each with its text in pieces. */
    this.parts = signal(/** @type {any[]} */ ([]));
    /** The newest sentences of the answer under way, each once and whole. */
    this.sentences = signal(/** @type {{number: number, text: string}[]} */ ([]));
    this.unspoken = "";
    this.heard = 0; // characters of the answer
    this.state = signal("connecting");
    this.lostAt = 0;
    this.problem = signal("");
    /** @type {EventSource | null} */ this.source = null;
    this.timer = 0;
    this.isOver = false;
  }

  start() {
    if (this.state.value !== "lost") this.state.value = "connecting";
    const source = (this.source = new EventSource(address(`${this.record.path}/events`, { from: this.record.length })));
    source.addEventListener("open", () => {
      this.state.value = "following";
      this.lostAt = 0;
    });
    source.addEventListener("error", () => {
      // The browser tries again by itself and says where it was. Nothing is cleared.
      this.state.value = "lost";
      this.lostAt = this.lostAt || Date.now();
      if (source.readyState === EventSource.CLOSED && !this.isOver) this.lose();
    });
    source.addEventListener("entry", (event) => this.take(JSON.parse(/** @type {MessageEvent} */ (event).data)));
    source.addEventListener("delta", (event) => this.hear(JSON.parse(/** @type {MessageEvent} */ (event).data)));
    source.addEventListener("failed", (event) => {
      this.problem.value = JSON.parse(/** @type {MessageEvent} */ (event).data).message;
      this.stop();
    });
  }

  /** The server closed the connection: ask it why, or try again. */
  lose() {
    this.stopSource();
    const again = () => setTimeout(() => this.isOver || this.source || this.start(), 2000);
    get(this.record.path).then(again, (error) => {
      if (!(error instanceof ApiError) || ![401, 404].includes(error.status)) return again();
      if (error.status === 404) this.problem.value = error.message; // the page says all else above its views
      this.stop();
    });
  }

  /** Stop until `start`, which continues at the same entry. */
  pause() {
    this.stopSource();
    this.state.value = "paused";
  }

  stopSource() {
    this.source?.close();
    this.source = null;
  }

  stop() {
    this.isOver = true;
    this.stopSource();
    this.state.value = "stopped";
    clearTimeout(this.timer);
  }

  /** An entry has come, which ends what was under way. @param {{entry: {kind: string, serial: number}}} seen */
  take({ entry: { kind, serial } }) {
    if (kind === "model_output" && this.heard) void this.speakRest(serial).catch(() => {});
    if (["model_output", "interruption", "run_started", "run_finished", "takeover"].includes(kind)) this.clear();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.record.extend().catch(() => {}), 40);
  }

  /** Speak the end of an answer from its entry: the last deltas may not have come. @param {number} serial */
  async speakRest(serial) {
    const spoken = this.heard - this.unspoken.length;
    this.unspoken = "";
    const { entries } = await get(`${this.record.path}/entries`, { from: serial, count: 1 });
    const parts = entries[0]?.entry.payload.message?.parts ?? [];
    const text = parts.map((/** @type {any} */ part) => (part.kind === "text" ? headOf(part.payload.text) : "")).join("");
    this.say(text.slice(spoken));
  }

  /** @param {Delta} delta */
  hear(delta) {
    const { kind, payload } = delta;
    if (kind === "start") this.clear(), void this.record.refresh(); // who answers can be another process
    else if (kind === "text" || kind === "thinking") this.add(kind, payload.textDelta ?? "");
    else if (kind === "tool_call_start") this.parts.value = [...this.parts.value, { kind: "call", name: payload.toolName, done: [], text: "" }];
    else if (kind === "tool_call_args") this.add("call", payload.argsTextDelta ?? "");
  }

  /** The answer under way is over. */
  clear() {
    this.parts.value = [];
    this.speak("\n");
    this.heard = 0;
  }

  /** Speak the sentences that a text ends. @param {string} text */
  speak(text) {
    this.unspoken += text;
    this.heard += text.length;
    const end = this.unspoken.length > PIECE ? this.unspoken : /^[^]*(?:[.!?:](?=\s)|\n)/.exec(this.unspoken)?.[0] ?? "";
    this.unspoken = this.unspoken.slice(end.length);
    this.say(end);
  }

  /** @param {string} text */
  say(text) {
    const number = (this.sentences.value.at(-1)?.number ?? 0) + 1;
    if (text.trim()) this.sentences.value = [...this.sentences.value.slice(1 - MOST_SENTENCES), { number, text: text.trim() }];
  }

  /** @param {string} kind @param {string} text */
  add(kind, text) {
    if (kind === "text") this.speak(text);
    const parts = this.parts.value;
    const last = parts[parts.length - 1];
    if (last?.kind !== kind) this.parts.value = [...parts, { kind, ...grown([], text) }];
    else this.parts.value = [...parts.slice(0, -1), { ...last, ...grown(last.done, last.text + text) }];
  }
}

/** A text as pieces that change no more and its end, so that a delta does not draw all of a long answer again.
 * @param {string[]} done @param {string} text @returns {{done: string[], text: string}} */
function grown(done, text) {
  const end = text.length > PIECE ? text.lastIndexOf("\n", text.length - 2) + 1 || text.lastIndexOf(" ") + 1 : 0;
  return end ? { done: [...done, text.slice(0, end)], text: text.slice(end) } : { done, text };
}
