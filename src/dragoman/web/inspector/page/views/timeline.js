// @ts-check
// What happened: map, list, reading view, and one entry in detail.
import { html, signal, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/libraries.js";
import { get } from "../api.js";
import { forking, goingTo } from "../dialogs.js";
import { EntryCard, estimate } from "../entrycard.js";
import { EntryPanel, previous } from "../entrypanel.js";
import { bindings, tell } from "../keys.js";
import { EntryList, FILTERS } from "../entrylist.js";
import { Minimap } from "../minimap.js";
import { Trouble } from "../parts.js";
import { go, link, route } from "../router.js";
import { VirtualList } from "../virtual.js";
import { count } from "../words.js";

/** @typedef {import("../record.js").SessionRecord} SessionRecord */

/** Search hits of the session, by the words in the address. @param {SessionRecord} record @param {string} words */
function useHits(record, words) {
  const [found, setFound] = useState(/** @type {any} */ ({ hits: [], total: 0 }));
  useEffect(() => {
    if (!words) return setFound({ hits: [], total: 0 });
    let isOver = false;
    const timer = setTimeout(() => get(`${record.path}/search`, { q: words }).then((value) => !isOver && setFound(value), () => {}), 120);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [record, words, record.length]);
  return found;
}

/** What needs all entries is asked for after the first of them are shown. */
const later = () => new Promise((done) => setTimeout(done, 400));

/** Calls by their serial, and the level of each entry at the newest one. @param {SessionRecord} record */
export function useCalls(record) {
  const [calls, setCalls] = useState(/** @type {Map<number, any>} */ (new Map()));
  useEffect(() => {
    let isOver = false;
    void later().then(() => (isOver ? undefined : get(`${record.path}/calls`).then((found) => !isOver && setCalls(new Map(found.calls.map((/** @type {any} */ call) => [call.serial, call]))), () => {})));
    return () => {
      isOver = true;
    };
  }, [record, record.length]);
  return calls;
}

/** @param {SessionRecord} record */
function useLevels(record) {
  const [levels, setLevels] = useState(/** @type {Map<number, string>} */ (new Map()));
  useEffect(() => {
    let isOver = false;
    void later().then(() => (isOver ? undefined : get(`${record.path}/calls/${record.length}`).then((found) => {
      const made = new Map();
      for (const [level, serials] of Object.entries(found.levels)) for (const serial of /** @type {number[]} */ (serials)) made.set(serial, level);
      if (!isOver) setLevels(made);
    }, () => {})));
    return () => {
      isOver = true;
    };
  }, [record, record.length]);
  return levels;
}

/** @param {{record: SessionRecord, theme: string}} given */
export function TimelineView({ record, theme }) {
  void record.version.value;
  const { serial, query } = route.value;
  const words = query.get("q") ?? "";
  const filter = query.get("kind") ?? "all";
  const found = useHits(record, words);
  const hits = useMemo(() => new Set(/** @type {number[]} */ (found.hits.map((/** @type {any} */ hit) => hit.serial))), [found]);
  const calls = useCalls(record);
  const levels = useLevels(record);
  const [chosen, setChosen] = useState(Math.min(serial ?? firstOf(record), Math.max(record.length - 1, 0)));
  const isMissing = serial !== null && serial >= record.length;
  const range = useMemo(() => signal(/** @type {[number, number]} */ ([0, 0])), []);
  const [drawer, setDrawer] = useState("");
  const reading = useRef(/** @type {any} */ (null));
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const listed = useMemo(() => {
    const fits = FILTERS[/** @type {keyof typeof FILTERS} */ (filter)]?.fits ?? FILTERS.all.fits;
    const made = [];
    for (let each = 0; each < record.length; each += 1) if (!record.isFolded(each) && fits(record, each)) made.push(each);
    return made;
  }, [record, record.length, filter]);
  const cards = useMemo(() => {
    const made = [];
    for (let each = 0; each < record.length; each += 1) if (record.owner[each] === each) made.push(each);
    return made;
  }, [record, record.length]);

  const choose = (/** @type {number} */ next, /** @type {"top" | "middle"} */ where = "middle") => {
    if (next < 0 || next >= record.length) return;
    setChosen(next);
    go(link(record.id, "timeline", next, Object.fromEntries(query)), true);
    reading.current?.scrollTo(record.owner[next] ?? next, where);
  };
  useEffect(() => {
    if (serial !== null) reading.current?.scrollTo(record.owner[chosen] ?? chosen, "middle");
  }, [record]);
  useEffect(() => {
    if (words && found.hits.length && !hits.has(chosen)) {
      const next = found.hits.find((/** @type {any} */ hit) => hit.serial >= chosen) ?? found.hits[0];
      choose(next.serial);
    }
  }, [found]);
  const setQuery = (/** @type {string} */ name, /** @type {string} */ value) => {
    const made = Object.fromEntries(query);
    if (value) made[name] = value;
    else delete made[name];
    go(link(record.id, "timeline", serial, made), true);
  };
  const step = (/** @type {number} */ by, /** @type {(serial: number) => boolean} */ fits) => {
    for (let next = chosen + by; next >= 0 && next < record.length; next += by) if (fits(next)) return choose(next);
  };
  const isListed = (/** @type {number} */ each) => !record.isFolded(each) && (FILTERS[/** @type {keyof typeof FILTERS} */ (filter)] ?? FILTERS.all).fits(record, each);
  const fork = () => {
    forking.value = { session: record.id, serial: chosen, newest: record.length - 1 };
  };
  const ask = () => {
    goingTo.value = { newest: record.length - 1, choose };
  };
  const canWrite = !record.info?.isReadOnly && !record.gone.value;
  useLayoutEffect(() => {
    const kindIs = (/** @type {string} */ kind) => (/** @type {number} */ each) => record.kindOf(each) === kind;
    bindings.value = [
      { keys: ["j", "ArrowDown"], words: "next entry", short: "entry", run: () => step(1, isListed) },
      { keys: ["k", "ArrowUp"], words: "entry before", run: () => step(-1, isListed) },
      { keys: ["J"], words: "next turn", short: "turn", run: () => step(1, kindIs("model_input")) },
      { keys: ["K"], words: "turn before", run: () => step(-1, kindIs("model_input")) },
      { keys: ["]"], words: "next model call", short: "model call", run: () => step(1, kindIs("model_output")) },
      { keys: ["["], words: "model call before", run: () => step(-1, kindIs("model_output")) },
      { keys: ["}"], words: "next epoch", run: () => step(1, kindIs("epoch")) },
      { keys: ["{"], words: "epoch before", run: () => step(-1, kindIs("epoch")) },
      { keys: ["/"], words: "search", short: "search", run: () => search.current?.focus() },
      { keys: ["n"], words: "next hit", short: "hit", run: () => step(1, (each) => hits.has(each)) },
      { keys: ["N"], words: "hit before", run: () => step(-1, (each) => hits.has(each)) },
      { keys: ["g"], words: "go to a serial", short: "go to #", run: ask },
      { keys: ["G", "End"], words: "newest entry", run: () => choose(record.length - 1) },
      { keys: ["Home"], words: "first entry", run: () => choose(0) },
      { keys: ["."], words: "next filter", short: "filter", run: () => { const names = Object.keys(FILTERS); setQuery("kind", names[(names.indexOf(filter) + 1) % names.length]); } },
      { keys: ["e"], words: "fold or unfold", short: "fold", run: () => { const first = document.querySelector(`[data-key="${record.owner[chosen]}"] button[aria-expanded]`); if (first instanceof HTMLElement) first.click(); } },
      { keys: ["c"], words: "context of the call", short: "context", run: () => go(link(record.id, "context", callAt(record, chosen))) },
      { keys: ["d"], words: "request beside the one before", short: "diff", run: () => { const call = callAt(record, chosen); if (call !== null) go(link(record.id, "diff", null, { a: previous(record, call), b: String(call) })); } },
      { keys: ["y"], words: "copy the link", run: () => void navigator.clipboard?.writeText(location.href).then(() => tell("The link is copied."), () => {}) },
      { keys: ["i"], words: "entry in detail", run: () => setDrawer(drawer === "panel" ? "" : "panel") },
      { keys: ["l"], words: "list", run: () => setDrawer(drawer === "list" ? "" : "list") },
      { keys: ["Escape"], words: "close what is open", run: () => (drawer ? setDrawer("") : words && setQuery("q", "")) },
      ...(canWrite ? [{ keys: ["f"], words: "fork from here", run: fork }] : []),
    ];
  });
  const card = useCallback(
    (/** @type {number} */ key) => html`<div class=${`line ${record.owner[chosen] === key ? "chosen" : ""}`} onClick=${(/** @type {MouseEvent} */ event) => record.owner[chosen] !== key && !(/** @type {HTMLElement} */ (event.target).closest("button, a")) && (setChosen(key), go(link(record.id, "timeline", key, Object.fromEntries(route.peek().query)), true))}><span class="serial mono">#${key}</span><${EntryCard} record=${record} serial=${key} hit=${words} calls=${calls} onOpen=${(/** @type {number} */ call) => go(link(record.id, "context", call))} /></div>`,
    [record, record.version.value, chosen, words, calls],
  );
  const nth = found.hits.findIndex((/** @type {any} */ hit) => hit.serial === chosen);
  return html`<div class=${`timeline ${drawer ? `show-${drawer}` : ""}`}>
    <${Minimap} record=${record} hits=${hits} range=${range} levels=${levels} theme=${theme} onGo=${(/** @type {number} */ at) => choose(at, "top")} />
    <div class="side"><div class="tools"><div class="search"><input ref=${search} type="search" aria-label="Search the entries" placeholder=${`Search ${count(record.length, "entry", "entries")}`} value=${words} onInput=${(/** @type {any} */ event) => setQuery("q", event.target.value)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1, (each) => hits.has(each))} />
        <span class="count">${words ? `${nth >= 0 ? nth + 1 : 0} of ${found.hits.length}` : html`<kbd>/</kbd>`}</span></div>
      <div class="tabs" role="group" aria-label="Which entries">${Object.entries(FILTERS).map(([name, each]) => html`<button aria-pressed=${filter === name} onClick=${() => setQuery("kind", name === "all" ? "" : name)}>${each.words}</button>`)}</div></div>
      <${EntryList} record=${record} serials=${listed} chosen=${chosen} hits=${hits} hit=${words} onChoose=${choose} /></div>
    <div class="middle"><div class="narrowbar"><button onClick=${() => setDrawer(drawer === "list" ? "" : "list")} aria-expanded=${drawer === "list"}>☰ Entries</button><span class="grow"></span><button onClick=${() => setDrawer(drawer === "panel" ? "" : "panel")} aria-expanded=${drawer === "panel"}>#${chosen} in detail</button></div>
      ${record.brokenAt !== null && html`<${Trouble} problem=${{ message: `The record is broken at #${record.brokenAt}: ${record.problem}. Everything before it is shown.` }} />`}
      ${isMissing && record.length > 0 && html`<${Trouble} problem=${{ message: `There is no entry #${serial}: the newest is #${record.length - 1}.` }} />`}
      ${record.length === 0 ? html`<div class="note"><p>The session has no entry yet.</p><code>dragoman chat --session ${record.id}</code></div>` : html`<${VirtualList} keys=${cards} label="Entries, to read" class="reading" handle=${reading} estimate=${(/** @type {number} */ key) => estimate(record, key)} onRange=${(/** @type {number} */ first, /** @type {number} */ last) => (range.peek()[0] !== first || range.peek()[1] !== last) && (range.value = [first, last])}
        item=${card} />`}</div>
    ${record.length > 0 && html`<${EntryPanel} key=${chosen} record=${record} serial=${chosen} call=${calls.get(chosen)} level=${levels.get(chosen)} onFork=${canWrite ? fork : undefined} onClose=${drawer === "panel" ? () => setDrawer("") : undefined} />`}
  </div>`;
}

/** @param {SessionRecord} record */
function firstOf(record) {
  for (let serial = 0; serial < Math.min(record.length, 20); serial += 1) if (record.kindOf(serial) === "model_input") return serial;
  return 0;
}

/** The model call at or before an entry. @param {SessionRecord} record @param {number} serial */
function callAt(record, serial) {
  for (let before = serial; before >= 0; before -= 1) if (record.kindOf(before) === "model_output") return before;
  return null;
}
