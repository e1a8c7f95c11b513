// @ts-check
// Two requests beside each other: of two providers at one serial, of two turns of one, or of two sessions.
import { diffLines, html, useCallback, useLayoutEffect, useMemo, useRef, useState } from "../vendor/libraries.js";
import { get, sessionPath } from "../api.js";
import { BodyDiff } from "../bodydiff.js";
import { besides } from "../entrypanel.js";
import { bindings, tell } from "../keys.js";
import { beginning } from "../longtext.js";
import { Skeleton, Tile, Trouble, useFirst, useLoaded } from "../parts.js";
import { go, link, route } from "../router.js";
import { plain, Safe, safe } from "../safetext.js";
import { useStored } from "../stored.js";
import { VirtualList } from "../virtual.js";
import { bytes, count, money, integer } from "../words.js";

/** @typedef {import("../record.js").SessionRecord} SessionRecord */

const STATES = /** @type {Record<string, [string, string, string]>} */ ({
  equal: ["=", "equal", "dim"], words: ["≈", "same words", "accent"], different: ["≠", "differs", "miss"], left: ["◂", "only left", "bad"], right: ["▸", "only right", "ok"],
});
const LONG = 110; // characters of one text, before it is opened

/** JSON in lines, long texts in one line each; what the server cut is `{$cut: {head, length}}`. @param {any} value @param {boolean} isOpen */
function lines(value, isOpen) {
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value;
  const shorter = (/** @type {string} */ text, /** @type {number} */ length) => (length > LONG && !isOpen ? `${text.slice(0, LONG)}… ${integer(length)} characters` : text.length < length ? `${text}… ${integer(length)} characters` : text);
  return JSON.stringify(value, (_, each) => (typeof each === "string" ? shorter(each, each.length) : each?.$cut ? shorter(each.$cut.head, each.$cut.length) : each), 2).split("\n");
}

/** @param {any} value @returns {boolean} whether a text in it is shown cut */
function isLong(value) {
  if (typeof value === "string") return value.length > LONG;
  return value !== null && typeof value === "object" && ("$cut" in value || Object.values(value).some(isLong));
}

/** The lines of both sides that differ. @param {string[] | null} left @param {string[] | null} right @returns {Set<number>[]} */
function markChanges(left, right) {
  const marks = [new Set(), new Set()];
  if (!left || !right) return marks;
  const joined = (/** @type {string[]} */ side) => side.map((line) => line.replace(/,$/, "")).join("\n") + "\n";
  let [a, b] = [0, 0];
  for (const piece of diffLines(joined(left), joined(right))) {
    const length = piece.count ?? 0;
    for (let index = 0; index < length; index += 1) {
      if (piece.added) marks[1].add(b + index);
      else if (piece.removed) marks[0].add(a + index);
    }
    if (!piece.added) a += length;
    if (!piece.removed) b += length;
  }
  return marks;
}

/** One side of a row. @param {{shown: string[] | null, marks: Set<number>, isOnly: boolean}} given */
function Side({ shown, marks, isOnly }) {
  const [first, more] = useFirst(shown ?? [], 400);
  if (shown === null) return html`<div class="side-cell missing"><span class="hidden">nothing</span></div>`;
  return html`<div class=${`side-cell ${isOnly ? "onlyhere" : ""}`}>${first.map((line, index) => html`<div class=${marks.has(index) ? "changedline" : ""}><pre>${safe(line)}</pre></div>`)}${more}</div>`;
}

/** @param {{row: any, name: string, load: () => Promise<any>}} given */
function Row({ row: given, name, load }) {
  const [opened, setOpened] = useStored(name, /** @type {any} */ (null)); // the same row with all of its texts
  const row = opened ?? given;
  const open = () => (opened ? setOpened(null) : load().then(setOpened, (error) => tell(error.message)));
  const hasMore = isLong(given.left) || isLong(given.right);
  const [sign, words, tone] = STATES[row.state];
  const [left, right] = [row.left, row.right].map((side) => (side === null ? null : lines(side, opened !== null)));
  const [leftMarks, rightMarks] = useMemo(() => (row.state === "equal" ? [new Set(), new Set()] : markChanges(left, right)), [row]);
  return html`<div class="diffrow" data-state=${row.state} data-unit=${row.key}><${Side} shown=${left} marks=${leftMarks} isOnly=${row.state === "left"} /><div class="between"><span class="mono small cut">${plain(row.key)}</span><span class=${`small ${tone}`}>${sign} ${words}</span>${hasMore && html`<button class="link small" aria-expanded=${opened !== null} onClick=${open}>${opened ? "shorten" : "all text"}</button>`}</div><${Side} shown=${right} marks=${rightMarks} isOnly=${row.state === "right"} /></div>`;
}

