// @ts-check
// What one model call was sent: by category in the order of the request, by level, with the epochs around it.
import { html, useEffect, useLayoutEffect, useState } from "../vendor/libraries.js";
import { get } from "../api.js";
import { besides, Kept, previous } from "../entrypanel.js";
import { bindings } from "../keys.js";
import { Level, Skeleton, Tile, Trouble, useFirst, useLoaded } from "../parts.js";
import { go, link, route } from "../router.js";
import { Safe, safe } from "../safetext.js";
import { count, modelName, moment, money, percent, seconds, integer } from "../words.js";
import { Epochs } from "../epochs.js";

/** @typedef {import("../record.js").SessionRecord} SessionRecord */

const CATEGORIES = /** @type {Record<string, string>} */ ({ system: "System", tools: "Tools", ledger: "Ledger", user: "User", assistant: "Assistant", results: "Tool results", screen: "Live screen" });

/** @param {any[]} parts */
function byCategory(parts) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const part of parts) sums.set(part.category, (sums.get(part.category) ?? 0) + part.tokens);
  return sums;
}

/** The parts of a request as pieces of a bar, neighbours of one category together. @param {any[]} parts */
function pieces(parts) {
  const made = /** @type {{category: string, tokens: number, anchors: number}[]} */ ([]);
  for (const part of parts) {
    const last = made[made.length - 1];
    if (last && last.category === part.category && !last.anchors) last.tokens += part.tokens;
    else made.push({ category: part.category, tokens: part.tokens, anchors: 0 });
    if (part.isAnchor) made[made.length - 1].anchors = 1;
  }
  return made;
}

/** The size of a request as it was estimated. @param {any} call */
const sizeOf = (call) => call.sent.fixed + call.sent.ledger + call.sent.turns + call.sent.live;

/** @param {any} call @returns {number | null} its size as the provider counted it */
const reported = (call) => call.usage?.inputTokens ?? null;

/** The most that the model of a call was sent before it, in the measure of the call: reported tokens, else estimated ones.
 * @param {any[]} calls @param {number} place @param {number} correction of estimates */
function highestBefore(calls, place, correction) {
  const own = calls[place];
  const isReported = reported(own) !== null;
  const sizes = calls.slice(0, place).filter((call) => call.model === own.model).map((call) => (isReported ? reported(call) ?? 0 : sizeOf(call) * correction));
  return sizes.reduce((most, size) => Math.max(most, size), 0);
}

/** The budget. It is unknown where the record shows that the run had a smaller one. @param {any} sent @param {any[]} calls */
function budgetOf(sent, calls) {
  const budget = sent.request?.budget ?? null;
  const isSmaller = calls.some((call, index) => index && call.epoch?.reason === "budget" && sizeOf(calls[index - 1]) < budget / 2);
  return isSmaller ? null : budget;
}

/** @param {{found: any}} given */
function SentBar({ found }) {
  const total = found.parts.reduce((/** @type {number} */ sum, /** @type {any} */ part) => sum + part.tokens, 0);
  const usage = found.usage ?? {};
  const sums = byCategory(found.parts);
  const cached = usage.cacheReadTokens;
  const share = usage.inputTokens ? Math.min((cached ?? 0) / usage.inputTokens, 1) : 0;
  let anchor = 0;
  // The bar is as long as the budget. A small request fills it, so that its parts can be seen; so does one of unknown budget.
  const budget = found.budget;
  const size = usage.inputTokens ?? total * found.correction;
  const isSmall = budget === null || size < budget / 4;
  const most = Math.max(isSmall ? size : budget, found.highest, 1);
  const filled = `${(100 * size) / most}%`;
  const high = found.highest > size ? found.highest : null;
  return html`<div class="budgetbar"><div class="sentbar" style=${{ width: filled }} role="img" aria-label=${`${integer(total)} tokens${budget === null ? "" : ` of a budget of ${integer(budget)}`}: ${[...sums].map(([name, tokens]) => `${CATEGORIES[name]} ${integer(tokens)}`).join(", ")}`}>
      ${pieces(found.parts).map((piece) => html`<span class=${`piece cat-${piece.category}`} style=${{ flexGrow: Math.max(piece.tokens, 1) }}>${(piece.tokens / Math.max(total, 1)) * (size / most) > 0.12 ? html`<span>${CATEGORIES[piece.category]}</span>` : ""}${piece.anchors ? html`<i class="anchor" title="cache anchor"><b>⚓${(anchor += 1)}</b></i>` : ""}</span>`)}</div>
      ${high !== null && html`<i class="highest" aria-hidden="true" style=${{ left: `${(100 * high) / most}%` }}></i>`}</div>
    <div class="cachestrip" aria-hidden="true" style=${{ width: filled }}><span class="fromcache" style=${{ width: `${100 * share}%` }}></span><span class="fresh"></span></div>
    <div class="row small"><span class="grow">${usage.inputTokens == null ? html`<span class="dim">usage unknown</span>` : html`${integer(cached ?? null)} read from cache, ${cached == null ? "unknown" : integer(usage.inputTokens - cached)} sent as new`}</span><strong>${integer(size)}${usage.inputTokens == null ? " estimated" : ""}</strong>${high !== null && html`<span class="dim"><span aria-hidden="true">┆ </span>highest before ${integer(high)}</span>`}${budget !== null && html`<span class="dim">${isSmall ? `${percent(size, budget)} of the budget, ${integer(budget)}` : `budget ${integer(budget)}`}</span>`}</div>
    <div class="legend">${[...sums].map(([name, tokens]) => html`<span><span class=${`swatch cat-${name}`} aria-hidden="true"></span>${CATEGORIES[name]} <strong>${integer(tokens)}</strong> <span class="dim">${percent(tokens, total)}</span></span>`)}
      ${!found.hasTools && html`<span class="dim">tools not recorded</span>`}</div>`;
}

