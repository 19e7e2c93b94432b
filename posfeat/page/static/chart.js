// A curve chart of one number: SVG, a crosshair that hand and keyboard move, and a legend in words.

const NS = "http://www.w3.org/2000/svg";
const MARGIN = { left: 52, right: 12, top: 10, bottom: 24 };
const HEIGHT = 190;

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Round numbers from low to high, about `wanted` of them.
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || 1;
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Number(v.toPrecision(12)));
  return found;
}

export const short = (v) => (v === 0 ? "0" : Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? v.toExponential(1).replace("e+", "e") : Number(v.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 }));

// The mean over the last points, weighted towards the latest; 0 leaves the values as they are.
export function smoothed(rows, weight) {
  if (!weight) return rows;
  let mean = 0, total = 0;
  return rows.map(([step, value]) => { mean = weight * mean + (1 - weight) * value; total = weight * total + 1 - weight; return [step, mean / total]; });
}

export class Chart {
  constructor(title, note = "") {
    this.root = document.createElement("figure");
    this.root.className = "chart";
    const caption = document.createElement("figcaption");
    caption.textContent = title;
    if (note) { const more = document.createElement("span"); more.className = "soft"; more.textContent = ` ${note}`; caption.append(more); }
    this.readout = document.createElement("p");
    this.readout.className = "readout small";
    this.drawing = svg("svg", { tabindex: 0, role: "img", "aria-label": `${title}: the arrow keys read its values` });
    this.root.append(caption, this.drawing, this.readout);
    Object.assign(this, { title, series: [], log: false, weight: 0, at: null });
    this.drawing.addEventListener("pointermove", (event) => this.point(this.stepAt(event.clientX - this.drawing.getBoundingClientRect().left)));
    this.drawing.addEventListener("pointerleave", () => this.point(null));
    // heard only by whoever walks along it, not whenever a run goes on
    this.drawing.addEventListener("focus", () => this.readout.setAttribute("aria-live", "polite"));
    this.drawing.addEventListener("blur", () => { this.readout.removeAttribute("aria-live"); this.point(null); });
    this.drawing.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (move) { event.preventDefault(); this.walk(move); }
    });
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  // series: [{ name, colour (a CSS variable), dash, rows of step and value }]
  set(series, { log = this.log, weight = this.weight } = {}) {
    Object.assign(this, { series: series.filter(({ rows }) => rows.length), log, weight });
    this.draw();
  }

  draw() {
    const width = this.root.clientWidth;
    this.drawing.replaceChildren();
    this.drawing.setAttribute("viewBox", `0 0 ${width || 300} ${HEIGHT}`);
    if (!width || !this.series.length) return;
    this.shown = this.series.map((one) => ({ ...one, smooth: smoothed(one.rows, this.weight) }));
    const every = this.shown.flatMap(({ smooth }) => smooth), steps = every.map(([step]) => step);
    const log = this.log && every.every(([, value]) => value > 0);
    const scale = log ? Math.log10 : (v) => v, values = every.map(([, value]) => scale(value));
    let [low, high] = [Math.min(...values), Math.max(...values)];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    [low, high] = [low - room, high + room];
    let [first, last] = [Math.min(...steps), Math.max(...steps)];
    if (first === last) [first, last] = [first - 1, last + 1]; // a single value stands in the middle
    this.x = (step) => MARGIN.left + ((step - first) / (last - first)) * (width - MARGIN.left - MARGIN.right);
    this.y = (value) => HEIGHT - MARGIN.bottom - ((scale(value) - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    this.axes(width, low, high, first, last, log);
    const clip = `clip-${this.title}`.replace(/[^\w-]/g, "-");
    this.drawing.append(svg("clipPath", { id: clip }, svg("rect", { x: MARGIN.left, y: MARGIN.top, width: Math.max(0, width - MARGIN.left - MARGIN.right + 3), height: HEIGHT - MARGIN.top - MARGIN.bottom })));
    for (const { smooth, rows, colour, dash } of this.shown) {
      const path = (points) => points.map(([step, value], i) => `${i ? "L" : "M"}${this.x(step).toFixed(1)},${this.y(value).toFixed(1)}`).join("");
      if (this.weight) this.drawing.append(svg("path", { d: path(rows.filter(([, v]) => !log || v > 0)), class: "curve faint", "clip-path": `url(#${clip})`, stroke: `var(${colour})` }));
      this.drawing.append(svg("path", { d: path(smooth), class: "curve", stroke: `var(${colour})`, "stroke-dasharray": dash || "none" }));
      if (smooth.length < 40) for (const [step, value] of smooth) this.drawing.append(svg("circle", { cx: this.x(step), cy: this.y(value), r: 2.2, fill: `var(${colour})` }));
    }
    this.cross = svg("line", { class: "cross", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.drawing.append(this.cross);
    this.point(this.at);
  }

  axes(width, low, high, first, last, log) {
    const label = (text, x, y, anchor) => { const made = svg("text", { x, y, "text-anchor": anchor, class: "tick" }); made.textContent = text; this.drawing.append(made); };
    const rows = log ? [...new Set(ticks(low, high, 4).map((v) => Number((10 ** v).toPrecision(2))))] : ticks(low, high, 4);
    for (const value of rows) {
      const y = this.y(value);
      if (y < MARGIN.top - 1 || y > HEIGHT - MARGIN.bottom + 1) continue;
      this.drawing.append(svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y, class: "grid" }));
      label(short(value), MARGIN.left - 6, y + 4, "end");
    }
    for (const step of ticks(first, last, Math.max(4, Math.floor(width / 90))).filter(Number.isInteger)) label(short(step), this.x(step), HEIGHT - 7, "middle");
  }

  steps() { return [...new Set(this.series.flatMap(({ rows }) => rows.map(([step]) => step)))].sort((a, b) => a - b); }
  stepAt(x) { return this.shown ? this.steps().reduce((best, step) => (Math.abs(this.x(step) - x) < Math.abs(this.x(best) - x) ? step : best), this.steps()[0]) : null; }

  walk(move) {
    const steps = this.steps(), here = this.at === null ? -1 : steps.indexOf(this.at);
    this.point(steps[Math.min(Math.max(here + move, 0), steps.length - 1)]);
  }

  point(step) {
    this.at = step ?? null;
    const latest = this.shown?.map(({ name, smooth }) => `${name} ${short(smooth[smooth.length - 1][1])}`).join(" · ") || "";
    if (this.at === null || !this.shown) { this.cross?.setAttribute("visibility", "hidden"); this.readout.textContent = latest; return; }
    for (const end of ["x1", "x2"]) this.cross.setAttribute(end, this.x(step));
    this.cross.setAttribute("visibility", "visible");
    const values = this.shown.map(({ name, smooth }) => { const row = smooth.reduce((best, r) => (Math.abs(r[0] - step) < Math.abs(best[0] - step) ? r : best)); return `${name} ${short(row[1])}`; });
    this.readout.textContent = `step ${step.toLocaleString("en")}: ${values.join(" · ")}`;
  }
}