/** What the address compares: `a` and `b` are `serial`, `serial@model` or `@model`. @param {SessionRecord} record */
function comparison(record) {
  const { query } = route.value;
  const own = record.lastModel() ?? "anthropic:claude-opus-4-5";
  const another = record.models.find((name) => name !== own) ?? (own.startsWith("anthropic") ? "openai:gpt-5.1" : "anthropic:claude-opus-4-5");
  const beside = query.get("other") ?? "";
  const a = query.get("a") ?? (beside ? "last" : `@${own}`);
  const b = query.get("b") ?? (beside ? "last" : `@${another}`);
  const [atA, atB] = [a, b].map((side) => side.split("@")[0]);
  return { own, another, beside, a, b, atA, atB, isTurns: !beside && atA !== "" && atB !== "" };
}

/** @typedef {ReturnType<typeof comparison>} Comparison */

/** What leads from one comparison to another. @param {SessionRecord} record @param {Comparison} compared */
function movesOf(record, { own, another, beside, a, b, atB, isTurns }) {
  const open = (/** @type {string} */ left, /** @type {string} */ right, other = "") => go(link(record.id, "diff", null, { a: left, b: right, other }), true);
  const newest = record.find("model_output", record.length - 1, -1);
  return {
    turns: () => newest !== null && go(besides(record, newest), true),
    providers: () => open(`@${own}`, `@${another}`),
    swap: () => (beside ? go(link(beside, "diff", null, { a: b, b: a, other: record.id }), true) : open(b, a)),
    shift: (/** @type {1 | -1} */ by) => {
      const next = isTurns ? record.find("model_output", Number(atB) + by, by) : null;
      if (next !== null) go(besides(record, next), true);
    },
    pick: (/** @type {boolean} */ isRight, /** @type {string} */ model) => {
      const made = `${(isRight ? b : a).split("@")[0]}@${model}`;
      open(isRight ? a : made, isRight ? made : b, beside);
    },
  };
}

/** The request of one side, as the server takes it. @param {SessionRecord} record @param {Comparison} compared @param {boolean} isRight */
function sideOf(record, { a, b, beside }, isRight) {
  const side = isRight ? b : a;
  const [at, model] = side.includes("@") ? side.split(/@(.*)/s) : [side, ""];
  return { path: isRight && beside ? sessionPath(beside) : record.path, query: { at, model } };
}

/** Copy requests as curl. @param {{path: string, query: Record<string, string>}[]} sides */
async function copyRequests(sides) {
  try {
    const requests = await Promise.all(sides.map((side) => get(`${side.path}/request`, side.query)));
    const refused = requests.find((each) => each.curl === null);
    if (refused) return tell(refused.curlProblem);
    await navigator.clipboard.writeText(requests.map((each) => each.curl).join("\n\n"));
    tell(`${sides.length > 1 ? "Both requests are" : "The request is"} copied as curl. The key is a variable.`);
  } catch (error) {
    tell(/** @type {Error} */ (error).message);
  }
}

const MODES = /** @type {const} */ (["entry", "line", "bytes"]);
const isChange = (/** @type {any} */ row) => row.state !== "equal" && row.state !== "words";

/** The rows of a comparison, of which those on screen are in the page. @param {{record: SessionRecord, compared: Comparison, shown: Shown[], rows: any[], handle: any, onUnfold: () => void}} given */
function Rows({ record, compared, shown, rows, handle, onUnfold }) {
  const { a, b, beside } = compared;
  const keys = useMemo(() => shown.map((each) => each.index), [shown]);
  const folds = useMemo(() => new Map(shown.map((each) => [each.index, each.fold])), [shown]);
  const load = (/** @type {number} */ index) => get(`${record.path}/differences`, { a, b, other: beside, row: index }).then((answer) => answer.row);
  const item = useCallback((/** @type {number} */ index) => {
    const fold = folds.get(index);
    if (fold) return html`<button class="foldrow" aria-expanded="false" onClick=${onUnfold}>${fold}</button>`;
    return html`<${Row} key=${`${a} ${b} ${index}`} name=${`${record.path} ${a} ${b} ${beside} ${index}`} row=${rows[index]} load=${() => load(index)} />`;
  }, [folds, rows]);
  return html`<${VirtualList} keys=${keys} label="Requests beside each other" class="diffrows" handle=${handle} estimate=${(/** @type {number} */ index) => (folds.get(index) ? 32 : 90)} item=${item} />`;
}

