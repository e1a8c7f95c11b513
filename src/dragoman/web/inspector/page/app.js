// @ts-check
// The frame: bar, view, footer, keys, theme.
import { effect, html, render, signal, useEffect, useLayoutEffect, useState } from "./vendor/libraries.js";
import { allSessions, base, broken, get } from "./api.js";
import { Dialogs, erasing } from "./dialogs.js";
import { forgetStored } from "./stored.js";
import { bindings, helpIsOpen, paletteIsOpen, startKeys, tell, toast } from "./keys.js";
import { Dialog, Skeleton, Trouble } from "./parts.js";
import { SessionRecord } from "./record.js";
import { go, link, route, startRouter } from "./router.js";
import { plain, Safe } from "./safetext.js";
import { count, money } from "./words.js";
import { ContextView } from "./views/context.js";
import { CostView } from "./views/cost.js";
import { LiveView } from "./views/live.js";
import { RequestsView } from "./views/requests.js";
import { SessionsView } from "./views/sessions.js";
import { TimelineView } from "./views/timeline.js";

const VIEWS = /** @type {const} */ ([
  ["timeline", "Timeline"],
  ["context", "Context"],
  ["diff", "Requests"],
  ["cost", "Cost"],
  ["live", "Live"],
]);

const REFRESH_MS = 4000;

