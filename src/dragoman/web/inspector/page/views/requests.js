// @ts-check
// Two requests beside each other: of two providers at one serial, of two turns of one, or of two sessions.
import { diffLines, html, useLayoutEffect, useMemo, useRef, useState } from "../vendor/libraries.js";
import { get, sessionPath } from "../api.js";
import { BodyDiff } from "../bodydiff.js";
import { previous } from "../entrypanel.js";
import { bindings, tell } from "../keys.js";
import { scrollBox, Skeleton, Tile, Trouble, useLoaded } from "../parts.js";
import { go, link, route } from "../router.js";
import { plain, Safe, safe } from "../safetext.js";
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

/** @param {{row: any, load: () => Promise<any>}} given */
function Row({ row: given, load }) {
  const [opened, setOpened] = useState(/** @type {any} */ (null)); // the same row with all of its texts
  const row = opened ?? given;
  const open = () => (opened ? setOpened(null) : load().then(setOpened, (error) => tell(error.message)));
  const hasMore = isLong(given.left) || isLong(given.right);
  const [sign, words, tone] = STATES[row.state];
  const left = row.left === null ? null : lines(row.left, opened !== null);
  const right = row.right === null ? null : lines(row.right, opened !== null);
  const [leftMarks, rightMarks] = useMemo(() => {
    const marks = [new Set(), new Set()];
    if (!left || !right || row.state === "equal") return marks;
    let [a, b] = [0, 0];
    for (const piece of diffLines(left.map((line) => line.replace(/,$/, "")).join("\n") + "\n", right.map((line) => line.replace(/,$/, "")).join("\n") + "\n")) {
      const count = piece.count ?? 0;
      for (let index = 0; index < count; index += 1) {
        if (piece.added) marks[1].add(b + index);
        else if (piece.removed) marks[0].add(a + index);
      }
      if (!piece.added) a += count;
      if (!piece.removed) b += count;
    }
    return marks;
  }, [row]);
  const side = (/** @type {string[] | null} */ shown, /** @type {Set<any>} */ marks, /** @type {string} */ name) =>
    shown === null ? html`<div class="side-cell missing"><span class="hidden">nothing</span></div>` : html`<div class=${`side-cell ${row.state === name ? "onlyhere" : ""}`}>${shown.slice(0, 400).map((line, index) => html`<div class=${marks.has(index) ? "changedline" : ""}><pre>${safe(line)}</pre></div>`)}${shown.length > 400 ? html`<p class="dim small">${shown.length - 400} more lines</p>` : ""}</div>`;
  return html`<div class="diffrow" data-state=${row.state} data-unit=${row.key}>${side(left, leftMarks, "left")}<div class="between"><span class="mono small cut">${plain(row.key)}</span><span class=${`small ${tone}`}>${sign} ${words}</span>${hasMore && html`<button class="link small" aria-expanded=${opened !== null} onClick=${open}>${opened ? "shorten" : "all text"}</button>`}</div>${side(right, rightMarks, "right")}</div>`;
}

