// @ts-check
// The whole session on one canvas, drawn from the outline: provider stripe, tokens as bar length, level as fill, epochs,
// interruptions, hits, and the part that is on screen. A click goes there.
import { html, useEffect, useRef } from "./vendor/libraries.js";
import { provider } from "./words.js";

// Read once for each drawing: one reading for each entry takes longer than all drawing.
const COLOURS = ["p-anthropic", "p-openai", "p-google", "p-bedrock", "p-local", "p-other", "live", "summary", "gist", "line-2", "ink-3", "warn", "miss"];

/**
 * @param {{record: import("./record.js").SessionRecord, hits: Set<number>, range: import("./vendor/libraries.js").Signal<[number, number]>,
 *   levels: Map<number, string>, theme: string, onGo: (serial: number) => void}} given
 */
export function Minimap({ record, hits, range: shown, levels, theme, onGo }) {
  const range = shown.value;
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const count = record.length;
  useEffect(() => {
    const draw = () => {
      const element = canvas.current;
      const around = element?.parentElement;
      if (!element || !around) return;
      const width = around.clientWidth;
      const height = around.clientHeight;
      const ratio = window.devicePixelRatio || 1;
      element.width = width * ratio;
      element.height = height * ratio;
      const context = element.getContext("2d");
      if (!context) return;
      context.scale(ratio, ratio);
      const style = getComputedStyle(document.documentElement);
      const colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
      const step = height / Math.max(count, 1);
      const longest = Math.sqrt(Math.max(...sample(record.tokens), 1));
      const lane = width - 30;
      let model = "";
      for (let serial = 0; serial < count; serial += 1) {
        const y = serial * step;
        const kind = record.kindOf(serial);
        const own = record.modelOf(serial);
        if (own) model = provider(own);
        if (model) {
          context.fillStyle = colours[`p-${model}`];
          context.fillRect(5, y, 3, Math.max(step, 1));
        }
        const tokens = record.tokens[serial];
        if (tokens && !record.isFolded(serial)) {
          const level = levels.get(serial) ?? "live";
          context.fillStyle = colours[level === "folded" ? "line-2" : level];
          const length = Math.max((Math.sqrt(tokens) / longest) * lane, 2);
          const thick = Math.min(Math.max(step * 0.7, 1), 4);
          if (level === "live") context.fillRect(13, y, length, thick);
          else for (let x = 0; x < length; x += 3) context.fillRect(13 + x, y, level === "summary" ? 2 : 1, thick);
        }
        if (kind === "epoch") {
          context.fillStyle = colours["ink-3"];
          for (let x = 10; x < width - 12; x += 4) context.fillRect(x, y, 2, 1);
        } else if (kind === "interruption") {
          context.fillStyle = colours.warn;
          context.beginPath();
          context.moveTo(width - 6, y - 4);
          context.lineTo(width - 12, y);
          context.lineTo(width - 6, y + 4);
          context.fill();
        }
        if (hits.has(serial)) {
          context.fillStyle = colours.miss;
          context.fillRect(width - 9, y - 1, 7, 3);
        }
      }
    };
    draw();
    const observer = new ResizeObserver(draw);
    if (canvas.current?.parentElement) observer.observe(canvas.current.parentElement);
    return () => observer.disconnect();
  }, [record, count, hits, levels, theme]);
  /** @param {MouseEvent} event */
  const go = (event) => {
    const area = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    onGo(Math.min(Math.floor(((event.clientY - area.top) / area.height) * count), count - 1));
  };
  const at = (/** @type {number} */ serial) => `${(100 * serial) / Math.max(count, 1)}%`;
  const size = `max(10px, ${(100 * (range[1] - range[0] + 1)) / Math.max(count, 1)}%)`;
  return html`<div class="minimap" onClick=${go} ref=${box} role="img" aria-label=${`Map of ${count} entries, shown are #${range[0]} to #${range[1]}`}>
    <canvas ref=${canvas}></canvas><div class="viewport" style=${{ top: at(range[0]), height: size }}></div>
  </div>`;
}

/** Some of the values: enough to find the longest. @param {number[]} values */
function sample(values) {
  if (values.length < 50_000) return values;
  return values.filter((_, index) => index % 16 === 0);
}
