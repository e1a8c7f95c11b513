// @ts-check
// Which sessions there are: when, by whom, at what cost, forked from what, and whether the record is sound.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../vendor/libraries.js";
import { ApiError, get, post, sessionPath } from "../api.js";
import { erasing, forking } from "../dialogs.js";
import { bindings, tell } from "../keys.js";
import { Dialog, scrollBox, Skeleton, Tile, Trouble } from "../parts.js";
import { base, go, link, route } from "../router.js";
import { plain, Safe } from "../safetext.js";
import { count, modelName, money, short, since, integer } from "../words.js";

const PAGE = 500; // sessions that the server gives at once

/** Sessions in the order of the table: forks below the session that they left. @param {any[]} sessions @param {boolean} asTree */
function ordered(sessions, asTree) {
  if (!asTree) return sessions.map((session) => ({ session, depth: 0 }));
  const known = new Set(sessions.map((each) => each.id));
  /** @type {Map<string, any[]>} */
  const children = new Map();
  for (const each of sessions) {
    const parent = each.forkedFrom && known.has(each.forkedFrom.id) ? each.forkedFrom.id : "";
    children.set(parent, [...(children.get(parent) ?? []), each]);
  }
  /** @type {{session: any, depth: number}[]} */
  const rows = [];
  const add = (/** @type {string} */ parent, /** @type {number} */ depth) => {
    for (const session of children.get(parent) ?? []) {
      rows.push({ session, depth: Math.min(depth, 6) });
      add(session.id, depth + 1);
    }
  };
  add("", 0);
  return rows;
}

/** @param {{sizes: number[]}} given */
function Sizes({ sizes }) {
  if (!sizes?.length) return null;
  const most = Math.max(...sizes, 1);
  return html`<svg class="sizes" viewBox="0 0 96 18" role="img" aria-label=${`Context from ${short(sizes[0])} to ${short(sizes[sizes.length - 1])} tokens, at most ${short(most)}`}>
    ${sizes.map((size, index) => html`<rect x=${index * 4} y=${18 - Math.max((18 * size) / most, 1)} width="3" height=${Math.max((18 * size) / most, 1)} />`)}</svg>`;
}

/** The models that summaries name: what can be filtered by. */
const seenModels = signal(/** @type {string[]} */ ([]));

