// One photo with its keypoints: zoom, move, pick with the hand or the keyboard. Positions are the photo's own pixels.

export const GOOD = "#12b76a", BAD = "#f4742b", NONE = "#c6cfda", CHOSEN = "#ffd23f", CANDIDATE = "#4cc3ff";
const PICK_PX = 14;
const clamp = (v, low, high) => Math.min(Math.max(v, low), high);

export class Pane {
  constructor(canvas, { onPick, onView }) {
    Object.assign(this, { canvas, onPick, onView });
    this.pen = canvas.getContext("2d");
    this.clear();
    this.listen();
    new ResizeObserver(() => { this.fit(); }).observe(canvas);
  }

  clear() {
    Object.assign(this, { image: null, overlay: null, strength: 0.6, width: 0, height: 0, keypoints: [], states: [], chosen: -1, candidates: [], line: null, outline: null, showPoints: true, shown: { good: true, bad: true } });
    this.redraw();
  }

  // The picture may be smaller than the photo; width and height are the photo's.
  setPhoto(image, width, height) { this.clear(); Object.assign(this, { image, width, height }); this.fit(); }
  set(values) { Object.assign(this, values); this.redraw(); }

  // ---- where things are --------------------------------------------------------------------------------------------

  fit() {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    this.least = this.width ? Math.min(w / this.width, h / this.height) : 1;
    this.scale = this.least;
    this.left = (w - this.width * this.scale) / 2;
    this.top = (h - this.height * this.scale) / 2;
    this.redraw();
  }

