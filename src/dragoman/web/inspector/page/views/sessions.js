// @ts-check
// Which sessions there are: when, by whom, at what cost, forked from what, and whether the record is sound.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../vendor/libraries.js";
import { get, post, sessionPath } from "../api.js";
import { erasing, forking } from "../dialogs.js";
import { bindings, tell } from "../keys.js";
import { Dialog, scrollBox, Skeleton, Tile, Trouble } from "../parts.js";
import { go, link } from "../router.js";
import { plain, Safe } from "../safetext.js";
import { count, modelName, money, short, since, integer } from "../words.js";

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
  const found = verified ?? session.verified;
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
    <td class="nowrap">${session.isDamaged ? html`<span class="bad strong">✕ damaged</span>` : found == null ? html`<span class="warn">◷ not checked</span>` : found.isSound ? html`<span class="ok">✓ sound</span>` : html`<span class="bad strong">✕ broken at #${found.badSerial}</span>`}</td>
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

/** @param {{setWords: (words: string) => void}} given */
export function SessionsView({ setWords }) {
  const [words, setSearch] = useState("");
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [asTree, setTree] = useState(true);
  const [round, setRound] = useState(0);
  const [model, setModel] = useState("");
  const [days, setDays] = useState("");
  const [state, setState] = useState("");
  const [place, setPlace] = useState(0);
  const [verified, setVerified] = useState(/** @type {Record<string, any>} */ ({}));
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [marked, setMarked] = useState(/** @type {string | null} */ (null)); // the first of two to compare; "" before it
  const mark = (/** @type {string} */ id) => {
    if (!marked) return setMarked(id);
    if (marked === id) return setMarked("");
    go(link(marked, "diff", null, { other: id }));
  };
  useEffect(() => {
    let isOver = false;
    const load = () =>
      get("api/sessions", { q: words, model }).then(
        (value) => {
          if (isOver) return;
          setFound(value);
          setProblem(null);
          setWords(`${value.place ? `${plain(value.place)}, ` : ""}${value.isReadOnly ? "read only" : "read and write"}`);
        },
        (error) => !isOver && setProblem(error),
      );
    const timer = setTimeout(load, words ? 250 : 0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [words, model, round]);
  const isFiltered = Boolean(words || model || days || state);
  const soundness = (/** @type {any} */ each) => {
    const report = verified[each.id] ?? each.verified;
    return each.isDamaged || report?.isSound === false ? "broken" : report ? "sound" : "unchecked";
  };
  const fits = (/** @type {any} */ each) => (!days || Date.now() - Date.parse(each.updatedAt) < Number(days) * 86_400_000) && (!state || soundness(each) === state);
  const rows = found ? ordered(found.sessions.filter(fits), asTree && !isFiltered) : [];
  const chosen = rows[Math.min(place, rows.length - 1)]?.session;
  const verify = async (/** @type {any[]} */ sessions) => {
    for (const each of sessions) {
      if (each.isDamaged) continue;
      try {
        const report = await get(`${sessionPath(each.id)}/verify`);
        setVerified((old) => ({ ...old, [each.id]: report }));
      } catch (error) {
        setVerified((old) => ({ ...old, [each.id]: { isSound: false, badSerial: "?", problem: String(error) } }));
      }
    }
    tell(`${count(sessions.length, "session")} checked`);
  };
  const fork = () => {
    if (chosen && !found.isReadOnly) forking.value = { session: chosen.id, serial: chosen.entries - 1, newest: chosen.entries - 1 };
  };
  const erase = () => {
    if (chosen && !found.isReadOnly) erasing.value = { session: chosen.id, onDone: () => setRound((value) => value + 1) };
  };
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const move = (/** @type {number} */ by) => {
    const next = Math.max(0, Math.min(place + by, rows.length - 1));
    setPlace(next);
    scrollBox(box.current, document.getElementById(`row-${rows[next]?.session.id}`));
  };
  useLayoutEffect(() => {
    bindings.value = [
      { keys: ["j", "ArrowDown"], words: "next session", short: "move", run: () => move(1) },
      { keys: ["k", "ArrowUp"], words: "session before", run: () => move(-1) },
      { keys: ["Enter"], words: "open", short: "open", run: () => chosen && go(link(chosen.id)) },
      { keys: ["/"], words: "search", short: "search", run: () => search.current?.focus() },
      { keys: ["x"], words: "mark to compare; the second opens both", short: "mark to compare", run: () => chosen && mark(chosen.id) },
      ...(marked === null ? [] : [{ keys: ["Escape"], words: "compare nothing", run: () => setMarked(null) }]),
      { keys: ["v"], words: "check the record", short: "verify", run: () => chosen && verify([chosen]) },
      ...(found && !found.isReadOnly ? [{ keys: ["f"], words: "fork at its end", short: "fork", run: fork }, { keys: ["Delete"], words: "erase", run: erase }] : []),
    ];
  });
  if (problem) return html`<${Trouble} problem=${problem} />`;
  if (!found) return html`<${Skeleton} />`;
  return html`<div class="sessions scroll" ref=${box} tabindex="0" role="region" aria-label="Sessions">
    <div class="row head"><h1>Sessions</h1><span class="dim">${integer(found.total)} in <${Safe} text=${found.place || "this store"} /></span><span class="grow"></span>
      <button aria-pressed=${marked !== null} onClick=${() => setMarked(marked === null ? "" : null)}>${marked === null ? "Compare two" : marked ? "Choose the second" : "Choose two"}</button>
      <button onClick=${() => verify(rows.map((each) => each.session))}>Verify all</button>${!found.isReadOnly && chosen && html`<button onClick=${erase}>Erase chosen</button>`}${found.hasAgent && html`<button class="primary" onClick=${() => (beginning.value = true)}>New session</button>`}</div>
    <div class="row filters"><div class="search"><input ref=${search} type="search" aria-label="Search all sessions" placeholder="Text, tool, path, model or id" value=${words} onInput=${(/** @type {any} */ event) => (setSearch(event.target.value), setPlace(0))} /><span class="count"><kbd>/</kbd></span></div>
      <select aria-label="Model" value=${model} onChange=${(/** @type {any} */ event) => (setModel(event.target.value), setPlace(0))}><option value="">Any model</option>${[...new Set([...seenModels.value, ...(model ? [model] : [])])].map((name) => html`<option value=${name}>${plain(name)}</option>`)}</select>
      <select aria-label="Last used" value=${days} onChange=${(/** @type {any} */ event) => (setDays(event.target.value), setPlace(0))}>${[["", "Any time"], ["1", "Last day"], ["7", "Last week"], ["30", "Last month"]].map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select>
      <select aria-label="Soundness" value=${state} onChange=${(/** @type {any} */ event) => (setState(event.target.value), setPlace(0))}>${[["", "Soundness"], ["sound", "Sound"], ["broken", "Broken"], ["unchecked", "Not checked"]].map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select>
      <button aria-pressed=${asTree} onClick=${() => setTree(!asTree)}>${asTree ? "Forks as tree" : "Newest first"}</button><span class="grow"></span>
      <span class="dim">${found.found > found.sessions.length ? `the newest ${integer(found.sessions.length)} of ${integer(found.found)}; ` : ""}${isFiltered ? `${rows.length} of ${found.total}${found.searched < found.total ? `, ${found.searched} searched` : ""}` : ""}</span></div>
    ${rows.length === 0
      ? html`<div class="note card"><p>${words ? "No session says that." : isFiltered ? "No session is like that." : "There is no session yet."}</p>${!isFiltered && html`<code>dragoman chat</code>`}</div>`
      : html`<div class="card"><table class="list"><caption class="hidden">Sessions</caption><thead><tr><th>Session</th><th>Last used</th><th>Models</th><th class="wide">Context over time</th><th class="right">Entries</th><th class="right wide">Tokens</th><th class="right">Cost</th><th>Record</th></tr></thead>
        <tbody>${rows.map(({ session, depth }, index) => html`<${Row} key=${session.id} session=${session} depth=${depth} isChosen=${index === place} verified=${verified[session.id]} isMarked=${marked === session.id} onMark=${marked === null ? null : () => mark(session.id)} onChoose=${() => setPlace(index)} />`)}</tbody></table></div>`}
    <${NewSession} /></div>`;
}