/** @param {{record: SessionRecord}} given */
export function ContextView({ record }) {
  void record.version.value;
  const [around, setAround] = useState(route.value.serial);
  const listed = useLoaded(() => get(`${record.path}/calls`, { around }), [record], [record.length, around]);
  const calls = listed.value?.calls ?? [];
  const wanted = route.value.serial;
  const at = wanted === null ? -1 : calls.findIndex((/** @type {any} */ call) => call.serial >= wanted);
  const place = at < 0 ? calls.length - 1 : at;
  const call = calls[place];
  const before = call ? previous(record, call.serial) : null;
  // Of very many calls the server gives some, and all that are near one.
  const isNear = !listed.value?.leftOut || [place, place + 1].every((each) => !calls[each] || each === 0 || calls[each].number === calls[each - 1].number + 1);
  useEffect(() => {
    if (call && !isNear && around !== (wanted ?? call.serial)) setAround(wanted ?? call.serial);
  }, [call?.serial, isNear]);
  const found = useLoaded(() => (call ? get(`${record.path}/calls/${call.serial}`) : Promise.resolve(null)), [record, call?.serial]);
  const [part, setPart] = useState(/** @type {number | null} */ (null));
  const [asTable, setTable] = useState(false);
  const choose = (/** @type {number} */ next) => calls[next] && go(link(record.id, "context", calls[next].serial), true);
  const step = (/** @type {number} */ by, /** @type {(call: any) => boolean} */ fits) => {
    for (let next = place + by; next >= 0 && next < calls.length; next += by) if (fits(calls[next])) return choose(next);
  };
  const causes = useLoaded(() => get(`${record.path}/cache`), [record], [record.length]);
  const missed = new Set((causes.value?.calls ?? []).filter((/** @type {any} */ each) => each.isMiss).map((/** @type {any} */ each) => each.serial));
  const isMiss = (/** @type {any} */ each) => missed.has(each.serial);
  useLayoutEffect(() => {
    bindings.value = [
      { keys: ["]", "ArrowRight"], words: "next call", short: "call", run: () => choose(place + 1) },
      { keys: ["[", "ArrowLeft"], words: "call before", run: () => choose(place - 1) },
      { keys: ["}"], words: "next epoch", short: "epoch", run: () => step(1, (each) => each.epoch) },
      { keys: ["{"], words: "epoch before", run: () => step(-1, (each) => each.epoch) },
      { keys: ["m"], words: "next call that missed the cache", short: "next miss", run: () => step(1, isMiss) },
      { keys: ["o", "Enter"], words: "open the call in the timeline", short: "open", run: () => call && go(link(record.id, "timeline", call.serial)) },
      { keys: ["T"], words: "the epochs as a table", short: "table", run: () => setTable(!asTable) },
      ...(before === null ? [] : [{ keys: ["d"], words: "compare with the request before", short: "compare requests", run: () => go(besides(record, call.serial)) }]),
    ];
  });
  if (listed.problem) return html`<${Trouble} problem=${listed.problem} retry=${listed.reload} />`;
  if (!listed.value) return html`<${Skeleton} />`;
  if (!call) return html`<div class="note"><p>No model was called in this session yet.</p></div>`;
  const sent = found.value;
  const counts = sent ? Object.fromEntries(Object.entries(sent.levels).map(([level, serials]) => [level, /** @type {number[]} */ (serials).length])) : {};
  return html`<div class="contextview scroll" tabindex="0" role="region" aria-label="Context of a model call">
    <section class="card pad thecall" aria-label="The call">
      ${wanted !== null && at < 0 && html`<p class="warn" role="alert">${wanted < record.length ? `No model was called after #${wanted}` : `There is no entry #${wanted}: the newest is #${record.length - 1}`}. This is the newest call.</p>`}
      <div class="row wrap"><button aria-label="Call before" disabled=${place === 0} onClick=${() => choose(place - 1)}>‹</button><button aria-label="Next call" disabled=${place === calls.length - 1} onClick=${() => choose(place + 1)}>›</button>
        <h2>Call ${integer(call.number)} of ${integer(listed.value.total.calls)}</h2><a class="mono small" href=${link(record.id, "timeline", call.serial)}>#${call.serial}</a><${Tile} model=${call.model} /><span class="cut"><${Safe} text=${modelName(call.model)} /></span><time class="dim">${moment(call.time)}</time><span class="grow"></span>
        ${sent && html`<span class="dim small">${counts.live} live, ${counts.summary} summary, ${counts.gist} gist, ${counts.folded} folded; counted by ${sent.counter}${sent.correction !== 1 ? `, corrected × ${sent.correction.toFixed(2)}` : ""}</span>`}
        ${before !== null && html`<a class="button" href=${besides(record, call.serial)}>Compare with #${before}</a>`}</div>
      ${found.problem && html`<${Trouble} problem=${found.problem} />`}${sent ? html`<${SentBar} found=${{ ...sent, highest: highestBefore(calls, place, sent.correction), budget: budgetOf(sent, calls) }} />` : html`<${Skeleton} lines=${3} />`}
    </section>
    <section class="card pad" aria-label="Epochs"><${Epochs} calls=${calls} place=${place} onChoose=${choose} asTable=${asTable} onTable=${() => setTable(!asTable)} /></section>
    <div class="split">
      <section class="card parts" aria-label="What was sent"><div class="row pad"><h2>What was sent</h2><span class="dim small">${count(sent?.parts.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.count, 0) ?? 0, "part")} in order</span><span class="grow"></span><span class="dim small">⚓ cache anchor</span></div>
        <div class="scroll rows" tabindex="0" role="region" aria-label="Parts in order">${sent && html`<table><caption class="hidden">Parts of the request, in order</caption><thead class="hidden"><tr><th>Level</th><th>Category</th><th>Entry</th><th>Begins with</th><th>Tokens</th><th>Anchor</th></tr></thead><tbody>${sent.parts.map((/** @type {any} */ each) => html`<tr class=${`${part !== null && part === each.serial ? "chosen" : ""} ${each.serial === null ? "" : "clickable"}`} onClick=${() => each.serial !== null && setPart(each.serial)}>
          <td class="nowrap"><${Level} level=${each.level} /> ${each.level}</td><td class="nowrap"><span class=${`swatch thin cat-${each.category}`} aria-hidden="true"></span>${CATEGORIES[each.category]}</td>
          <td>${each.serial !== null && html`<button class="link mono" onClick=${() => setPart(each.serial)}>#${each.serial}</button>`}</td><td class="cutcell"><div class="cut dim"><${Safe} text=${each.text} /></div></td><td class="right">${integer(each.tokens)}</td><td>${each.isAnchor ? html`<span title="cache anchor">⚓<span class="hidden"> anchor</span></span>` : ""}</td></tr>`)}</tbody></table>`}</div></section>
      <section class="card parts" aria-label="Cache, kept and folded">${part === null ? html`<${Cache} record=${record} call=${call} sent=${sent} onPick=${setPart} />` : html`<${Folding} record=${record} call=${call} serial=${part} onClose=${() => setPart(null)} />`}</section>
    </div></div>`;
}

/** @param {{record: SessionRecord, call: any, serial: number, onClose: () => void}} given */
function Folding({ record, call, serial, onClose }) {
  const found = useLoaded(() => get(`${record.path}/calls/${call.serial}/entries/${serial}`), [record, call.serial, serial]);
  const [all, setAll] = useState(false);
  return html`<div class="row pad"><h2>Kept and folded</h2><a class="mono small" href=${link(record.id, "timeline", serial)}>#${serial}</a><span class="grow"></span>
      <div class="tabs"><button aria-pressed=${!all} onClick=${() => setAll(false)}>Kept</button><button aria-pressed=${all} onClick=${() => setAll(true)}>All lines</button></div><button class="plain" aria-label="Close" onClick=${onClose}>✕</button></div>
    <div class="scroll rows pad" tabindex="0" role="region" aria-label="Lines of the entry">${found.problem ? html`<${Trouble} problem=${found.problem} />` : !found.value ? html`<${Skeleton} />` : found.value.blocks.length ? found.value.blocks.map((/** @type {any} */ block) => html`<${Kept} block=${block} all=${all} />`) : html`<p class="dim">The call was shown nothing of this entry.</p>`}</div>`;
}

/** Why the cache missed, or what it kept. @param {{record: SessionRecord, call: any, sent: any, onPick: (serial: number) => void}} given */
function Cache({ record, call, sent, onPick }) {
  const causes = useLoaded(() => get(`${record.path}/cache`, { around: call.serial }), [record, call.serial]);
  const found = causes.value?.calls?.find((/** @type {any} */ each) => each.serial === call.serial);
  const folded = sent?.levels ? [...sent.levels.summary, ...sent.levels.gist] : [];
  const [shownFolded, moreFolded] = useFirst(folded, 400);
  return html`<div class="row pad"><h2>${found?.isMiss ? "Why did the cache miss here?" : "Cache"}</h2><span class="grow"></span>${found && html`<span class=${`chip ${found.isMiss ? "warn" : "ok"}`}>${found.cause}</span>`}</div>
    <div class="scroll rows pad" tabindex="0" role="region" aria-label="Cache of this call">
      ${causes.problem && html`<${Trouble} problem=${causes.problem} />`}${!causes.value && !causes.problem && html`<${Skeleton} lines=${3} />`}
      ${found && html`<p class="verdict"><${Safe} text=${found.sentence} /></p>
      <dl class="facts"><dt>Reported</dt><dd>${integer(found.reportedTokens)} of ${integer(found.inputTokens)} tokens (${percent(found.reportedTokens, found.inputTokens)})</dd>
        <dt>Expected</dt><dd>${found.expectedTokens == null ? "unknown" : `about ${integer(found.expectedTokens)}`}</dd>
        <dt>Compared with</dt><dd>${found.comparedWith == null ? "no call before" : html`<a class="mono" href=${link(record.id, "context", found.comparedWith)}>#${found.comparedWith}</a>${found.seconds == null ? "" : `, ${seconds(found.seconds)} before`}`}</dd>
        <dt>Shared prefix</dt><dd>${found.sharedBytes == null ? "unknown" : `${integer(found.sharedBytes)} of ${integer(found.requestBytes)} bytes (${percent(found.sharedBytes, found.requestBytes)})`}</dd>
        ${found.missCost != null && html`<dt>Cost of the miss</dt><dd>${money(found.missCost)} more than a hit</dd>`}
        ${found.entrySerial != null && html`<dt>Changed by</dt><dd><a class="mono" href=${link(record.id, "timeline", found.entrySerial)}>#${found.entrySerial}</a></dd>`}
        ${found.isExact != null && html`<dt>Bytes</dt><dd>${found.isExact ? "rendered again as they were sent" : "not quite those that were sent"}</dd>`}</dl>
      ${found.path && found.isMiss && html`<p class="label">They differ first at <code><${Safe} text=${found.path} /></code></p><div class="firstdiff"><pre class="removed">${safe(found.before || "(nothing)")}</pre><pre class="added">${safe(found.after || "(nothing)")}</pre></div>`}`}
      ${sent?.problem && html`<p class="warn small"><${Safe} text=${sent.problem} /></p>`}
      <h3>Shortened or folded entries</h3>${!sent ? "" : folded.length ? html`<p class="pickers">${shownFolded.map((serial) => html`<button class="link mono" onClick=${() => onPick(serial)}>#${serial}</button> `)}${moreFolded}</p>` : html`<p class="dim">Everything was sent whole.</p>`}
    </div>`;
}