/** @param {{record: SessionRecord}} given */
export function RequestsView({ record }) {
  const compared = comparison(record);
  const { own, beside, a, b, atA, atB, isTurns } = compared;
  const { turns, providers, swap, shift, pick } = movesOf(record, compared);
  const found = useLoaded(() => get(`${record.path}/differences`, { a, b, other: beside }), [record, a, b, beside]);
  const models = useLoaded(() => get("api/models"), []);
  const [mode, setMode] = useState(/** @type {"entry" | "line" | "bytes"} */ ("entry"));
  const [changesOnly, setChangesOnly] = useState(false);
  const [isUnfolded, setUnfolded] = useState(false);
  const [isWrapped, setWrapped] = useState(true);
  const handle = useRef(/** @type {any} */ (null));
  const value = found.value;
  const rows = value?.rows ?? NO_ROWS;
  const shown = useMemo(() => folded(rows, changesOnly, isUnfolded), [rows, changesOnly, isUnfolded]);
  const jump = (/** @type {1 | -1} */ by) => {
    const top = handle.current?.top() ?? 0;
    const changes = shown.filter((each) => !each.fold && isChange(rows[each.index])).map((each) => each.index);
    const next = by > 0 ? changes.find((index) => index > top) : changes.findLast((index) => index < top);
    if (next !== undefined) handle.current?.scrollTo(next);
  };
  const copy = (/** @type {boolean[]} */ sides) => copyRequests(sides.map((isRight) => sideOf(record, compared, isRight)));
  const unfold = (/** @type {boolean} */ isOpen) => (setChangesOnly(false), setUnfolded(isOpen));
  useLayoutEffect(() => {
    bindings.value = [
      { keys: ["n"], words: "next change", short: "change", run: () => jump(1) },
      { keys: ["N"], words: "change before", run: () => jump(-1) },
      { keys: ["="], words: "show or fold what is equal", short: isUnfolded ? "fold" : "unfold", run: () => unfold(!isUnfolded) },
      { keys: ["w"], words: "wrap long lines, or not", short: "wrap", run: () => setWrapped(!isWrapped) },
      { keys: ["s"], words: "swap sides", short: "swap sides", run: swap },
      { keys: ["b"], words: "by entry, by line, or bytes", short: "entry, line, bytes", run: () => setMode(MODES[(MODES.indexOf(mode) + 1) % MODES.length]) },
      { keys: ["t"], words: "turns or providers", short: "turns or providers", run: () => (isTurns ? providers() : turns()) },
      { keys: ["]"], words: "next call", run: () => shift(1) },
      { keys: ["["], words: "call before", run: () => shift(-1) },
      { keys: ["y"], words: "copy the right request as curl", short: "copy curl", run: () => copy([true]) },
      { keys: ["Y"], words: "copy both requests as curl", run: () => copy([false, true]) },
    ];
  });
  const heads = [false, true].map((isRight) => {
    const spec = isRight ? b : a;
    const named = spec.includes("@") ? spec.slice(spec.indexOf("@") + 1) : record.modelOf(Number(spec)) ?? own;
    const side = value?.[isRight ? "right" : "left"] ?? { model: named, notes: [], specification: "" };
    return html`<${SideHead} key=${isRight} side=${side} spec=${spec} label=${isRight ? "Model on the right" : "Model on the left"} onPick=${(/** @type {string} */ model) => pick(isRight, model)} onCopy=${() => copy([isRight])} />`;
  });
  const wordsOfTurns = `Call #${atA} beside #${atB}: ${a.includes("@") || b.includes("@") ? "what would have been sent" : "what was sent"}`;
  return html`<div class="requests">
    <aside class="rail scroll" aria-label="Parts of the requests"><div class="pad"><div class="tabs" role="group" aria-label="What to compare"><button aria-pressed=${!isTurns && !beside} onClick=${providers}>Providers</button><button aria-pressed=${isTurns} onClick=${turns}>Turns</button></div>
        <p class="small dim">${beside ? html`The newest call beside that of <a href=${link(beside)}><${Safe} text=${beside} /></a>` : isTurns ? wordsOfTurns : "The next call: what would be sent"}</p>
        ${isTurns && html`<div class="row"><button onClick=${() => shift(-1)} aria-label="Call before">‹</button><button onClick=${() => shift(1)} aria-label="Next call">›</button></div>`}</div>
      <ul class="units">${grouped(rows).map((each) => html`<li><button class="plain" onClick=${() => handle.current?.scrollTo(each.index)}><span class=${STATES[each.state][2]} aria-hidden="true">${STATES[each.state][0]}</span><span class="hidden">${STATES[each.state][1]}</span><span class="cut grow">${plain(each.key)}</span><span class="dim">${each.count}</span></button></li>`)}</ul></aside>
    <div class=${`diffmain ${isWrapped ? "" : "nowraplines"}`}>
      ${found.problem && html`<${Trouble} problem=${found.problem} retry=${found.reload} />`}
      ${value && html`<div class="diffhead row wrap"><span class="dim small">Size</span><strong>${bytes(value.left.bytes)} / ${bytes(value.right.bytes)}</strong><span class="dim small">Tokens, about</span><strong>${integer(value.left.tokens)} / ${integer(value.right.tokens)}</strong><span class="dim small">Price, cold</span><strong>${money(value.left.coldPrice)} / ${money(value.right.coldPrice)}</strong><span class="grow"></span>
        <button onClick=${() => copy([false, true])}>Copy both</button><label class="row small"><input type="checkbox" checked=${changesOnly} onChange=${() => setChangesOnly(!changesOnly)} /> only changes</label>
        <div class="tabs" role="group" aria-label="How to compare">${/** @type {const} */ ([["entry", "By entry"], ["line", "By line"], ["bytes", "Bytes"]]).map(([name, words]) => html`<button aria-pressed=${mode === name} onClick=${() => setMode(name)}>${words}</button>`)}</div></div>`}
      <div class="sides">${heads}</div><datalist id="requestmodels">${(models.value?.models ?? []).map((/** @type {string} */ name) => html`<option value=${name}></option>`)}</datalist>
      ${!value && !found.problem ? html`<${Skeleton} />` : ""}
      ${value && mode === "entry" && (isTurns || beside) && html`<${FirstByte} value=${value} />`}
      ${value && mode === "entry" && html`<${Rows} record=${record} compared=${compared} shown=${shown} rows=${rows} handle=${handle} onUnfold=${() => unfold(true)} />`}
      ${value && mode !== "entry" && html`<div class="scroll diffrows" tabindex="0" role="region" aria-label="Bodies of the requests"><${BodyDiff} left=${sideOf(record, compared, false)} right=${sideOf(record, compared, true)} mode=${mode} /></div>`}
    </div></div>`;
}

