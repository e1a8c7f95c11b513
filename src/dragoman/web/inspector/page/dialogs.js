// @ts-check
// Small dialogs that any view opens: go to a serial, fork, erase.
import { html, signal, useLayoutEffect, useState } from "./vendor/libraries.js";
import { allSessions, ApiError, post, sessionPath } from "./api.js";
import { tell } from "./keys.js";
import { Dialog, Trouble } from "./parts.js";
import { base, go, link, route } from "./router.js";
import { Safe } from "./safetext.js";
import { integer } from "./words.js";

export const goingTo = signal(/** @type {{newest: number, choose: (serial: number) => void} | null} */ (null));
export const forking = signal(/** @type {{session: string, serial: number, newest: number, view?: string} | null} */ (null));
export const erasing = signal(/** @type {{session: string, onDone: () => void} | null} */ (null));

/** @param {any} event */
const typedIn = (event) => String(event.target.value);

/** @param {() => void} act */
const onEnter = (act) => (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  act();
};

/** A serial as it is typed, with or without its sign. @param {string} text @param {number} newest */
function serialIn(text, newest) {
  const found = /^#?(\d{1,15})$/.exec(text.trim());
  return found && Number(found[1]) <= newest ? Number(found[1]) : null;
}

function GoTo() {
  const [text, setText] = useState("");
  const given = goingTo.value;
  useLayoutEffect(() => setText(""), [given]);
  const serial = serialIn(text, given?.newest ?? -1);
  const act = () => {
    if (serial === null) return;
    goingTo.value = null;
    given?.choose(serial);
  };
  return html`<${Dialog} open=${goingTo} title="Go to a serial" class="small-dialog"><h2>Go to a serial</h2>
    <div class="row"><input type="text" inputmode="numeric" class="grow" aria-label="Serial" placeholder=${`0 to ${given?.newest}`} value=${text} autofocus onInput=${(/** @type {any} */ event) => setText(typedIn(event))} onKeyDown=${onEnter(act)} /><button class="primary" disabled=${serial === null} onClick=${act}>Go</button></div>
    ${text.trim() && serial === null && html`<p class="warn small" role="alert">There is no such entry: the newest is #${given?.newest}.</p>`}</${Dialog}>`;
}

function Fork() {
  const [id, setId] = useState("");
  const [at, setAt] = useState("");
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const given = forking.value;
  useLayoutEffect(() => {
    setId("");
    setAt(String(given?.serial ?? ""));
    setProblem(null);
  }, [given]);
  const serial = serialIn(at, given?.newest ?? -1);
  const act = async () => {
    if (!given || serial === null || isBusy) return;
    setBusy(true);
    try {
      const made = await post(`${sessionPath(given.session)}/fork`, { serial, id: id.trim() });
      forking.value = null;
      tell(`Forked at #${serial}.`);
      go(link(made.session, given.view));
    } catch (error) {
      setProblem(id.trim() && error instanceof ApiError && error.code === "conflict" ? { message: `The id “${id.trim()}” is taken. Choose another one.` } : error);
    } finally {
      setBusy(false);
    }
  };
  return html`<${Dialog} open=${forking} title="Fork" class="small-dialog"><h2>Fork this session</h2>
    <p class="dim small">A new session that shares the first entries of this one. This session is left as it is.</p>
    <label class="named">Last entry that both share<input type="text" inputmode="numeric" value=${at} onInput=${(/** @type {any} */ event) => setAt(typedIn(event))} onKeyDown=${onEnter(act)} /></label>
    ${serial === null && html`<p class="warn small" role="alert">A serial from 0 to ${given?.newest}.</p>`}
    <label class="named">Id of the fork<input type="text" placeholder="a random id" value=${id} autofocus onInput=${(/** @type {any} */ event) => setId(typedIn(event))} onKeyDown=${onEnter(act)} /></label>
    ${problem && html`<${Trouble} problem=${problem} />`}
    <div class="row ends"><button onClick=${() => (forking.value = null)}>Cancel</button><button class="primary" disabled=${isBusy || serial === null} onClick=${act}>Fork</button></div></${Dialog}>`;
}

/** The forks of a session, and theirs. @param {any[]} sessions @param {string} id @returns {string[]} */
function forksOf(sessions, id) {
  const own = sessions.filter((each) => each.forkedFrom?.id === id).map((each) => each.id);
  return own.flatMap((each) => [each, ...forksOf(sessions, each)]);
}

function Erase() {
  const [text, setText] = useState("");
  const [forks, setForks] = useState(/** @type {string[]} */ ([]));
  const [withForks, setWithForks] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const given = erasing.value;
  useLayoutEffect(() => {
    setText("");
    setForks([]);
    setWithForks(false);
    setProblem(null);
    if (given) allSessions().then((sessions) => setForks(forksOf(sessions, given.session)), setProblem);
  }, [given]);
  const isReady = given !== null && text === given.session && !isBusy;
  const act = async () => {
    if (!given || !isReady) return;
    setBusy(true);
    try {
      await post(`${sessionPath(given.session)}/erase`, { confirm: text, forks: withForks ? forks : [] });
      erasing.value = null;
      tell("The session is erased.");
      if (route.peek().session) go(base); // the list stays as it was searched
      given.onDone();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<${Dialog} open=${erasing} title="Erase" class="small-dialog"><h2>Erase this session</h2>
    <p>All entries of <code class="wrapped"><${Safe} text=${given?.session ?? ""} /></code> are removed for good. You cannot undo this.</p>
    ${forks.length > 0 && html`<label class="row"><input type="checkbox" checked=${withForks} onChange=${() => setWithForks(!withForks)} /> also its ${forks.length === 1 ? "fork" : `${integer(forks.length)} forks`}: <span class="cut"><${Safe} text=${forks.join(", ")} /></span></label>`}
    <label class="named">Type its id<input type="text" autocomplete="off" value=${text} autofocus onInput=${(/** @type {any} */ event) => setText(typedIn(event))} onKeyDown=${onEnter(act)} /></label>
    ${problem && html`<${Trouble} problem=${problem} />`}
    <div class="row ends"><button onClick=${() => (erasing.value = null)}>Cancel</button><button class="danger" disabled=${!isReady} onClick=${act}>Erase</button></div></${Dialog}>`;
}

export const Dialogs = () => html`<${GoTo} /><${Fork} /><${Erase} />`;