export const theme = signal(localStorage.getItem("dragoman-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

function Brand() {
  return html`<a class="brand" href=${base} aria-label="Dragoman, all sessions"><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M2 3h7a4 4 0 0 1 0 8H7l-2.5 2.5V11H2z" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"/><path d="M4.5 7h4" stroke="currentColor" stroke-width="1.6"/></svg><span>Dragoman</span></a>`;
}

/** @param {{record: SessionRecord | null}} given */
function Bar({ record }) {
  const { view, session, serial } = route.value;
  const [sound, setSound] = useState(/** @type {any} */ (null));
  void record?.version.value;
  useEffect(() => setSound(record?.info?.verified ?? null), [record]);
  const isOld = sound?.isSound && record && sound.serial < record.length - 1; // entries were added since
  const verify = async () => {
    if (!record) return;
    try {
      const found = await get(`${record.path}/verify`);
      if (route.peek().session !== record.id) return; // another session is read by now
      setSound(found);
      tell(found.isSound ? (found.serial < 0 ? "The session has no entry yet." : `Every byte is what was appended, up to #${found.serial}.`) : `Broken at #${found.badSerial}: ${found.problem}`);
    } catch (problem) {
      if (route.peek().session === record.id) tell(/** @type {Error} */ (problem).message);
    }
  };
  const change = () => {
    theme.value = theme.value === "dark" ? "light" : "dark";
    localStorage.setItem("dragoman-theme", theme.value);
  };
  return html`<header class="bar"><${Brand} />
    ${session && html`<span class="dim" aria-hidden="true">/</span><h1 class="name cut" title=${plain(session)}><${Safe} text=${session} /></h1>
      <nav aria-label="Views">${VIEWS.map(([name, words]) => html`<a href=${link(session, name, name === "timeline" || name === "context" ? serial : null)} aria-current=${view === name ? "page" : undefined}>${words}</a>`)}</nav>`}
    <span class="grow"></span>
    ${record && html`<button class=${`chip ${sound == null || isOld ? "plain" : sound.isSound ? "ok" : "bad"}`} onClick=${verify} title="Check every byte against the chain of checksums">
      ${sound == null ? "Check the record" : isOld ? `sound up to #${sound.serial}, check again` : sound.isSound ? html`<span aria-hidden="true">✓ </span>sound ${sound.serial >= 0 && html`<code>${sound.serial}:${sound.checksum.slice(0, 8)}</code>`}` : html`<span aria-hidden="true">✕ </span>broken at #${sound.badSerial}`}</button>`}
    <button class="goto" onClick=${() => (paletteIsOpen.value = true)}>Go to anything <kbd>⌘K</kbd></button>
    <button onClick=${change} aria-label=${theme.value === "dark" ? "Use the light theme" : "Use the dark theme"}><span aria-hidden="true">${theme.value === "dark" ? "☾" : "☼"}</span></button>
  </header>`;
}

/** What there is in a session, as it is now. @param {SessionRecord | null} record @param {string} words */
function useWords(record, words) {
  void record?.version.value;
  const [summary, setSummary] = useState(/** @type {any} */ (null));
  const length = record?.length ?? 0;
  useEffect(() => {
    if (!record) return setSummary(null);
    const timer = setTimeout(() => get(`${record.path}/summary`).then(setSummary, () => {}), 600);
    return () => clearTimeout(timer);
  }, [record, length]);
  if (!record) return words;
  const entries = count(length, "entry", "entries");
  return summary ? `${entries}, ${count(summary.calls, "call")}, ${count(summary.models.length, "model")}, ${money(summary.cost)}` : entries;
}

/** @param {{words: string, record: SessionRecord | null}} given */
function Foot({ words: given, record }) {
  const words = useWords(record, given);
  return html`<footer class="foot"><div class="keys">${bindings.value.filter((each) => each.short).map((each) => html`<span>${each.keys.slice(0, 2).map((key) => html`<kbd>${named(key)}</kbd> `)}${each.short}</span>`)}
    <span><kbd>?</kbd> all keys</span></div><span class="grow"></span><span class="cut">${words}</span></footer>`;
}

/** @param {string} key */
const named = (key) => ({ Enter: "↵", Escape: "esc", ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→" })[key] ?? key;

function Help() {
  return html`<${Dialog} open=${helpIsOpen} title="All keys"><h2>All keys</h2>
    <dl class="keylist">${[...bindings.value, { keys: ["⌘K"], words: "go to anything" }, { keys: ["?"], words: "all keys" }, { keys: ["Escape"], words: "close what is open" }].map((each) =>
      html`<div><dt>${each.keys.map((key) => html`<kbd>${named(key)}</kbd> `)}</dt><dd>${each.words}</dd></div>`)}</dl>
    <p class="small dim" style=${{ marginTop: "12px" }}>No key acts while you type.</p></${Dialog}>`;
}

function Palette() {
  const [words, setWords] = useState("");
  const [sessions, setSessions] = useState(/** @type {any[]} */ ([]));
  const [canErase, setCanErase] = useState(false);
  const [place, setPlace] = useState(0);
  useLayoutEffect(() => {
    if (!paletteIsOpen.value) return;
    setWords("");
    setPlace(0);
    get("api/sessions", { count: 1 }).then((found) => setCanErase(!found.isReadOnly), () => {});
    allSessions().then(setSessions, () => {});
  }, [paletteIsOpen.value]);
  const { session } = route.value;
  const wanted = words.trim().toLowerCase();
  const choices = /** @type {{words: string, place?: string, run?: () => void}[]} */ ([]);
  const named = sessions.find((each) => each.id.toLowerCase() === wanted);
  if (named) choices.push({ words: `${named.id}  ${named.title ?? ""}`, place: link(named.id) });
  if (session && /^#?\d+$/.test(wanted)) choices.push({ words: `Entry ${wanted.replace("#", "#")} of this session`, place: link(session, "timeline", Number(wanted.replace("#", ""))) });
  if (session) for (const [name, title] of VIEWS) if (title.toLowerCase().includes(wanted)) choices.push({ words: title, place: link(session, name) });
  if (session && wanted) choices.push({ words: `Search for “${words}” in this session`, place: link(session, "timeline", null, { q: words }) });
  for (const each of sessions) if (each !== named && `${each.id} ${each.title}`.toLowerCase().includes(wanted)) choices.push({ words: `${each.id}  ${each.title ?? ""}`, place: link(each.id) });
  if ("all sessions".includes(wanted)) choices.push({ words: "All sessions", place: base });
  if (session && canErase && "erase this session".includes(wanted)) choices.push({ words: "Erase this session", run: () => (erasing.value = { session, onDone: () => {} }) });
  const shown = choices.slice(0, 12);
  const choose = (/** @type {number} */ index) => {
    paletteIsOpen.value = false;
    if (shown[index]?.place) go(/** @type {string} */ (shown[index].place));
    shown[index]?.run?.();
  };
  const typed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") choose(place);
    else if (event.key === "ArrowDown") setPlace(Math.min(place + 1, shown.length - 1));
    else if (event.key === "ArrowUp") setPlace(Math.max(place - 1, 0));
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} open=${paletteIsOpen} title="Go to anything" class="palette">
    <input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${shown.length ? `place-${place}` : undefined} aria-label="Go to anything" placeholder="A serial, a view, a session, words" value=${words} onInput=${(/** @type {any} */ event) => (setWords(event.target.value), setPlace(0))} onKeyDown=${typed} autofocus />
    <ul id="palette-list" role="listbox" aria-label="Places">${shown.map((each, index) => html`<li role="option" id=${`place-${index}`} aria-selected=${index === place} onClick=${() => choose(index)} class="choice"><span class="cut"><${Safe} text=${each.words} /></span></li>`)}</ul></${Dialog}>`;
}

function App() {
  const { view, session } = route.value;
  const [record, setRecord] = useState(/** @type {SessionRecord | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [round, setRound] = useState(0);
  useEffect(() => {
    setProblem(null);
    setRecord(null);
    bindings.value = [];
    forgetStored();
    document.title = session ? `${plain(session)}, Dragoman inspector` : "Dragoman inspector";
    if (!session) return;
    let isOver = false;
    const made = new SessionRecord(session);
    made.load().then(() => !isOver && setRecord(made), (error) => !isOver && setProblem(error));
    return () => {
      isOver = true;
    };
  }, [session, round]);
  const [words, setWords] = useState("");
  useEffect(() => {
    if (!record) return undefined;
    const timer = setInterval(() => document.hidden || record.gone.peek() || void record.refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [record]);
  const isOwn = record && record.id === session;
  const views = { timeline: TimelineView, context: ContextView, diff: RequestsView, cost: CostView, live: LiveView };
  const View = views[/** @type {keyof typeof views} */ (view)];
  const notice = broken.value || (isOwn && record?.gone.value);
  return html`<${Bar} key=${`bar of ${session}`} record=${isOwn ? record : null} />
    ${notice && html`<div class="notice" role="alert"><${Safe} text=${notice} /></div>`}
    <main id="main">
      ${view === "sessions" && html`<${SessionsView} setWords=${setWords} />`}
      ${view === "unknown" && html`<${Trouble} problem=${{ message: "This page has no such view." }} /><p class="note"><a href=${link(session)}>Open the timeline of the session</a></p>`}
      ${view !== "sessions" && problem && html`<${Trouble} problem=${problem} retry=${() => setRound(round + 1)} />`}
      ${view !== "sessions" && !problem && !isOwn && html`<${Skeleton} />`}
      ${isOwn && View && html`<${View} record=${record} key=${view} theme=${theme.value} />`}
    </main>
    <${Foot} key=${`foot of ${session}`} words=${words} record=${isOwn ? record : null} /><${Help} /><${Palette} /><${Dialogs} />
    <div class="hidden" aria-live="polite" role="status">${toast.value}</div>${toast.value && html`<div class="toast">${toast.value}</div>`}`;
}

startRouter();
startKeys();
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.textContent = "";
render(html`<${App} />`, root);