const NO_ROWS = /** @type {any[]} */ ([]);

/** @param {{value: any}} given */
const FirstByte = ({ value }) => html`<div class="byteline">${value.isSame ? "Both requests are the same, byte for byte." : html`<strong>Byte ${integer(value.commonBytes)}</strong>: up to here both are equal, ${((100 * value.commonBytes) / Math.max(value.right.bytes, 1)).toFixed(1)}% of ${integer(value.right.bytes)}. <code>${safe(beginning(value.around[0].after, 60))}</code> became <code>${safe(beginning(value.around[1].after, 60))}</code>`}</div>`;

/** @param {{side: any, spec: string, label: string, onPick: (model: string) => void, onCopy: () => void}} given */
function SideHead({ side, spec, label, onPick, onCopy }) {
  const at = spec.split("@")[0];
  return html`<div class="sidehead row wrap"><${Tile} model=${side.model} /><input list="requestmodels" aria-label=${label} value=${side.model} title=${plain(side.model)} onFocus=${(/** @type {any} */ event) => event.target.select()} onChange=${(/** @type {any} */ event) => event.target.value && event.target.value !== side.model && onPick(event.target.value)} /><span class="dim small cut" title=${plain(side.notes.join("; "))}>${side.specification}${at === "last" ? " newest call" : at ? ` #${at}` : ""}${side.notes.length ? ` (${beginning(plain(side.notes[0]), 40)})` : ""}</span><span class="grow"></span><button onClick=${onCopy}>Copy curl</button></div>`;
}

/** @typedef {{index: number, fold?: string}} Shown a row, or a run of rows that are folded into words */

/** Rows with runs of equal ones folded. @param {any[]} rows @param {boolean} changesOnly @param {boolean} isUnfolded @returns {Shown[]} */
function folded(rows, changesOnly, isUnfolded) {
  /** @type {Shown[]} */
  const made = [];
  const isQuiet = (/** @type {any} */ row) => (row.state === "equal" && !isUnfolded) || (changesOnly && row.state === "words");
  for (let index = 0; index < rows.length; index += 1) {
    let end = index;
    while (end < rows.length && isQuiet(rows[end])) end += 1;
    if (end - index > (changesOnly ? 0 : 2)) {
      made.push({ index, fold: `${count(end - index, "part")} ${changesOnly ? "equal or of the same words" : "equal"}: ${plain(rows[index].key)} to ${plain(rows[end - 1].key)}` });
      index = end - 1;
    } else made.push({ index });
  }
  return made;
}

/** The rows of one entry together, with the index of the first. @param {any[]} rows */
function grouped(rows) {
  /** @type {{key: string, state: string, count: number, index: number}[]} */
  const made = [];
  rows.forEach((row, index) => {
    const last = made[made.length - 1];
    if (last && last.key === row.key) {
      last.count += 1;
      if (last.state !== row.state) last.state = "different";
    } else made.push({ key: row.key, state: row.state, count: 1, index });
  });
  return made;
}
