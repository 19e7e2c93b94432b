// Lines between the photos: as many as asked for, spread evenly over the first one, those that agree on top.

import { BAD, CHOSEN, GOOD } from "/static/pane.js";

// The first match of every cell of a grid, then the second of every cell, and so on.
export function spread(matches, keypoints, most) {
  if (matches.length <= most) return matches.map((_, i) => i);
  const places = matches.map((row) => keypoints[row[0]] || [0, 0]);
  const range = [0, 1].map((axis) => { const v = places.map((p) => p[axis]); return [v.reduce((a, b) => Math.min(a, b)), v.reduce((a, b) => Math.max(a, b))]; });
  const cell = Math.sqrt(((range[0][1] - range[0][0] + 1) * (range[1][1] - range[1][0] + 1)) / Math.max(1, most));
  const seen = new Map();
  const ranked = places.map(([x, y], i) => { const key = `${Math.floor(x / cell)},${Math.floor(y / cell)}`, rank = seen.get(key) || 0; seen.set(key, rank + 1); return [rank, i]; });
  return ranked.sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, most).map(([, i]) => i);
}

export function drawLines(canvas, panes, result, { most, good, bad, chosen }) {
  const ratio = Math.min(devicePixelRatio || 1, 2), pen = canvas.getContext("2d"), box = canvas.getBoundingClientRect();
  const [w, h] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  if (!result) return;
  const corners = panes.map((pane) => { const at = pane.canvas.getBoundingClientRect(); return [at.left - box.left, at.top - box.top]; });
  const ends = (row) => panes.map((pane, side) => {
    const keypoint = pane.keypoints[row[side]];
    const at = keypoint && pane.toScreen(...keypoint);
    return at && pane.visible(at) ? [at[0] + corners[side][0], at[1] + corners[side][1]] : null;
  });
  const stroke = (rows, colour, width, dash = []) => {
    pen.setLineDash(dash); pen.strokeStyle = colour; pen.lineWidth = width; pen.beginPath();
    for (const row of rows) { const [a, b] = ends(row); if (a && b) { pen.moveTo(...a); pen.lineTo(...b); } }
    pen.stroke(); pen.setLineDash([]);
  };
  const wanted = result.matches.map((row, i) => ({ row, verified: result.verified[i] })).filter(({ verified }) => (verified ? good : bad));
  const shown = spread(wanted.map(({ row }) => row), panes[0].keypoints, most).map((i) => wanted[i]);
  pen.globalAlpha = chosen ? 0.25 : 0.75;
  stroke(shown.filter(({ verified }) => !verified).map(({ row }) => row), BAD, 1, [4, 3]);
  stroke(shown.filter(({ verified }) => verified).map(({ row }) => row), GOOD, 1);
  pen.globalAlpha = 1;
  if (chosen) stroke(result.matches.filter((row) => row[chosen.side] === chosen.index), CHOSEN, 2.5);
}
