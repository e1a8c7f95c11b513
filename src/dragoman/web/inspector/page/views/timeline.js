// @ts-check
// What happened: map, list, reading view, and one entry in detail.
import { html, signal, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/libraries.js";
import { get } from "../api.js";
import { forking, goingTo } from "../dialogs.js";
import { DayBand, EntryCard, estimate } from "../entrycard.js";
import { besides, EntryPanel } from "../entrypanel.js";
import { bindings, tell } from "../keys.js";
import { EntryList, FILTERS } from "../entrylist.js";
import { Minimap } from "../minimap.js";
import { Trouble } from "../parts.js";
import { go, link, route } from "../router.js";
import { VirtualList } from "../virtual.js";
import { count } from "../words.js";

/** @typedef {import("../record.js").SessionRecord} SessionRecord */

/** @typedef {{words: string, hits: {serial: number}[]}} Found */

/** Search hits of the session, and the words that they are of. @param {SessionRecord} record @param {string} words @returns {Found} */
function useHits(record, words) {
  const [found, setFound] = useState(/** @type {Found} */ ({ words: "", hits: [] }));
  useEffect(() => {
    if (!words) return setFound({ words, hits: [] });
    let isOver = false;
    const timer = setTimeout(() => get(`${record.path}/search`, { q: words }).then((value) => !isOver && setFound({ words, hits: value.hits }), (error) => !isOver && tell(error.message)), 120);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [record, words, record.length]);
  return found;
}

/** What needs all entries is asked for after the first of them are shown. */
const later = () => new Promise((done) => setTimeout(done, 400));

/** An answer about all entries as a map by serial, empty until it is here. @template T @param {SessionRecord} record @param {() => Promise<[number, T][]>} load @returns {Map<number, T>} */
function useBySerial(record, load) {
  const [found, setFound] = useState(/** @type {Map<number, T>} */ (new Map()));
  useEffect(() => {
    let isOver = false;
    void later().then(() => (isOver ? undefined : load().then((pairs) => !isOver && setFound(new Map(pairs)), () => {})));
    return () => {
      isOver = true;
    };
  }, [record, record.length]);
  return found;
}

/** @param {SessionRecord} record @returns {Promise<[number, any][]>} */
const loadCalls = (record) => get(`${record.path}/calls`).then((found) => found.calls.map((/** @type {any} */ call) => [call.serial, call]));

/** The level of each entry at the call to come. @param {SessionRecord} record @returns {Promise<[number, string][]>} */
const loadLevels = (record) =>
  get(`${record.path}/calls/${record.length}`).then((found) => Object.entries(found.levels).flatMap(([level, serials]) => serials.map((/** @type {number} */ serial) => [serial, level])));

/** The entry that the address names, and what chooses another one. Only a choice outside of the reading view scrolls it.
 * @param {SessionRecord} record @param {{current: any}} reading */
function useChosen(record, reading) {
  const { serial } = route.value;
  const chosen = Math.min(serial ?? firstOf(record), Math.max(record.length - 1, 0));
  const shown = useRef(/** @type {number | null} */ (null));
  const select = (/** @type {number} */ next) => {
    shown.current = next;
    go(link(record.id, "timeline", next, Object.fromEntries(route.peek().query)), true);
  };
  const choose = (/** @type {number} */ next, /** @type {"top" | "middle"} */ where = "middle") => {
    if (next < 0 || next >= record.length) return;
    select(next);
    reading.current?.scrollTo(record.owner[next] ?? next, where);
  };
  useEffect(() => {
    if (serial !== null && shown.current !== serial) reading.current?.scrollTo(record.owner[chosen] ?? chosen, "middle");
    shown.current = serial;
  }, [record, serial]);
  return { serial, chosen, select, choose };
}

/** Go to a hit when the words change: never when the session grows, nor where the address names an entry.
 * @param {Found} found @param {string} words @param {number | null} serial @param {number} chosen @param {(serial: number) => void} choose */
function useJumpToHit(found, words, serial, chosen, choose) {
  const jumped = useRef(serial === null ? "" : words);
  useEffect(() => {
    if (found.words !== words || jumped.current === words) return;
    jumped.current = words;
    if (!found.hits.length || found.hits.some((hit) => hit.serial === chosen)) return;
    choose((found.hits.find((hit) => hit.serial >= chosen) ?? found.hits[0]).serial);
  }, [found, words]);
}

/** @param {string} name @param {string} value */
function setQuery(name, value) {
  const { session, serial, query } = route.peek();
  const made = Object.fromEntries(query);
  if (value) made[name] = value;
  else delete made[name];
  go(link(session, "timeline", serial, made), true);
}

/** The drawer that is open where the window is narrow, and what goes to the search field, which can be in one of them. */
function useDrawers() {
  const [drawer, setDrawer] = useState("");
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const isWanted = useRef(false);
  useLayoutEffect(() => {
    if (isWanted.current) search.current?.focus();
    isWanted.current = false;
  }, [drawer]);
  const toSearch = () => {
    search.current?.focus(); // a field that is not displayed takes no focus
    if (document.activeElement === search.current) return;
    isWanted.current = true;
    setDrawer("list");
  };
  return { drawer, setDrawer, search, toSearch };
}

/** @typedef {{record: SessionRecord, chosen: number, choose: (serial: number) => void, filter: string, words: string, hits: Set<number>, search: () => void, drawer: string, setDrawer: (name: string) => void, fork?: () => void}} Held */

/** What the keys of the view do. @param {Held} held @returns {import("../keys.js").Binding[]} */
function keysOf({ record, chosen, choose, filter, words, hits, search, drawer, setDrawer, fork }) {
  const step = (/** @type {number} */ by, /** @type {(serial: number) => boolean} */ fits) => {
    for (let next = chosen + by; next >= 0 && next < record.length; next += by) if (fits(next)) return choose(next);
  };
  const kindIs = (/** @type {string} */ kind) => (/** @type {number} */ each) => record.kindOf(each) === kind;
  const isListed = (/** @type {number} */ each) => !record.isFolded(each) && filterOf(filter)(record, each);
  const isHit = (/** @type {number} */ each) => hits.has(each);
  const call = record.find("model_output", chosen, -1);
  const fold = () => {
    const first = document.querySelector(`[data-key="${record.owner[chosen]}"] button[aria-expanded]`);
    if (first instanceof HTMLElement) first.click();
  };
  const nextFilter = () => {
    const names = Object.keys(FILTERS);
    setQuery("kind", names[(names.indexOf(filter) + 1) % names.length]);
  };
  const toggle = (/** @type {string} */ name) => () => setDrawer(drawer === name ? "" : name);
  const ask = () => {
    goingTo.value = { newest: record.length - 1, choose };
  };
  return [
    { keys: ["j", "ArrowDown"], words: "next entry", short: "entry", run: () => step(1, isListed) },
    { keys: ["k", "ArrowUp"], words: "entry before", run: () => step(-1, isListed) },
    { keys: ["J"], words: "next turn", short: "turn", run: () => step(1, kindIs("model_input")) },
    { keys: ["K"], words: "turn before", run: () => step(-1, kindIs("model_input")) },
    { keys: ["]"], words: "next model call", short: "model call", run: () => step(1, kindIs("model_output")) },
    { keys: ["["], words: "model call before", run: () => step(-1, kindIs("model_output")) },
    { keys: ["}"], words: "next epoch", run: () => step(1, kindIs("epoch")) },
    { keys: ["{"], words: "epoch before", run: () => step(-1, kindIs("epoch")) },
    { keys: ["/"], words: "search", short: "search", run: search },
    { keys: ["n"], words: "next hit", short: "hit", run: () => step(1, isHit) },
    { keys: ["N"], words: "hit before", run: () => step(-1, isHit) },
    { keys: ["g"], words: "go to a serial", short: "go to #", run: ask },
    { keys: ["G", "End"], words: "newest entry", run: () => choose(record.length - 1) },
    { keys: ["Home"], words: "first entry", run: () => choose(0) },
    { keys: ["."], words: "next filter", short: "filter", run: nextFilter },
    { keys: ["e"], words: "fold or unfold", short: "fold", run: fold },
    { keys: ["c"], words: "context of the call", short: "context", run: () => go(link(record.id, "context", call)) },
    { keys: ["d"], words: "request beside the one before", short: "diff", run: () => call !== null && go(besides(record, call)) },
    { keys: ["y"], words: "copy the link", run: () => void navigator.clipboard?.writeText(location.href).then(() => tell("The link is copied."), () => {}) },
    { keys: ["i"], words: "entry in detail", run: toggle("panel") },
    { keys: ["l"], words: "list", run: toggle("list") },
    { keys: ["Escape"], words: "close what is open", run: () => (drawer ? setDrawer("") : words && setQuery("q", "")) },
    ...(fork ? [{ keys: ["f"], words: "fork from here", run: fork }] : []),
  ];
}

/** @param {string} filter */
const filterOf = (filter) => (FILTERS[filter] ?? FILTERS.all).fits;

/** The search and the filters above the list. @param {{record: SessionRecord, chosen: number, choose: (serial: number) => void, found: Found, hits: Set<number>, words: string, filter: string, search: any}} given */
function Tools({ record, chosen, choose, found, hits, words, filter, search }) {
  const nth = found.hits.findIndex((hit) => hit.serial === chosen);
  const typed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter") return;
    const by = event.shiftKey ? -1 : 1;
    for (let next = chosen + by; next >= 0 && next < record.length; next += by) if (hits.has(next)) return choose(next);
  };
  return html`<div class="tools"><div class="search"><input ref=${search} type="search" aria-label="Search the entries" placeholder=${`Search ${count(record.length, "entry", "entries")}`} value=${words} onInput=${(/** @type {any} */ event) => setQuery("q", event.target.value)} onKeyDown=${typed} />
      <span class="count">${words ? `${nth >= 0 ? nth + 1 : 0} of ${found.hits.length}` : html`<kbd>/</kbd>`}</span></div>
    <div class="tabs" role="group" aria-label="Which entries">${Object.entries(FILTERS).map(([name, each]) => html`<button aria-pressed=${filter === name} onClick=${() => setQuery("kind", name === "all" ? "" : name)}>${each.words}</button>`)}</div></div>`;
}

/** @param {{record: SessionRecord, theme: string}} given */
export function TimelineView({ record, theme }) {
  void record.version.value;
  const { query } = route.value;
  const words = query.get("q") ?? "";
  const filter = query.get("kind") ?? "all";
  const reading = useRef(/** @type {any} */ (null));
  const { drawer, setDrawer, search, toSearch } = useDrawers();
  const { serial, chosen, select, choose } = useChosen(record, reading);
  const found = useHits(record, words);
  useJumpToHit(found, words, serial, chosen, choose);
  const hits = useMemo(() => new Set(found.hits.map((hit) => hit.serial)), [found]);
  const calls = useBySerial(record, () => loadCalls(record));
  const levels = useBySerial(record, () => loadLevels(record));
  const range = useMemo(() => signal(/** @type {[number, number]} */ ([0, 0])), []);
  const listed = useMemo(() => record.listed(filterOf(filter)), [record, record.length, filter]);
  const cards = useMemo(() => record.cards(), [record, record.length]);
  const isOpen = (/** @type {string} */ name) => drawer === name;
  const toggle = (/** @type {string} */ name) => setDrawer(isOpen(name) ? "" : name);
  const canWrite = record.canWrite();
  const fork = canWrite ? () => void (forking.value = { session: record.id, serial: chosen, newest: record.length - 1 }) : undefined;
  useLayoutEffect(() => {
    bindings.value = keysOf({ record, chosen, choose, filter, words, hits, search: toSearch, drawer, setDrawer, fork });
  });
  const card = useCallback((/** @type {number} */ key) => {
    const isChosen = record.owner[chosen] === key;
    const clicked = (/** @type {MouseEvent} */ event) => !isChosen && !(/** @type {HTMLElement} */ (event.target).closest("button, a")) && select(key);
    return html`<${DayBand} record=${record} serial=${key} /><div class=${`line ${isChosen ? "chosen" : ""}`} onClick=${clicked}><span class="serial mono">#${key}</span><${EntryCard} record=${record} serial=${key} hit=${words} calls=${calls} onOpen=${(/** @type {number} */ call) => go(link(record.id, "context", call))} /></div>`;
  }, [record, record.version.value, chosen, words, calls]);
  const ranged = (/** @type {number} */ first, /** @type {number} */ last) => (range.peek()[0] !== first || range.peek()[1] !== last) && (range.value = [first, last]);
  const trouble = record.trouble();
  return html`<div class=${`timeline ${drawer ? `show-${drawer}` : ""}`}>
    <${Minimap} record=${record} hits=${hits} range=${range} levels=${levels} theme=${theme} onGo=${(/** @type {number} */ at) => choose(at, "top")} />
    <div class="side"><${Tools} record=${record} chosen=${chosen} choose=${choose} found=${found} hits=${hits} words=${words} filter=${filter} search=${search} />
      <${EntryList} record=${record} serials=${listed} chosen=${chosen} hits=${hits} hit=${words} onChoose=${choose} /></div>
    <div class="middle"><div class="narrowbar"><button onClick=${() => toggle("list")} aria-expanded=${isOpen("list")}>☰ Entries</button><span class="grow"></span><button onClick=${() => toggle("panel")} aria-expanded=${isOpen("panel")}>#${chosen} in detail</button></div>
      ${trouble && html`<${Trouble} problem=${{ message: trouble }} />`}
      ${serial !== null && serial >= record.length && record.length > 0 && html`<${Trouble} problem=${{ message: `There is no entry #${serial}: the newest ${trouble ? "that can be read " : ""}is #${record.length - 1}.` }} />`}
      ${record.length > 0 ? html`<${VirtualList} keys=${cards} label="Entries, to read" class="reading" handle=${reading} estimate=${(/** @type {number} */ key) => estimate(record, key)} onRange=${ranged} item=${card} />` : trouble ? "" : html`<div class="note"><p>The session has no entry yet.</p><code>dragoman chat --session ${record.id}</code></div>`}</div>
    ${record.length > 0 && html`<${EntryPanel} key=${chosen} record=${record} serial=${chosen} call=${calls.get(chosen)} level=${levels.get(chosen)} onFork=${fork} onClose=${isOpen("panel") ? () => setDrawer("") : undefined} />`}
  </div>`;
}

/** @param {SessionRecord} record */
function firstOf(record) {
  for (let serial = 0; serial < Math.min(record.length, 20); serial += 1) if (record.kindOf(serial) === "model_input") return serial;
  return 0;
}
