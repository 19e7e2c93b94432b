// A photo of the model with the points that it sees, and small pieces of photos around a point.

import { ask } from "/static/common.js";

const MARK = "#ff5a2c", RIM = "#ffffff", CHOSEN = "#ffd23f";
const CROP_SHARE = 0.08; // of the photo's longer side
const previews = new Map();

// Previews are shared: tracks show the same photos again and again.
function preview(reference) {
  if (!previews.has(reference)) {
    const loading = ask("/api/photo/preview", { parameters: { photo: reference, longest_px: 1200 }, wanted: "blob", attempts: 20 }).then((blob) => createImageBitmap(blob));
    loading.catch(() => previews.delete(reference));
    previews.set(reference, loading);
    if (previews.size > 60) previews.delete(previews.keys().next().value);
  }
  return previews.get(reference);
}

export class PhotoView {
  constructor(canvas, onPick) {
    Object.assign(this, { canvas, onPick, pen: canvas.getContext("2d"), image: null, points: [], chosen: -1, camera: null });
    canvas.addEventListener("click", (event) => {
      const scale = canvas.clientWidth / this.camera.width, [x, y] = [event.offsetX / scale - 0.5, event.offsetY / scale - 0.5];
      const best = this.points.reduce((least, row) => { const d = Math.hypot(row[1] - x, row[2] - y); return d < least[0] ? [d, row[0]] : least; }, [16 / scale, -1]);
      if (best[1] >= 0) this.onPick(best[1]);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !(this.points[0]?.[0] >= 0)) return;
      event.preventDefault();
      const here = this.points.findIndex(([point]) => point === this.chosen);
      this.onPick(this.points[(here + step + this.points.length) % this.points.length][0]);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // Points are rows of number, x, y; those below 0 cannot be chosen. The photo is fetched unless it is given.
  async show(camera, points, image = null) {
    // in reading order, so that the arrow keys walk over the photo
    const rows = [...points].sort((a, b) => Math.floor(a[2] / 40) - Math.floor(b[2] / 40) || a[1] - b[1]);
    Object.assign(this, { camera, points: rows, image, chosen: -1 });
    this.canvas.setAttribute("aria-label", `${camera.name} with ${points.length} points; arrow keys walk through them`);
    this.draw();
    if (image || !camera.photo) return;
    const fetched = await preview(camera.photo);
    if (this.camera === camera) { this.image = fetched; this.draw(); }
  }

  choose(point) { this.chosen = point; this.draw(); }

  draw() {
    const { canvas, pen, camera } = this;
    if (!camera || !canvas.clientWidth) return;
    canvas.style.aspectRatio = `${camera.width} / ${camera.height}`;
    canvas.style.setProperty("--shape", camera.width / camera.height);
    const ratio = Math.min(devicePixelRatio || 1, 2), width = canvas.clientWidth, height = (width * camera.height) / camera.width, scale = width / camera.width;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    if (this.image) pen.drawImage(this.image, 0, 0, width, height);
    const radius = Math.min(1.8, Math.max(0.8, width / 480)); // small photos would vanish under large marks
    pen.fillStyle = MARK;
    for (const [, x, y] of this.points) { pen.beginPath(); pen.arc((x + 0.5) * scale, (y + 0.5) * scale, radius, 0, 7); pen.fill(); }
    const row = this.chosen >= 0 && this.points.find(([point]) => point === this.chosen);
    if (row) ring(pen, (row[1] + 0.5) * scale, (row[2] + 0.5) * scale, 9);
  }
}

function ring(pen, x, y, radius) {
  for (const [style, width] of [["#000", 4], [CHOSEN, 2.5]]) { pen.strokeStyle = style; pen.lineWidth = width; pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.stroke(); }
}

export async function drawCrop(canvas, camera, x, y) {
  const pen = canvas.getContext("2d");
  if (!camera.photo) { pen.fillStyle = RIM; return; }
  const image = await preview(camera.photo), scale = image.width / camera.width, side = CROP_SHARE * Math.max(camera.width, camera.height) * scale * 2;
  pen.drawImage(image, (x + 0.5) * scale - side / 2, (y + 0.5) * scale - side / 2, side, side, 0, 0, canvas.width, canvas.height);
  ring(pen, canvas.width / 2, canvas.height / 2, 14);
}
