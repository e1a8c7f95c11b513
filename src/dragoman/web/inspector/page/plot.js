// @ts-check
// One plot of uPlot in the colours of the page. Several of them share one cursor.
import { html, uPlot, useEffect, useRef } from "./vendor/libraries.js";

/** @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A fill of stripes, so that colour does not speak alone. @param {string} name */
function striped(name) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const context = tile.getContext("2d");
  if (!context) return colour(name);
  context.fillStyle = colour(name);
  context.globalAlpha = 0.55;
  context.fillRect(0, 0, 6, 6);
  context.globalAlpha = 1;
  context.beginPath();
  for (const x of [-3, 3, 9]) {
    context.moveTo(x - 3, 9);
    context.lineTo(x + 6, 0);
    context.lineTo(x + 8, 0);
    context.lineTo(x - 1, 9);
  }
  context.fill();
  return context.createPattern(tile, "repeat") ?? colour(name);
}

/**
 * @typedef {{label: string, values: (number | null)[], colour: string, kind: "bars" | "stripes" | "steps" | "points", dash?: number[]}} Series
 * @param {{title: string, height: number, series: Series[], epochs: number[], misses?: number[], chosen: number, theme: string,
 *   format: (value: number) => string, onChoose: (index: number) => void, onHover: (index: number | null) => void, axis?: boolean}} given
 */
export function Plot({ title, height, series, epochs, misses = [], chosen, theme, format, onChoose, onHover, axis }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const count = series[0].values.length;
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const grid = { stroke: colour("--line"), width: 1 };
    const text = colour("--ink-2");
    const drawn = {
      hooks: {
        draw: [
          (/** @type {any} */ own) => {
            const context = own.ctx;
            context.save();
            context.strokeStyle = colour("--ink-3");
            context.setLineDash([3, 3]);
            for (const place of epochs) line(own, context, place + 0.5);
            context.setLineDash([]);
            context.fillStyle = colour("--miss");
            context.font = `${12 * devicePixelRatio}px system-ui`;
            context.textAlign = "center";
            for (const place of misses) {
              const top = Math.max(...series.map((each) => each.values[place] ?? 0));
              context.fillText("✕", own.valToPos(place + 1, "x", true), own.valToPos(top, "y", true) - 4 * devicePixelRatio);
            }
            context.strokeStyle = colour("--accent");
            context.lineWidth = 2 * devicePixelRatio;
            line(own, context, own.chosen + 1);
            context.restore();
          },
        ],
        setCursor: [(/** @type {any} */ own) => onHover(own.cursor.idx ?? null)],
      },
    };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height,
        plugins: [drawn],
        legend: { show: false },
        padding: [10, 10, axis ? 0 : 4, 0],
        cursor: { sync: { key: "calls" }, drag: { x: false, y: false }, points: { show: false } },
        scales: { x: { time: false, range: [0.4, count + 0.6] }, y: { range: (/** @type {any} */ _own, /** @type {number} */ _low, /** @type {number} */ high) => [0, (high || 1) * 1.15] } },
        axes: [
          { show: Boolean(axis), stroke: text, grid: { show: false }, ticks: { show: false }, size: 24, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] },
          { stroke: text, grid, ticks: { show: false }, size: 58, splits: undefined, space: 34, values: (/** @type {any} */ _own, /** @type {number[]} */ ticks) => ticks.map(format) },
        ],
        series: [
          {},
          ...series.map((each) => ({
            label: each.label,
            stroke: each.kind === "bars" || each.kind === "stripes" ? "transparent" : colour(each.colour),
            fill: each.kind === "bars" ? colour(each.colour) : each.kind === "stripes" ? striped(each.colour) : undefined,
            width: each.kind === "steps" ? 1.5 : 0,
            dash: each.dash,
            paths: each.kind === "steps" ? uPlot.paths.stepped({ align: 1 }) : each.kind === "points" ? () => null : uPlot.paths.bars({ size: [0.8, 40], gap: count > 300 ? 0 : 1 }),
            points: each.kind === "points" ? { show: true, size: 5, fill: colour(each.colour), stroke: colour(each.colour) } : { show: false },
          })),
        ],
      },
      [series[0].values.map((_, index) => index + 1), ...series.map((each) => each.values)],
      element,
    );
    made.chosen = chosen;
    plot.current = made;
    const click = () => made.cursor.idx != null && onChoose(made.cursor.idx);
    made.over.addEventListener("click", click);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [series[0].values, theme, count, misses.length]);
  useEffect(() => {
    if (plot.current) {
      plot.current.chosen = chosen;
      plot.current.redraw(false, false);
    }
  }, [chosen]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${`${title}, ${count} calls`}></div>`;
}

/** @param {any} own @param {any} context @param {number} at */
function line(own, context, at) {
  const x = Math.round(own.valToPos(at, "x", true));
  context.beginPath();
  context.moveTo(x, own.bbox.top);
  context.lineTo(x, own.bbox.top + own.bbox.height);
  context.stroke();
}
