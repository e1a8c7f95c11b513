// @ts-check
// One session as the page holds it: the outline of all entries, and the entries themselves by pages, as they are needed.
import { signal } from "./vendor/libraries.js";
import { ApiError, get, sessionPath } from "./api.js";
import { day } from "./words.js";

const PAGE = 60;
const MOST_PAGES = 60;
export const FLAGS = { failed: 1, cut: 2, picture: 4, calls: 8, injected: 16, thinks: 32 };
/** Facts that their result, or their answer, tells too. */
const FOLDED = new Set(["tool_started", "tool_finished"]);

/** @typedef {{line: string, size: number, entry: any}} Loaded */

export class SessionRecord {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.path = sessionPath(id);
    /** @type {string[]} */ this.kinds = [];
    /** @type {string[]} */ this.models = [];
    /** @type {number[]} */ this.kind = [];
    /** @type {number[]} */ this.time = [];
    /** @type {number[]} */ this.tokens = [];
    /** @type {number[]} */ this.model = [];
    /** @type {number[]} */ this.flags = [];
    /** @type {number | null} */ this.brokenAt = null;
    this.problem = "";
    /** Grows with every page and every new entry. */
    this.version = signal(0);
    /** Says that the session was erased. */
    this.gone = signal("");
    /** @type {Map<number, Loaded[] | Promise<void>>} */ this.pages = new Map();
    /** Why a page could not be fetched. @type {Map<number, any>} */ this.failed = new Map();
    /** @type {any} */ this.info = null;
    /** @type {number[]} */ this.owner = []; // for each entry, the serial of the card that shows it
  }

  get length() {
    return this.kind.length;
  }

  async load() {
    const [info] = await Promise.all([get(this.path), this.extend()]);
    this.info = info;
  }

  /** What is wrong with the record itself. @returns {string} empty if nothing is */
  trouble() {
    return this.brokenAt === null ? "" : `The record is broken at #${this.brokenAt}: ${this.problem}. Everything before it is shown.`;
  }

  /** Whether the page can write to the session: nothing is appended to a damaged or an erased one. */
  canWrite() {
    return !this.info?.isReadOnly && this.brokenAt === null && !this.gone.value;
  }

  /** Ask what is new, so that no view goes stale; an erased session is told, and what was read of it stays. */
  async refresh() {
    try {
      const info = await get(this.path);
      for (const [number, error] of this.failed) if (!(error.status >= 400 && error.status < 500)) this.failed.delete(number), this.version.value += 1;
      const isOther = JSON.stringify(info) !== JSON.stringify(this.info);
      this.info = info;
      if (info.entries > this.length && this.brokenAt === null) await this.extend();
      else if (isOther) this.version.value += 1;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) return;
      this.gone.value = `${error.message}. What is shown was read before.`;
    }
  }

  /** The model that answered last. @returns {string | null} */
  lastModel() {
    for (let serial = this.length - 1; serial >= 0; serial -= 1) if (this.model[serial] >= 0) return this.modelOf(serial);
    return null;
  }

  /** Take in what is new in the outline. */
  async extend() {
    const from = this.length;
    const found = await get(`${this.path}/outline`, { from });
    if (found.first !== this.length) return; // two at once
    this.kinds = found.kinds;
    this.models = found.models;
    for (const name of /** @type {const} */ (["kind", "time", "tokens", "model", "flags"])) {
      const column = this[name];
      for (const value of found[name]) column.push(value);
    }
    this.brokenAt = found.brokenAt;
    this.problem = found.problem;
    if (from < this.length && from % PAGE) this.pages.delete(Math.floor(from / PAGE));
    this.place(from);
    this.version.value += 1;
  }

  /** Say which card shows each entry: results stand in the card of their answer. @param {number} from */
  place(from) {
    let answer = -1;
    for (let serial = from - 1; serial >= 0 && answer < 0; serial -= 1) {
      const kind = this.kindOf(serial);
      if (kind === "model_output" && this.flags[serial] & FLAGS.calls) answer = serial;
      else if (["tool_result", "model_input", "model_output", "reset"].includes(kind)) break;
    }
    for (let serial = from; serial < this.length; serial += 1) {
      const kind = this.kindOf(serial);
      if (kind === "model_output" && this.flags[serial] & FLAGS.calls) answer = serial;
      else if (kind === "model_input" || kind === "model_output" || kind === "reset") answer = -1;
      const isInside = answer >= 0 && (FOLDED.has(kind) || kind === "tool_result");
      this.owner[serial] = isInside ? answer : serial;
      if (kind === "tool_result") answer = -1;
    }
  }

  /** @param {number} serial */
  kindOf(serial) {
    return this.kinds[this.kind[serial]] ?? "";
  }

  /** @param {number} serial @returns {string | null} */
  modelOf(serial) {
    return this.model[serial] >= 0 ? this.models[this.model[serial]] : null;
  }

  /** @param {number} serial @returns {boolean} whether the list leaves it out */
  isFolded(serial) {
    return FOLDED.has(this.kindOf(serial));
  }

  /** The entries that have a card of their own. */
  cards() {
    return this.owner.flatMap((owner, serial) => (owner === serial ? [serial] : []));
  }

  /** The entries that the list names. @param {(record: SessionRecord, serial: number) => boolean} [fits] */
  listed(fits = () => true) {
    return this.kind.flatMap((_, serial) => (!this.isFolded(serial) && fits(this, serial) ? [serial] : []));
  }

  /** @param {string} kind @param {number} from @param {1 | -1} by @returns {number | null} the next entry of a kind from a serial on */
  find(kind, from, by) {
    for (let serial = from; serial >= 0 && serial < this.length; serial += by) if (this.kindOf(serial) === kind) return serial;
    return null;
  }

  /** Whether the entries are of several days. */
  hasDays() {
    const [first, last] = [this.time.find((time) => time > 0), this.time.findLast((time) => time > 0)];
    return day(first) !== day(last);
  }

  /** The day that begins with a card. @param {number} serial */
  dayAt(serial) {
    const time = this.time[serial];
    if (!time || !this.hasDays()) return "";
    let before = serial - 1;
    while (before >= 0 && (this.owner[before] !== before || !this.time[before])) before -= 1;
    return before >= 0 && day(this.time[before]) === day(time) ? "" : day(time);
  }

  /** The entry if it is here; it is fetched if not. @param {number} serial @returns {Loaded | undefined} */
  entry(serial) {
    if (serial < 0 || serial >= this.length) return undefined;
    const number = Math.floor(serial / PAGE);
    if (this.failed.has(number)) return undefined;
    const page = this.pages.get(number);
    if (Array.isArray(page)) {
      return page[serial - number * PAGE] ?? (void this.fetch(number), undefined);
    }
    if (!page) void this.fetch(number);
    return undefined;
  }

  /** Why an entry is not here. @param {number} serial */
  problemOf(serial) {
    return this.failed.get(Math.floor(serial / PAGE));
  }

  /** Fetch again what could not be fetched. */
  retry() {
    this.failed.clear();
    this.version.value += 1;
  }

  /** @param {number} number */
  fetch(number) {
    const going = this.pages.get(number);
    if (going instanceof Promise) return going;
    const count = Math.min(PAGE, this.length - number * PAGE);
    const fetching = get(`${this.path}/entries`, { from: number * PAGE, count })
      .then((found) => {
        this.pages.delete(number);
        this.pages.set(number, found.entries);
        for (const key of this.pages.keys()) {
          if (this.pages.size <= MOST_PAGES) break;
          if (Array.isArray(this.pages.get(key)) && key !== number) this.pages.delete(key);
        }
        this.version.value += 1;
      })
      .catch((error) => {
        this.pages.delete(number);
        this.failed.set(number, error);
        this.version.value += 1;
      });
    this.pages.set(number, fetching);
    return fetching;
  }

  /** The call that an entry after it speaks of. @param {number} serial @param {string} callId */
  callOf(serial, callId) {
    for (let before = serial - 1; before >= Math.max(serial - 400, 0); before -= 1) {
      if (this.kindOf(before) !== "model_output" || !(this.flags[before] & FLAGS.calls)) continue;
      const parts = this.entry(before)?.entry.payload.message.parts ?? [];
      const found = parts.find((/** @type {any} */ part) => part.kind === "tool_call" && part.payload.toolCallId === callId);
      if (found) return { call: found.payload, serial: before };
    }
    return null;
  }

  /** What was decided about an answer's calls, by their ids. @param {number} serial */
  decisionsOf(serial) {
    /** @type {Map<string, any>} */
    const found = new Map();
    for (let next = serial + 1; next < Math.min(this.length, serial + 400); next += 1) {
      const kind = this.kindOf(next);
      if (["model_output", "model_input", "reset"].includes(kind)) break;
      const entry = kind === "approval_answered" ? this.entry(next)?.entry : null;
      if (entry) found.set(entry.payload.toolCallId, entry.payload);
    }
    return found;
  }

  /** The results of an answer's calls, by their ids. @param {number} serial */
  resultsOf(serial) {
    /** @type {Map<string, {result: any, serial: number}>} */
    const found = new Map();
    for (let next = serial + 1; next < Math.min(this.length, serial + 400); next += 1) {
      const kind = this.kindOf(next);
      if (kind === "model_output" || kind === "model_input" || kind === "reset") break;
      if (kind !== "tool_result" && kind !== "tool_finished") continue;
      const loaded = this.entry(next);
      const results = kind === "tool_result" ? loaded?.entry.payload.results : [loaded?.entry.payload.result];
      for (const result of results ?? []) if (result) found.set(result.toolCallId, { result, serial: next });
      if (kind === "tool_result") break;
    }
    return found;
  }
}