  // A pixel's centre is a whole number, so its left rim is half a pixel before.
  toScreen(x, y) { return [this.left + (x + 0.5) * this.scale, this.top + (y + 0.5) * this.scale]; }
  fromScreen(x, y) { return [(x - this.left) / this.scale - 0.5, (y - this.top) / this.scale - 0.5]; }
  visible([x, y]) { return x >= 0 && y >= 0 && x <= this.canvas.clientWidth && y <= this.canvas.clientHeight; }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const before = this.scale;
    this.scale = clamp(this.scale * factor, this.least, Math.max(20, 4 * this.least));
    this.left = x - ((x - this.left) * this.scale) / before;
    this.top = y - ((y - this.top) * this.scale) / before;
    this.settle();
  }

  move(dx, dy) { this.left += dx; this.top += dy; this.settle(); }

  // Keep the photo in view: no empty rim where the photo could fill it.
  settle() {
    const place = (start, size, room) => (size <= room ? (room - size) / 2 : clamp(start, room - size, 0));
    this.left = place(this.left, this.width * this.scale, this.canvas.clientWidth);
    this.top = place(this.top, this.height * this.scale, this.canvas.clientHeight);
    this.redraw();
  }

  nearest(x, y) {
    let best = -1, least = PICK_PX ** 2;
    this.keypoints.forEach(([px, py], i) => {
      const [sx, sy] = this.toScreen(px, py), d = (sx - x) ** 2 + (sy - y) ** 2;
      if (d < least) { least = d; best = i; }
    });
    return best;
  }

  // The keypoint to go to from the chosen one in a direction: near, and rather ahead than aside.
  neighbour(dx, dy) {
    const from = this.keypoints[this.chosen];
    if (!from) return this.keypoints.length ? 0 : -1;
    let best = this.chosen, least = Infinity;
    this.keypoints.forEach(([x, y], i) => {
      const ahead = (x - from[0]) * dx + (y - from[1]) * dy, aside = Math.abs((x - from[0]) * dy) + Math.abs((y - from[1]) * dx);
      const cost = ahead + 3 * aside;
      if (ahead > 0.5 && cost < least) { least = cost; best = i; }
    });
    return best;
  }

  reveal(index) {
    const at = this.toScreen(...this.keypoints[index]);
    if (!this.visible(at)) this.move(this.canvas.clientWidth / 2 - at[0], this.canvas.clientHeight / 2 - at[1]);
  }

  // ---- drawing -------------------------------------------------------------------------------------------------------

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); this.onView?.(); });
  }

  draw() {
    const { canvas, pen } = this, ratio = Math.min(devicePixelRatio || 1, 2);
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) { canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio); }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    if (!this.image) return;
    pen.imageSmoothingEnabled = this.scale < 6;
    const box = [this.left, this.top, this.width * this.scale, this.height * this.scale];
    pen.drawImage(this.image, ...box);
    if (this.overlay) { pen.globalAlpha = this.strength; pen.drawImage(this.overlay, ...box); pen.globalAlpha = 1; }
    if (this.showPoints) this.drawKeypoints();
    pen.save();
    pen.beginPath(); pen.rect(...box); pen.clip();
    if (this.line) this.drawLine(this.line);
    if (this.outline) this.drawOutline(this.outline);
    pen.restore();
    this.candidates.forEach((index, rank) => this.ring(index, CANDIDATE, rank ? 5 : 8, rank ? 1.5 : 3));
    if (this.chosen >= 0) this.ring(this.chosen, CHOSEN, 8, 3);
  }

  drawKeypoints() {
    const { pen } = this, size = clamp(1.2 + this.scale, 1.6, 3.2);
    const dots = { 0: [], 1: [], 2: [] };
    this.keypoints.forEach(([x, y], i) => {
      const state = this.states[i] || 0, at = this.toScreen(x, y);
      if (this.visible(at) && (state !== 1 || this.shown.bad) && (state !== 2 || this.shown.good)) dots[state].push(at);
    });
    const circles = (places, radius) => { pen.beginPath(); for (const [x, y] of places) { pen.moveTo(x + radius, y); pen.arc(x, y, radius, 0, 7); } };
    pen.fillStyle = NONE; pen.globalAlpha = 0.8; circles(dots[0], size * 0.6); pen.fill(); pen.globalAlpha = 1;
    pen.lineWidth = 1.5; pen.strokeStyle = BAD; circles(dots[1], size); pen.stroke();
    pen.fillStyle = GOOD; circles(dots[2], size); pen.fill();
  }

  ring(index, colour, radius, width) {
    if (!this.keypoints[index]) return;
    const { pen } = this, [x, y] = this.toScreen(...this.keypoints[index]);
    for (const [style, thick] of [["#000", width + 2], [colour, width]]) {
      pen.strokeStyle = style; pen.lineWidth = thick; pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.stroke();
    }
  }

  // Where a x + b y + c = 0.
  drawLine([a, b, c]) {
    const { pen } = this, n = a * a + b * b, far = this.width + this.height;
    if (!n) return;
    const foot = [(-a * c) / n, (-b * c) / n], along = [-b / Math.sqrt(n), a / Math.sqrt(n)];
    const middle = [this.width / 2 - foot[0], this.height / 2 - foot[1]], t = middle[0] * along[0] + middle[1] * along[1];
    const ends = [t - far, t + far].map((s) => this.toScreen(foot[0] + s * along[0], foot[1] + s * along[1]));
    for (const [style, width] of [["#000", 4], [CHOSEN, 2]]) { pen.strokeStyle = style; pen.lineWidth = width; pen.beginPath(); pen.moveTo(...ends[0]); pen.lineTo(...ends[1]); pen.stroke(); }
  }

  drawOutline(corners) {
    const { pen } = this;
    pen.setLineDash([8, 5]); pen.strokeStyle = GOOD; pen.lineWidth = 2;
    pen.beginPath(); corners.forEach((corner, i) => pen[i ? "lineTo" : "moveTo"](...this.toScreen(...corner))); pen.closePath(); pen.stroke(); pen.setLineDash([]);
  }

  // ---- hand and keyboard -----------------------------------------------------------------------------------------------

  listen() {
    const { canvas } = this, fingers = new Map();
    let moved = 0, spread = 0;
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); fingers.set(event.pointerId, place(event)); moved = fingers.size > 1 ? 99 : 0; spread = 0; });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const now = place(event);
      fingers.set(event.pointerId, now); moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()], wide = Math.hypot(a[0] - b[0], a[1] - b[1]);
        if (spread) this.zoom(wide / spread, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
        spread = wide;
      } else if (moved > 4) this.move(now[0] - before[0], now[1] - before[1]);
    });
    const release = (event) => {
      const at = fingers.get(event.pointerId);
      fingers.delete(event.pointerId); spread = 0;
      if (!at || event.type !== "pointerup" || moved > 4) return;
      const index = this.nearest(...at);
      if (index >= 0) this.onPick(index);
    };
    canvas.addEventListener("pointerup", release); canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("wheel", (event) => { if (!this.image) return; event.preventDefault(); this.zoom(Math.exp(-clamp(event.deltaY, -120, 120) * 0.003), ...place(event)); }, { passive: false });
    canvas.addEventListener("dblclick", () => this.fit());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.image) return;
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const pick = (index) => { if (index >= 0) { this.onPick(index); this.reveal(index); } };
    if (step) pick(this.neighbour(...step));
    else if (event.key === "Enter") pick(this.keypoints.length ? Math.max(0, this.chosen) : -1);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") this.onPick(-1);
    else return;
    event.preventDefault();
  }
}