/** @param {{record: SessionRecord}} given */
export function RequestsView({ record }) {
  const { query } = route.value;
  const calls = useMemo(() => {
    const made = [];
    for (let serial = 0; serial < record.length; serial += 1) if (record.kindOf(serial) === "model_output") made.push(serial);
    return made;
  }, [record, record.length]);
  const newest = calls[calls.length - 1];
  const own = record.lastModel() ?? "anthropic:claude-opus-4-5";
  const other = record.models.find((name) => name !== own) ?? (own.startsWith("anthropic") ? "openai:gpt-5.1" : "anthropic:claude-opus-4-5");
  const beside = query.get("other") ?? "";
  const a = query.get("a") ?? (beside ? "last" : `@${own}`);
  const b = query.get("b") ?? (beside ? "last" : `@${other}`);
  const [atA, atB] = [a, b].map((side) => side.split("@")[0]);
  const isTurns = !beside && atA !== "" && atB !== "";
  const found = useLoaded(() => get(`${record.path}/differences`, { a, b, other: beside }), [record, a, b, beside]);
  const [mode, setMode] = useState(/** @type {"entry" | "line" | "bytes"} */ ("entry"));
  const sideOf = (/** @type {string} */ side, /** @type {boolean} */ isRight) => {
    const [at, model] = side.includes("@") ? side.split(/@(.*)/s) : [side, ""];
    return { path: isRight && beside ? sessionPath(beside) : record.path, query: { at, model } };
  };
  const models = useLoaded(() => get("api/models"), []);
  const [changesOnly, setChangesOnly] = useState(false);
  const [isUnfolded, setUnfolded] = useState(false);
  const [isWrapped, setWrapped] = useState(true);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const show = (/** @type {string} */ left, /** @type {string} */ right) => go(link(record.id, "diff", null, { a: left, b: right, other: beside }), true);
  const alone = (/** @type {string} */ left, /** @type {string} */ right) => go(link(record.id, "diff", null, { a: left, b: right }), true);
  const turns = () => newest !== undefined && alone(previous(record, newest), String(newest));
  const providers = () => alone(`@${own}`, `@${other}`);
  const rows = found.value?.rows ?? [];
  const shown = folded(rows, changesOnly, isUnfolded);
  const jump = (/** @type {number} */ by) => {
    const all = [...(box.current?.querySelectorAll('.diffrow:not([data-state="equal"]):not([data-state="words"])') ?? [])];
    const top = box.current?.getBoundingClientRect().top ?? 0;
    const places = all.map((each) => each.getBoundingClientRect().top - top);
    const next = by > 0 ? all[places.findIndex((place) => place > 4)] : all[places.findLastIndex((place) => place < -4)];
    scrollBox(box.current, next, true);
  };
  const copy = async (/** @type {boolean[]} */ sides) => {
    try {
      const asked = sides.map((isRight) => sideOf(isRight ? b : a, isRight));
      const requests = await Promise.all(asked.map((side) => get(`${side.path}/request`, side.query)));
      const refused = requests.find((each) => each.curl === null);
      if (refused) return tell(refused.curlProblem);
      await navigator.clipboard.writeText(requests.map((each) => each.curl).join("\n\n"));
      tell(`${sides.length > 1 ? "Both requests are" : "The request is"} copied as curl. The key is a variable.`);
    } catch (error) {
      tell(/** @type {Error} */ (error).message);
    }
  };
  const shift = (/** @type {number} */ by) => {
    if (!isTurns) return;
    const place = calls.indexOf(Number(atB)) + by;
    if (calls[place] !== undefined) show(previous(record, calls[place]), String(calls[place]));
  };
  useLayoutEffect(() => {
    bindings.value = [
      { keys: ["n"], words: "next change", short: "change", run: () => jump(1) },
      { keys: ["N"], words: "change before", run: () => jump(-1) },
      { keys: ["="], words: "show or fold what is equal", short: isUnfolded ? "fold" : "unfold", run: () => (setChangesOnly(false), setUnfolded(!isUnfolded)) },
      { keys: ["w"], words: "wrap long lines, or not", short: "wrap", run: () => setWrapped(!isWrapped) },
      { keys: ["s"], words: "swap sides", short: "swap sides", run: () => (beside ? go(link(beside, "diff", null, { a: b, b: a, other: record.id }), true) : show(b, a)) },
      { keys: ["b"], words: "by entry, by line, or bytes", short: "entry, line, bytes", run: () => setMode(mode === "entry" ? "line" : mode === "line" ? "bytes" : "entry") },
      { keys: ["t"], words: "turns or providers", short: "turns or providers", run: () => (isTurns ? providers() : turns()) },
      { keys: ["]"], words: "next call", run: () => shift(1) },
      { keys: ["["], words: "call before", run: () => shift(-1) },
      { keys: ["y"], words: "copy the right request as curl", short: "copy curl", run: () => copy([true]) },
      { keys: ["Y"], words: "copy both requests as curl", run: () => copy([false, true]) },
    ];
  });
  const pick = (/** @type {"a" | "b"} */ name, /** @type {string} */ model) => {
    const at = (name === "a" ? a : b).split("@")[0];
    const made = `${at}@${model}`;
    name === "a" ? show(made, b) : show(a, made);
  };
  const value = found.value;
  const heads = ["left", "right"].map((name) => {
    const isRight = name === "right";
    const spec = isRight ? b : a;
    const named = spec.includes("@") ? spec.slice(spec.indexOf("@") + 1) : record.modelOf(Number(spec)) ?? own;
    const side = value?.[name] ?? { model: named, notes: [], specification: "" };
    return html`<${SideHead} key=${name} side=${side} spec=${spec} label=${isRight ? "Model on the right" : "Model on the left"} onPick=${(/** @type {string} */ model) => pick(isRight ? "b" : "a", model)} onCopy=${() => copy([isRight])} />`;
  });
  return html`<div class="requests">
    <aside class="rail scroll" aria-label="Parts of the requests"><div class="pad"><div class="tabs" role="group" aria-label="What to compare"><button aria-pressed=${!isTurns && !beside} onClick=${providers}>Providers</button><button aria-pressed=${isTurns} onClick=${turns}>Turns</button></div>
        <p class="small dim">${beside ? html`The newest call beside that of <a href=${link(beside)}><${Safe} text=${beside} /></a>` : isTurns ? `Call #${atA} beside #${atB}: ${a.includes("@") || b.includes("@") ? "what would have been sent" : "what was sent"}` : "The next call: what would be sent"}</p>
        ${isTurns && html`<div class="row"><button onClick=${() => shift(-1)} aria-label="Call before">‹</button><button onClick=${() => shift(1)} aria-label="Next call">›</button></div>`}</div>
      <ul class="units">${grouped(rows).map((each) => html`<li><button class="plain" onClick=${() => box.current&& scrollBox(box.current, box.current.querySelector(`[data-unit="${CSS.escape(each.key)}"], [data-holds~="${CSS.escape(each.key.replaceAll(" ", "_"))}"]`), true)}><span class=${STATES[each.state][2]} aria-hidden="true">${STATES[each.state][0]}</span><span class="hidden">${STATES[each.state][1]}</span><span class="cut grow">${plain(each.key)}</span><span class="dim">${each.count}</span></button></li>`)}</ul></aside>
    <div class="diffmain">
      ${found.problem && html`<${Trouble} problem=${found.problem} retry=${found.reload} />`}
      ${value && html`<div class="diffhead row wrap"><span class="dim small">Size</span><strong>${bytes(value.left.bytes)} / ${bytes(value.right.bytes)}</strong><span class="dim small">Tokens, about</span><strong>${integer(value.left.tokens)} / ${integer(value.right.tokens)}</strong><span class="dim small">Price, cold</span><strong>${money(value.left.coldPrice)} / ${money(value.right.coldPrice)}</strong><span class="grow"></span>
        <button onClick=${() => copy([false, true])}>Copy both</button><label class="row small"><input type="checkbox" checked=${changesOnly} onChange=${() => setChangesOnly(!changesOnly)} /> only changes</label>
        <div class="tabs" role="group" aria-label="How to compare">${/** @type {const} */ ([["entry", "By entry"], ["line", "By line"], ["bytes", "Bytes"]]).map(([name, words]) => html`<button aria-pressed=${mode === name} onClick=${() => setMode(name)}>${words}</button>`)}</div></div>`}
      ${(value || found.problem) && html`<div class="sides">${heads}</div><datalist id="requestmodels">${(models.value?.models ?? []).map((/** @type {string} */ name) => html`<option value=${name}></option>`)}</datalist>`}
      <div class=${`scroll diffrows ${isWrapped ? "" : "nowraplines"}`} ref=${box} tabindex="0" role="region" aria-label="Requests beside each other">
        ${!value && !found.problem ? html`<${Skeleton} />` : ""}
        ${value && mode !== "entry" && html`<${BodyDiff} left=${sideOf(a, false)} right=${sideOf(b, true)} mode=${mode} />`}
        ${value && mode === "entry" && (isTurns || beside) && html`<div class="byteline">${value.isSame ? "Both requests are the same, byte for byte." : html`<strong>Byte ${integer(value.commonBytes)}</strong>: up to here both are equal, ${((100 * value.commonBytes) / Math.max(value.right.bytes, 1)).toFixed(1)}% of ${integer(value.right.bytes)}. <code>${safe(value.around[0].after.slice(0, 60))}</code> became <code>${safe(value.around[1].after.slice(0, 60))}</code>`}</div>`}
        ${mode === "entry" && shown.map((each) => (each.fold ? html`<button class="foldrow" aria-expanded="false" data-holds=${each.holds} onClick=${() => (setChangesOnly(false), setUnfolded(true))}>${each.fold}</button>` : html`<${Row} key=${`${a} ${b} ${each.index}`} row=${each.row} load=${() => get(`${record.path}/differences`, { a, b, other: beside, row: each.index }).then((answer) => answer.row)} />`))}
      </div></div></div>`;
}

/** @param {{side: any, spec: string, label: string, onPick: (model: string) => void, onCopy: () => void}} given */
function SideHead({ side, spec, label, onPick, onCopy }) {
  const at = spec.split("@")[0];
  return html`<div class="sidehead row wrap"><${Tile} model=${side.model} /><input list="requestmodels" aria-label=${label} value=${side.model} title=${plain(side.model)} onFocus=${(/** @type {any} */ event) => event.target.select()} onChange=${(/** @type {any} */ event) => event.target.value && event.target.value !== side.model && onPick(event.target.value)} /><span class="dim small cut" title=${plain(side.notes.join("; "))}>${side.specification}${at === "last" ? " newest call" : at ? ` #${at}` : ""}${side.notes.length ? ` (${plain(side.notes[0]).slice(0, 40)})` : ""}</span><span class="grow"></span><button onClick=${onCopy}>Copy curl</button></div>`;
}

/** Rows with runs of equal ones folded. @param {any[]} rows @param {boolean} changesOnly @param {boolean} isUnfolded */
function folded(rows, changesOnly, isUnfolded) {
  /** @type {any[]} */
  const made = [];
  const isQuiet = (/** @type {any} */ row) => (row.state === "equal" && !isUnfolded) || (changesOnly && row.state === "words");
  for (let index = 0; index < rows.length; index += 1) {
    let end = index;
    while (end < rows.length && isQuiet(rows[end])) end += 1;
    if (end - index > (changesOnly ? 0 : 2)) {
      made.push({ fold: `${count(end - index, "part")} ${changesOnly ? "equal or of the same words" : "equal"}: ${plain(rows[index].key)} to ${plain(rows[end - 1].key)}`, holds: rows.slice(index, end).map((row) => row.key.replaceAll(" ", "_")).join(" ") });
      index = end - 1;
    } else made.push({ row: rows[index], index });
  }
  return made.slice(0, 800);
}

/** @param {any[]} rows */
function grouped(rows) {
  /** @type {{key: string, state: string, count: number}[]} */
  const made = [];
  for (const row of rows) {
    const key = row.key;
    const last = made[made.length - 1];
    if (last && last.key === key) {
      last.count += 1;
      if (last.state !== row.state) last.state = "different";
    } else made.push({ key, state: row.state, count: 1 });
  }
  return made.slice(0, 600);
}