/** @param {{session: any}} given */
function useSummary({ session }) {
  const [summary, setSummary] = useState(/** @type {any} */ (null));
  const row = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const element = row.current;
    if (!element || session.isDamaged) return undefined;
    const observer = new IntersectionObserver((seen) => {
      if (!seen.some((each) => each.isIntersecting)) return;
      observer.disconnect();
      get(`${sessionPath(session.id)}/summary`).then((value) => {
        setSummary(value);
        const all = [...new Set([...seenModels.peek(), ...value.models])].sort();
        if (all.length > seenModels.peek().length) seenModels.value = all;
      }, () => setSummary({}));
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [session.id, session.entries]);
  return { row, summary };
}

/** @param {{session: any, depth: number, isChosen: boolean, onChoose: () => void, verified: any, isMarked: boolean, onMark: (() => void) | null}} given */
function Row({ session, depth, isChosen, onChoose, verified, isMarked, onMark }) {
  const { row, summary } = useSummary({ session });
  const models = summary?.models ?? [];
  const state = soundness(session, verified);
  const report = verified?.isSound === undefined ? session.verified : verified;
  const opened = (/** @type {MouseEvent} */ event) => {
    onChoose();
    if (/** @type {Element} */ (event.target).closest("a, input") || String(getSelection() ?? "")) return;
    onMark ? onMark() : go(link(session.id));
  };
  return html`<tr ref=${row} aria-current=${isChosen ? "true" : undefined} class=${isChosen ? "chosen" : ""} onClick=${opened} id=${`row-${session.id}`}>
    <td><div class="indent" style=${{ paddingLeft: `${depth * 20}px` }}><div class="row">${onMark && html`<input type="checkbox" class="mark" aria-label=${`Compare ${plain(session.id)}`} checked=${isMarked} onChange=${onMark} />`}<a class="strong cut" title=${plain(session.id)} href=${link(session.id)} tabindex=${isChosen ? 0 : -1}>${depth ? html`<span class="dim" aria-hidden="true">└ </span>` : ""}<${Safe} text=${session.id} /></a>
      ${session.isRunning && html` <span class="ok small"><span aria-hidden="true">● </span>running</span>`}
      ${session.forkedFrom && html` <span class="dim small">fork at #${session.forkedFrom.serial}</span>`}${session.importedFrom && html` <span class="dim small">from <${Safe} text=${session.importedFrom} /></span>`}</div>
      <div class="cut dim"><${Safe} text=${session.title ?? (session.isDamaged ? "its own record is damaged" : "")} /></div></div></td>
    <td class="nowrap">${since(session.updatedAt)}</td>
    <td><span class="row">${models.slice(0, 3).map((/** @type {string} */ model) => html`<${Tile} model=${model} />`)}<span class="cut"><${Safe} text=${models.length === 1 ? modelName(models[0]) : models.length ? `${models.length} models` : ""} /></span></span></td>
    <td class="wide"><${Sizes} sizes=${summary?.sizes} /></td>
    <td class="right">${integer(session.entries)}</td>
    <td class="right wide">${summary ? short(summary.inputTokens == null && summary.outputTokens == null ? null : (summary.inputTokens ?? 0) + (summary.outputTokens ?? 0)) : ""}</td>
    <td class="right">${summary ? money(summary.cost) : ""}</td>
    <td class="nowrap">${session.isDamaged ? html`<span class="bad strong">✕ damaged</span>` : state === "broken" ? html`<span class="bad strong">✕ broken at #${report.badSerial}</span>` : state === "sound" ? html`<span class="ok">✓ sound</span>` : html`<span class="warn" >◷ not checked</span>`}${verified?.failure && html`<div class="small dim cut" title=${plain(verified.failure)}><${Safe} text=${verified.failure} /></div>`}</td>
  </tr>`;
}

const beginning = signal(false);

/** Where a person begins a session: what to say, and to which model. */
function NewSession() {
  const [text, setText] = useState("");
  const [model, setModel] = useState("");
  const [models, setModels] = useState(/** @type {string[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    if (beginning.value) get("api/models").then((found) => setModels(found.models), () => {});
  }, [beginning.value]);
  const begin = async () => {
    setBusy(true);
    try {
      const made = await post("api/sessions", { text, model });
      beginning.value = false;
      go(link(made.session, "live"));
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<${Dialog} open=${beginning} title="New session" class="newsession"><h2>New session</h2>
    <textarea rows="4" aria-label="Say something" placeholder="Say something; a run begins" value=${text} autofocus onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
    <div class="row"><input list="newmodels" class="grow" aria-label="Model" placeholder="provider:model, or the one of the settings" value=${model} onInput=${(/** @type {any} */ event) => setModel(event.target.value)} /><datalist id="newmodels">${models.map((name) => html`<option value=${name}></option>`)}</datalist>
      <button onClick=${() => (beginning.value = false)}>Cancel</button><button class="primary" disabled=${isBusy || !text.trim()} onClick=${begin}>Begin</button></div>
    ${problem && html`<${Trouble} problem=${problem} />`}</${Dialog}>`;
}

/** @typedef {{words: string, model: string, days: string, state: string}} Filter */

const NO_FILTER = { words: "", model: "", days: "", state: "" };

/**
 * The sessions that the server finds, page by page. Times and verdicts are filtered here: they need all pages.
 * @param {Filter} filter @param {number} round grows when something was erased
 */
function useSessions(filter, round) {
  const { words, model } = filter;
  const needsAll = Boolean(filter.days || filter.state);
  const query = { q: words, model };
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [pages, setPages] = useState(1);
  useEffect(() => {
    let isOver = false;
    const load = () => get("api/sessions", query).then((value) => !isOver && (setFound({ ...value, query: JSON.stringify(query) }), setProblem(null), setPages(1)), (error) => !isOver && setProblem(error));
    const timer = setTimeout(load, words ? 250 : 0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [words, model, round]);
  const loaded = found?.sessions.length ?? 0;
  const isOwn = found?.query === JSON.stringify(query);
  const wantsMore = isOwn && loaded < found.found && (needsAll || pages * PAGE > loaded);
  useEffect(() => {
    if (!wantsMore) return undefined;
    let isOver = false;
    const add = (/** @type {any} */ value) => setFound((/** @type {any} */ old) => ({ ...old, found: value.sessions.length ? value.found : loaded, sessions: [...old.sessions, ...value.sessions] }));
    get("api/sessions", { ...query, from: loaded }).then((value) => !isOver && add(value), (error) => !isOver && setProblem(error));
    return () => {
      isOver = true;
    };
  }, [wantsMore, loaded]);
  return { found, problem, left: found ? found.found - loaded : 0, isLoading: wantsMore, more: () => setPages(pages + 1) };
}

/** Check sessions one by one. A session that could not be checked gets no verdict. */
function useVerify() {
  const [verified, setVerified] = useState(/** @type {Record<string, any>} */ ({}));
  const verify = async (/** @type {any[]} */ sessions) => {
    let checked = 0;
    let failure = "";
    for (const each of sessions.filter((session) => !session.isDamaged)) {
      try {
        const report = await get(`${sessionPath(each.id)}/verify`);
        setVerified((old) => ({ ...old, [each.id]: report }));
        checked += 1;
      } catch (error) {
        failure = /** @type {Error} */ (error).message;
        setVerified((old) => ({ ...old, [each.id]: { ...old[each.id], failure } }));
        if (error instanceof ApiError && error.status === 0) break; // no other one can be checked either
      }
    }
    tell(`${count(checked, "session")} checked${failure ? `; not all: ${failure}` : ""}`);
  };
  return { verified, verify };
}

/** What the last check of a session said. @param {any} session @param {any} report of this page @returns {"sound" | "broken" | "unchecked"} */
function soundness(session, report) {
  const last = report?.isSound === undefined ? session.verified : report;
  return session.isDamaged || last?.isSound === false ? "broken" : last ? "sound" : "unchecked";
}

/** @param {{filter: Filter, set: (change: Partial<Filter>) => void, search: any, asTree: boolean, onTree: () => void, words: string}} given */
function Filters({ filter, set, search, asTree, onTree, words }) {
  const select = (/** @type {keyof Filter} */ name, /** @type {string} */ label, /** @type {string[][]} */ options) => html`<select aria-label=${label} value=${filter[name]} onChange=${(/** @type {any} */ event) => set({ [name]: event.target.value })}>${options.map(([value, title]) => html`<option value=${value}>${plain(title)}</option>`)}</select>`;
  const models = [...new Set([...seenModels.value, ...(filter.model ? [filter.model] : [])])];
  return html`<div class="row filters"><div class="search"><input ref=${search} type="search" aria-label="Search all sessions" placeholder="Text, tool, path, model or id" value=${filter.words} onInput=${(/** @type {any} */ event) => set({ words: event.target.value })} /><span class="count"><kbd>/</kbd></span></div>
    ${select("model", "Model", [["", "Any model"], ...models.map((name) => [name, name])])}
    ${select("days", "Last used", [["", "Any time"], ["1", "Last day"], ["7", "Last week"], ["30", "Last month"]])}
    ${select("state", "Soundness", [["", "Soundness"], ["sound", "Sound"], ["broken", "Broken"], ["unchecked", "Not checked"]])}
    <button aria-pressed=${asTree} onClick=${onTree}>${asTree ? "Forks as tree" : "Newest first"}</button><span class="grow"></span><span class="dim">${words}</span></div>`;
}

let lastChosen = ""; // where Back returns to

/** The chosen row, by the id of its session: rows come and go. @param {{session: any}[]} rows @param {{current: HTMLElement | null}} box */
function useChosen(rows, box) {
  const [id, setId] = useState(lastChosen);
  lastChosen = id;
  const hasRows = rows.length > 0;
  useEffect(() => {
    if (hasRows && id) scrollBox(box.current, document.getElementById(`row-${id}`));
  }, [hasRows]);
  const place = Math.max(rows.findIndex(({ session }) => session.id === id), 0);
  const chosen = rows[place]?.session;
  const move = (/** @type {number} */ by) => {
    const next = rows[Math.max(0, Math.min(place + by, rows.length - 1))]?.session.id;
    setId(next ?? "");
    scrollBox(box.current, document.getElementById(`row-${next}`));
  };
  return { chosen, move, choose: setId };
}

/** Two sessions to compare: the first one, "" before it is chosen, null if none is wanted. */
function useCompared() {
  const [marked, setMarked] = useState(/** @type {string | null} */ (null));
  const mark = (/** @type {string} */ id) => {
    if (!marked) return setMarked(id);
    if (marked === id) return setMarked("");
    go(link(marked, "diff", null, { other: id }));
  };
  return { marked, mark, begin: () => setMarked(marked === null ? "" : null), stop: () => setMarked(null) };
}

const NAMES = /** @type {[keyof Filter, string][]} */ ([["words", "q"], ["model", "model"], ["days", "days"], ["state", "state"]]); // in the address

/** The filter, which the address holds: Back brings it again. @returns {[Filter, (filter: Filter) => void]} */
function useFilter() {
  const { query } = route.value;
  const filter = { ...NO_FILTER };
  for (const [name, key] of NAMES) filter[name] = query.get(key) ?? "";
  const set = (/** @type {Filter} */ next) => {
    const made = new URLSearchParams(NAMES.filter(([name]) => next[name]).map(([name, key]) => [key, next[name]])).toString();
    go(base + (made ? `?${made}` : ""), true);
  };
  return [filter, set];
}

/** @param {{setWords: (words: string) => void}} given */
export function SessionsView({ setWords }) {
  const [filter, setFilter] = useFilter();
  const [asTree, setTree] = useState(true);
  const [round, setRound] = useState(0);
  const { found, problem, left, isLoading, more } = useSessions(filter, round);
  const { verified, verify } = useVerify();
  const { marked, mark, begin, stop } = useCompared();
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const isFiltered = Object.values(filter).some(Boolean);
  const { days, state } = filter;
  const fits = (/** @type {any} */ each) => (!days || Date.now() - Date.parse(each.updatedAt) < Number(days) * 86_400_000) && (!state || soundness(each, verified[each.id]) === state);
  const rows = found ? ordered(found.sessions.filter(fits), asTree && !isFiltered) : [];
  const { chosen, move, choose } = useChosen(rows, box);
  const canWrite = Boolean(found && !found.isReadOnly && chosen && !chosen.isDamaged);
  useEffect(() => {
    if (found) setWords(`${found.place ? `${plain(found.place)}, ` : ""}${found.isReadOnly ? "read only" : "read and write"}`);
  }, [found?.place, found?.isReadOnly]);
  const fork = () => void (forking.value = { session: chosen.id, serial: chosen.entries - 1, newest: chosen.entries - 1 });
  const erase = () => void (erasing.value = { session: chosen.id, onDone: () => setRound((value) => value + 1) });
  useLayoutEffect(() => {
    bindings.value = [
      { keys: ["j", "ArrowDown"], words: "next session", short: "move", run: () => move(1) },
      { keys: ["k", "ArrowUp"], words: "session before", run: () => move(-1) },
      { keys: ["Enter"], words: "open", short: "open", run: () => chosen && go(link(chosen.id)) },
      { keys: ["/"], words: "search", short: "search", run: () => search.current?.focus() },
      { keys: ["x"], words: "mark to compare; the second opens both", short: "mark to compare", run: () => chosen && mark(chosen.id) },
      ...(marked === null ? [] : [{ keys: ["Escape"], words: "stop comparing", run: stop }]),
      { keys: ["v"], words: "check the record", short: "verify", run: () => chosen && verify([chosen]) },
      ...(canWrite && chosen.entries > 0 ? [{ keys: ["f"], words: "fork at its end", short: "fork", run: fork }] : []),
      ...(canWrite ? [{ keys: ["Delete"], words: "erase", run: erase }] : []),
    ];
  });
  if (problem && !found) return html`<${Trouble} problem=${problem} retry=${() => setRound(round + 1)} />`;
  if (!found) return html`<${Skeleton} />`;
  const told = [isFiltered ? `${integer(rows.length)} of ${integer(found.total)}` : "", found.searched < found.total ? `${integer(found.searched)} searched` : "", isLoading ? "loading" : ""].filter(Boolean).join(", ");
  return html`<div class="sessions scroll" ref=${box} tabindex="0" role="region" aria-label="Sessions">
    ${problem && html`<${Trouble} problem=${problem} retry=${() => setRound(round + 1)} />`}
    <div class="row head wrap"><h1>Sessions</h1><span class="dim">${integer(found.total)} in <${Safe} text=${found.place || "this store"} /></span><span class="grow"></span>
      <button aria-pressed=${marked !== null} onClick=${begin}>${marked === null ? "Compare two" : marked ? "Choose the second" : "Choose two"}</button>
      <button onClick=${() => verify(rows.map((each) => each.session))}>Verify all</button>${canWrite && html`<button onClick=${erase}>Erase chosen</button>`}${found.hasAgent && html`<button class="primary" onClick=${() => (beginning.value = true)}>New session</button>`}</div>
    <${Filters} filter=${filter} set=${(/** @type {Partial<Filter>} */ change) => setFilter({ ...filter, ...change })} search=${search} asTree=${asTree} onTree=${() => setTree(!asTree)} words=${told} />
    ${rows.length === 0
      ? html`<div class="note card"><p>${isLoading ? "Loading…" : filter.words ? "No session contains this text." : isFiltered ? "No session matches the filters." : "There is no session yet."}</p>${!isFiltered && html`<code>dragoman chat</code>`}</div>`
      : html`<div class="card"><table class="list"><caption class="hidden">Sessions</caption><thead><tr><th>Session</th><th>Last used</th><th>Models</th><th class="wide">Context over time</th><th class="right">Entries</th><th class="right wide">Tokens</th><th class="right">Cost</th><th>Record</th></tr></thead>
        <tbody>${rows.map(({ session, depth }) => html`<${Row} key=${session.id} session=${session} depth=${depth} isChosen=${session === chosen} verified=${verified[session.id]} isMarked=${marked === session.id} onMark=${marked === null ? null : () => mark(session.id)} onChoose=${() => choose(session.id)} />`)}</tbody></table>
        ${left > 0 && !isLoading && html`<div class="pad"><button class="more" onClick=${more}>▾ ${integer(Math.min(left, PAGE))} more of ${integer(left)} older sessions</button></div>`}</div>`}
    <${NewSession} /></div>`;
}
