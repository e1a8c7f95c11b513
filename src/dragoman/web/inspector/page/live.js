// @ts-check
// A session as it grows: server-sent events, the answer under way, and how far behind the page is.
import { signal } from "./vendor/libraries.js";
import { address, ApiError, get } from "./api.js";

/** @typedef {{kind: string, payload: any}} Delta */

export class Follower {
  /** @param {import("./record.js").SessionRecord} record */
  constructor(record) {
    this.record = record;
    /** The parts of the answer under way. */
    this.parts = signal(/** @type {any[]} */ ([]));
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

  /** The server refused to be followed: it says why, or it is tried again. */
  lose() {
    this.stopSource();
    const again = () => setTimeout(() => this.isOver || this.source || this.start(), 2000);
    get(this.record.path).then(again, (error) => {
      if (!(error instanceof ApiError) || ![401, 404].includes(error.status)) return again();
      if (error.status === 404) this.problem.value = error.message; // the page says all else above its views
      this.stop();
    });
  }

  /** The reader wants no more for now; `start` goes on from there. */
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

  /** @param {any} loaded */
  take(loaded) {
    if (["model_output", "interruption", "run_started", "run_finished", "takeover"].includes(loaded.entry.kind)) this.parts.value = [];
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.record.extend().catch(() => {}), 40);
  }

  /** @param {Delta} delta */
  hear(delta) {
    const { kind, payload } = delta;
    if (kind === "start") this.parts.value = [];
    else if (kind === "text" || kind === "thinking") this.add(kind, payload.textDelta ?? "");
    else if (kind === "tool_call_start") this.parts.value = [...this.parts.value, { kind: "call", name: payload.toolName, text: "" }];
    else if (kind === "tool_call_args") this.add("call", payload.argsTextDelta ?? "");
  }

  /** @param {string} kind @param {string} text */
  add(kind, text) {
    const parts = this.parts.value;
    const last = parts[parts.length - 1];
    if (last?.kind === kind) this.parts.value = [...parts.slice(0, -1), { ...last, text: last.text + text }];
    else this.parts.value = [...parts, { kind, text }];
  }
}
