// @ts-check
// Tokens sent at each call as bars, by level, with the epochs between them. A table behind it says the same.
import { html } from "./vendor/libraries.js";
import { plain, Safe } from "./safetext.js";
import { modelName, provider, short, integer } from "./words.js";

const WIDTH = 1000;
const HEIGHT = 100;

/** @param {{calls: any[], place: number, onChoose: (place: number) => void, asTable: boolean, onTable: () => void}} given */
export function Epochs({ calls, place, onChoose, asTable, onTable }) {
  const totals = calls.map((call) => call.sent.fixed + call.sent.ledger + call.sent.turns + call.sent.live);
  const most = Math.max(...totals, 1);
  const step = WIDTH / calls.length;
  const gap = step > 4 ? 1 : 0;
  const y = (/** @type {number} */ tokens) => (HEIGHT * tokens) / most;
  /** @type {{from: number, to: number, model: string}[]} */
  const spans = [];
  calls.forEach((call, index) => {
    const last = spans[spans.length - 1];
    if (last && last.model === call.model) last.to = index + 1;
    else spans.push({ from: index, to: index + 1, model: call.model });
  });
  const epochs = calls.map((call, index) => ({ call, index })).filter(({ call }) => call.epoch);
  const bars = (/** @type {(call: any, index: number) => [number, number]} */ of, /** @type {string} */ name, fill = "") => {
    const path = calls.map((call, index) => {
      const [from, size] = of(call, index);
      return size > 0 ? `M${index * step} ${HEIGHT - y(from + size)}h${Math.max(step - gap, 0.5)}v${y(size)}h${-Math.max(step - gap, 0.5)}z` : "";
    });
    return html`<path class=${name} fill=${fill || undefined} d=${path.join("")} />`;
  };
  const click = (/** @type {MouseEvent} */ event) => {
    const area = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    onChoose(Math.min(Math.floor(((event.clientX - area.left) / area.width) * calls.length), calls.length - 1));
  };
  let lastLabel = -1000;
  return html`<div class="row"><h2>Epochs</h2><span class="dim small">tokens sent at ${calls.length === 1 ? "its one call" : `each of ${calls.length} calls`}, estimated</span><span class="grow"></span>
      <span class="legend inline"><span><span class="swatch s-fixed"></span>fixed</span><span><span class="swatch s-ledger"></span>ledger</span><span><span class="swatch s-turns"></span>shortened turns</span><span><span class="swatch s-live"></span>live</span></span>
      <button aria-pressed=${asTable} onClick=${onTable}>Table</button></div>
    ${asTable ? html`<div class="scroll tablebox" tabindex="0" role="region" aria-label="Tokens of each call"><table><thead><tr><th>Call</th><th>Model</th><th class="right">Fixed</th><th class="right">Ledger</th><th class="right">Turns</th><th class="right">Live</th><th>Epoch</th></tr></thead><tbody>${calls.map((call, index) => html`<tr><td><button class="link mono" onClick=${() => onChoose(index)}>#${call.serial}</button></td><td><${Safe} text=${modelName(call.model)} /></td><td class="right">${integer(call.sent.fixed)}</td><td class="right">${integer(call.sent.ledger)}</td><td class="right">${integer(call.sent.turns)}</td><td class="right">${integer(call.sent.live)}</td><td><${Safe} text=${call.epoch?.reason ?? ""} /></td></tr>`)}</tbody></table></div>`
    : html`<div class="epochs"><div class="axis" aria-hidden="true"><span>${short(most)}</span><span>${short(most / 2)}</span><span>0</span></div>
      <div class="plotbox" onClick=${click}><div class="labels" aria-hidden="true">${epochs.map(({ call, index }) => {
        const at = (100 * index) / calls.length;
        const isLeft = at > 85; // no room to its right
        if (at - lastLabel < (isLeft ? 28 : 14)) return null;
        lastLabel = at;
        const before = index ? totals[index - 1] - totals[index] : 0;
        return html`<span class=${isLeft ? "toleft" : ""} style=${{ left: `${at}%` }}>${plain(call.epoch.reason)}${before > 0 ? html` <span class="dim">−${short(before)}</span>` : ""}</span>`;
      })}</div>
      <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`Tokens at ${calls.length} calls, at most ${integer(most)}; ${epochs.length} epochs`}>
        <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" class="hatchback" /><rect width="2.5" height="6" class="hatchline" /></pattern></defs>
        ${bars((call) => [0, call.sent.fixed], "s-fixed")}${bars((call) => [call.sent.fixed, call.sent.ledger], "s-ledger")}${bars((call) => [call.sent.fixed + call.sent.ledger, call.sent.turns], "", "url(#hatch)")}${bars((call) => [call.sent.fixed + call.sent.ledger + call.sent.turns, call.sent.live], "s-live")}
        ${epochs.map(({ index }) => html`<line class="epochline" x1=${index * step} x2=${index * step} y1="0" y2=${HEIGHT} />`)}
        <rect class="here" x=${place * step} y="0" width=${Math.max(step, 2)} height=${HEIGHT} /></svg>
      <div class="spans" aria-hidden="true">${spans.map((span) => html`<span class=${`span by-${provider(span.model)}`} style=${{ width: `${(100 * (span.to - span.from)) / calls.length}%` }}><span class="cut">${plain(modelName(span.model))}</span></span>`)}</div></div></div>`}`;
}
