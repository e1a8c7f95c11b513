// @ts-check
// Where tokens, money and time went: one x axis of model calls, one cursor through all plots.
import { html, useLayoutEffect, useMemo, useState } from "../vendor/libraries.js";
import { get } from "../api.js";
import { bindings } from "../keys.js";
import { Model, Skeleton, Tile, Trouble, useFirst, useLoaded } from "../parts.js";
import { Plot } from "../plot.js";
import { go, link, route } from "../router.js";
import { Safe } from "../safetext.js";
import { count, modelName, money, percent, seconds, short, integer } from "../words.js";

/** @param {(number | null)[]} values @param {number} share */
function quantile(values, share) {
  const known = values.filter((value) => value != null).sort((a, b) => Number(a) - Number(b));
  return known.length ? known[Math.min(Math.floor(known.length * share), known.length - 1)] : null;
}

/** The tokens that a miss sent again. @param {any} found */
const again = (found) => Math.max((found?.inputTokens ?? 0) - (found?.reportedTokens ?? 0), 0);

/** A place on the axis: as many digits as it needs. @param {number} value */
const dollars = (value) => (value >= 1 ? `$${value.toFixed(1)}` : `$${Number(value.toPrecision(2))}`);

/** @param {{record: import("../record.js").SessionRecord, theme: string}} given */
export function CostView({ record, theme }) {
  void record.version.value;
  const loaded = useLoaded(() => get(`${record.path}/calls`), [record], [record.length]);
  const causes = useLoaded(() => get(`${record.path}/cache`), [record], [record.length]);
  const calls = /** @type {any[]} */ (loaded.value?.calls ?? []);
  const total = loaded.value?.total;
  const wanted = route.value.serial;
  const found = calls.findIndex((call) => call.serial === wanted);
  const place = found >= 0 ? found : calls.length - 1;
  const [hover, setHover] = useState(/** @type {number | null} */ (null));
  const [asTable, setTable] = useState(false);
  const columns = useMemo(
    () => ({
      input: calls.map((call) => call.usage?.inputTokens ?? null),
      cached: calls.map((call) => call.usage?.cacheReadTokens ?? null),
      output: calls.map((call) => call.usage?.outputTokens ?? null),
      cost: calls.map((call) => call.costSoFar),
      time: calls.map((call) => call.seconds),
      first: calls.map((call) => call.firstTokenSeconds),
    }),
    [loaded.value],
  );
  const epochs = calls.flatMap((call, index) => (call.epoch ? [index] : []));
  const missed = new Map((causes.value?.calls ?? []).filter((/** @type {any} */ each) => each.isMiss).map((/** @type {any} */ each) => [each.serial, each]));
  const misses = calls.flatMap((call, index) => (missed.has(call.serial) ? [index] : []));
  const choose = (/** @type {number} */ next) => calls[next] && go(link(record.id, "cost", calls[next].serial), true);
  useLayoutEffect(() => {
    bindings.value = [
      { keys: ["ArrowRight", "]"], words: "next call", short: "call", run: () => choose(place + 1) },
      { keys: ["ArrowLeft", "["], words: "call before", run: () => choose(place - 1) },
      { keys: ["m"], words: "next call that missed the cache", short: "next miss", run: () => choose(misses.find((index) => index > place) ?? misses[0]) },
      { keys: ["Enter"], words: "open the call's context", short: "open call", run: () => calls[place] && go(link(record.id, "context", calls[place].serial)) },
      { keys: ["T"], words: "the plots as a table", short: "table", run: () => setTable(!asTable) },
    ];
  });
  const costliest = misses.map((index) => ({ call: calls[index], index, found: missed.get(calls[index].serial) })).sort((a, b) => (b.found.missCost ?? 0) - (a.found.missCost ?? 0) || again(b.found) - again(a.found));
  const [shownMisses, moreMisses] = useFirst(costliest, 60);
  if (loaded.problem) return html`<${Trouble} problem=${loaded.problem} retry=${loaded.reload} />`;
  if (!loaded.value) return html`<${Skeleton} />`;
  if (!calls.length) return html`<div class="note"><p>No model was called in this session yet.</p></div>`;
  const shown = calls[hover ?? place] ?? calls[place];
  const saved = total.costWithoutCache ? `${Math.round(100 * (1 - (total.cost ?? 0) / total.costWithoutCache))}% saved by it` : "";
  const plots = { epochs, chosen: place, theme, onChoose: choose, onHover: setHover };
  const lost = misses.reduce((sum, index) => sum + again(missed.get(calls[index].serial)), 0);
  const lostMoney = misses.reduce((sum, index) => sum + (missed.get(calls[index].serial)?.missCost ?? 0), 0);
  const timed = columns.first.some((value) => value != null);
  const tiles = [
    ["Cost", money(total.cost), "as reported, or by the catalogue"],
    ["Without a cache", money(total.costWithoutCache), saved],
    ["Read from cache", percent(total.cacheReadTokens, total.inputTokens), `${short(total.cacheReadTokens)} of ${short(total.inputTokens)} input tokens`],
    ["Output", short(total.outputTokens), `tokens in ${count(total.calls, "answer")}`],
    ["Misses", causes.value ? integer(misses.length) : "…", !causes.value ? "loading" : lostMoney ? `${money(lostMoney)} more than hits` : `${short(lost)} tokens sent again`],
    ...(causes.value && causes.value.reviewed < causes.value.total ? [["Reviewed", integer(causes.value.reviewed), `newest of ${count(causes.value.total, "call")}`]] : []),
    timed ? ["First token", seconds(quantile(columns.first, 0.5)), `median; 90% under ${seconds(quantile(columns.first, 0.9))}`] : ["Answer", seconds(quantile(columns.time, 0.5)), `median; 90% under ${seconds(quantile(columns.time, 0.9))}`],
  ];
  return html`<div class="cost scroll" tabindex="0" role="region" aria-label="Cost, cache and time">
    <section class="card tiles" aria-label="Figures">${tiles.map(([name, value, words]) => html`<div><p class="label">${name}</p><p class="figure">${value}</p><p class="small dim">${words}</p></div>`)}</section>
    <div class="costgrid"><section class="card pad" aria-label="Plots">
      <div class="row"><span class="dim small">Call <a class="mono" href=${link(record.id, "timeline", shown.serial)}>#${shown.serial}</a></span><${Model} model=${shown.model} /><span class="grow"></span><button aria-pressed=${asTable} onClick=${() => setTable(!asTable)}>Table</button></div>
      ${asTable ? html`<${CallTable} calls=${calls} record=${record} />` : html`
      <div class="plothead"><strong>Input</strong><span class="dim">tokens per call</span><span><span class="key fromcache"></span>from cache</span><span><span class="key fresh"></span>new</span><span class="grow"></span><span class="now">${integer(shown.usage?.cacheReadTokens)} cached, ${shown.usage?.inputTokens == null ? "unknown" : integer(shown.usage.inputTokens - (shown.usage.cacheReadTokens ?? 0))} new</span></div>
      <${Plot} ...${plots} title="Input tokens" height=${190} misses=${misses} format=${short} series=${[{ label: "new", values: columns.input, colour: "--new", kind: "stripes" }, { label: "cached", values: columns.cached, colour: "--cached", kind: "bars" }]} />
      <div class="plothead"><strong>Output</strong><span class="dim">tokens per call</span><span class="grow"></span><span class="now">${integer(shown.usage?.outputTokens)}</span></div>
      <${Plot} ...${plots} title="Output tokens" height=${100} format=${short} series=${[{ label: "output", values: columns.output, colour: "--ink-3", kind: "bars" }]} />
      <div class="plothead"><strong>Cost</strong><span class="dim">dollars, cumulative</span><span class="grow"></span><span class="now">${money(shown.cost)}, ${money(shown.costSoFar)} so far</span></div>
      <${Plot} ...${plots} title="Cost so far" height=${120} format=${dollars} series=${[{ label: "cost", values: columns.cost, colour: "--miss", kind: "steps" }]} />
      <div class="plothead"><strong>Time</strong><span class="dim">seconds: whole answer${timed ? ", first token" : ""}</span><span class="grow"></span><span class="now">${shown.firstTokenSeconds == null ? "" : `${seconds(shown.firstTokenSeconds)}, `}${seconds(shown.seconds)}</span></div>
      <${Plot} ...${plots} axis title="Seconds of each answer" height=${140} format=${(/** @type {number} */ value) => `${value}`} series=${[{ label: "whole answer", values: columns.time, colour: "--gist", kind: "bars" }, { label: "first token", values: columns.first, colour: "--miss", kind: "points" }]} />
      <p class="small dim">${loaded.value.leftOut ? `${integer(calls.length)} of ${integer(total.calls)} calls, evenly; ` : ""}model call; dashed lines are epochs, ✕ missed the cache</p>`}</section>
    <div class="costside"><section class="card" aria-label="Models"><table><thead><tr><th>Model</th><th class="right">Calls</th><th class="right">Input</th><th class="right">Cached</th><th class="right">Output</th><th class="right">Cost</th></tr></thead>
        <tbody>${total.byModel.map((/** @type {any} */ sums) => html`<tr><td><span class="row"><${Tile} model=${sums.model} /><span class="cut"><${Safe} text=${modelName(sums.model)} /></span></span></td><td class="right">${integer(sums.calls)}</td><td class="right">${short(sums.input)}</td><td class="right">${percent(sums.cached, sums.input)}</td><td class="right">${short(sums.output)}</td><td class="right">${money(sums.cost)}</td></tr>`)}
        <tr class="strong"><td>Together</td><td class="right">${integer(total.calls)}</td><td class="right">${short(total.inputTokens)}</td><td class="right">${percent(total.cacheReadTokens, total.inputTokens)}</td><td class="right">${short(total.outputTokens)}</td><td class="right">${money(total.cost)}</td></tr></tbody></table></section>
      <section class="card" aria-label="Calls that missed the cache"><div class="row pad"><h2>Cache misses</h2><span class="dim small">most expensive first; tokens sent again</span></div>
        ${costliest.length ? html`<ul class="misses">${shownMisses.map(({ call, index, found: cause }) => {
          return html`<li class=${index === place ? "chosen" : ""}><button class="plain" onClick=${() => choose(index)}><span class="mono dim">#${call.serial}</span><${Tile} model=${call.model} /><span class="grow"><strong><${Safe} text=${cause.cause} /></strong><br /><span class="dim"><${Safe} text=${cause.sentence} /></span></span><span class="right nowrap">${cause.missCost == null ? "" : html`<strong>+${money(cause.missCost)}</strong><br />`}<span class="dim">${short(again(cause))}</span></span></button></li>`;
        })}</ul>${moreMisses && html`<div class="pad">${moreMisses}</div>`}` : causes.problem ? html`<${Trouble} problem=${causes.problem} />` : !causes.value ? html`<${Skeleton} lines=${3} />` : html`<p class="pad dim">No call missed the cache.</p>`}</section></div></div></div>`;
}

/** @param {{calls: any[], record: any}} given */
const CallTable = ({ calls, record }) => html`<div class="scroll tablebox" tabindex="0" role="region" aria-label="Calls"><table><thead><tr><th>Call</th><th>Model</th><th class="right">Input</th><th class="right">Cached</th><th class="right">Output</th><th class="right">Cost</th><th class="right">Seconds</th></tr></thead>
  <tbody>${calls.map((call) => html`<tr><td><a class="mono" href=${link(record.id, "timeline", call.serial)}>#${call.serial}</a></td><td><${Safe} text=${modelName(call.model)} /></td><td class="right">${integer(call.usage?.inputTokens)}</td><td class="right">${integer(call.usage?.cacheReadTokens)}</td><td class="right">${integer(call.usage?.outputTokens)}</td><td class="right">${money(call.cost)}</td><td class="right">${seconds(call.seconds)}</td></tr>`)}</tbody></table></div>`;
