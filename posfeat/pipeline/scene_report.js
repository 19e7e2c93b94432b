// The page of a reconstruction: fills it from the data that the page carries, and joins the 3D view with lists and graphs.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const element = (tag, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (name) => {
  const value = parseInt(css(name).slice(1).replace(/^(.)(.)(.)$/, "$1$1$2$2$3$3"), 16);
  return [value >> 16, (value >> 8) & 255, value & 255].map((v) => v / 255);
};
const thumbnail = (name) => {
  if (!data.thumbnails[name]) return null;
  const image = element("img");
  image.src = `data:image/jpeg;base64,${data.thumbnails[name]}`;
  image.alt = name;
  return image;
};

// ---- head ------------------------------------------------------------------------------------------------------------

for (const line of data.doubts) byId("doubts").append(element("p", line, "doubt"));
for (const [name, value] of data.summary) {
  const box = element("div");
  box.append(element("dt", name), element("dd", value));
  byId("numbers").append(box);
}

// ---- scene -----------------------------------------------------------------------------------------------------------

const partners = data.names.map(() => []);
for (const [i, j, , inliers] of data.pairs) if (inliers) { partners[i].push([j, inliers]); partners[j].push([i, inliers]); }
const viewer = new SceneViewer(byId("scene"), { onCamera: (index) => select(index, true), onPoint: () => select(-1) });
const recolour = () => viewer.setColours({ background: rgb("--ground"), camera: rgb("--soft"), selected: rgb("--accent"), highlight: rgb("--accent") });
viewer.setScene({
  positions: new Float32Array(bytes(data.points.positions).buffer),
  colours: bytes(data.points.colours),
  cameras: data.cameras,
});
recolour();
viewer.setSizes({ point: 3 });
byId("all").addEventListener("click", () => { select(-1); viewer.showAll(); });
byId("point-size").addEventListener("input", (event) => viewer.setSizes({ point: Number(event.target.value) }));
byId("camera-size").addEventListener("input", (event) => viewer.setSizes({ camera: Number(event.target.value) }));

const buttons = data.cameras.map((camera, index) => {
  const button = element("button", camera.name);
  button.type = "button";
  button.addEventListener("click", () => select(index, true));
  byId("list").append(button);
  return button;
});

function select(index, fly = false) {
  viewer.selectCamera(index);
  buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
  const about = byId("about");
  about.replaceChildren();
  if (index < 0) {
    viewer.clearTrack();
    const shown = data.points.positions.length ? viewer.positions.length / 3 : 0;
    const part = shown < data.points.total ? `; the ${shown.toLocaleString()} that most photos see are shown` : "";
    about.append(element("p", `${data.cameras.length} photos, ${data.points.total.toLocaleString()} points${part}.`));
    return;
  }
  const camera = data.cameras[index], image = thumbnail(camera.name);
  const joined = partners[index].filter(([j]) => j < data.cameras.length);
  viewer.rays = joined.map(([j]) => [index, j].map((k) => [3, 7, 11].map((at) => data.cameras[k].world_from_cam[at])));
  viewer.redraw();
  if (fly) { viewer.flyToCamera(index); buttons[index].scrollIntoView({ block: "nearest" }); }
  if (image) about.append(image);
  about.append(
    element("p", camera.name),
    element("p", `${camera.num_points} points of ${camera.num_keypoints} keypoints`),
    element("p", `${camera.mean_error_px.toFixed(2)} px mean error`),
    element("p", `matches with ${camera.num_partners} photos of the model`),
    element("p", `focal length ${camera.focal_px.toFixed(0)} px`),
  );
  if (data.weak[camera.name]) about.append(element("p", data.weak[camera.name], "out"));
  drawGraphs();
}

// ---- match graph -----------------------------------------------------------------------------------------------------

const strongest = Math.max(1, ...data.pairs.map((pair) => pair[3]));
const strength = (inliers) => Math.sqrt(inliers / strongest);

// Where photos stand in the graph: cameras seen from above, the others in a row below them; within 0 .. 1.
const places = (() => {
  const flat = data.cameras.map((camera) => {
    const c = [3, 7, 11].map((at) => camera.world_from_cam[at]);
    return [viewer.east, viewer.north].map((axis) => axis[0] * c[0] + axis[1] * c[1] + axis[2] * c[2]);
  });
  const outside = data.names.length - flat.length, height = outside ? 0.84 : 0.94;
  const low = [0, 1].map((axis) => Math.min(...flat.map((p) => p[axis]))), high = [0, 1].map((axis) => Math.max(...flat.map((p) => p[axis])));
  const size = Math.max(high[0] - low[0], high[1] - low[1]) || 1;
  const scale = Math.min(0.9, height - 0.06) / size;
  const inside = flat.map((p) => [0.5 + (p[0] - (low[0] + high[0]) / 2) * scale, 0.04 + height / 2 - (p[1] - (low[1] + high[1]) / 2) * scale]);
  return [...inside, ...Array.from({ length: outside }, (_, i) => [0.05 + (0.9 * (i + 0.5)) / outside, 0.955])];
})();

function prepared(canvas) {
  const ratio = devicePixelRatio || 1, size = canvas.clientWidth, context = canvas.getContext("2d");
  canvas.width = canvas.height = Math.round(size * ratio);
  context.setTransform(canvas.width, 0, 0, canvas.width, 0, 0);
  context.clearRect(0, 0, 1, 1);
  return { context, pixel: 1 / Math.max(size, 1) };
}

function drawGraphs() {
  const { context: graph, pixel } = prepared(byId("graph")), selected = viewer.selected;
  const edges = data.pairs.filter((pair) => pair[3]).sort((a, b) => a[3] - b[3]);
  for (const [i, j, , inliers] of edges) {
    const lit = selected === i || selected === j;
    graph.strokeStyle = css(lit ? "--accent" : "--soft");
    graph.globalAlpha = lit ? 0.9 : 0.08 + 0.7 * strength(inliers) * Math.min(1, 300 / edges.length);
    graph.lineWidth = pixel * (lit ? 1.6 : 1);
    graph.beginPath(); graph.moveTo(...places[i]); graph.lineTo(...places[j]); graph.stroke();
  }
  graph.globalAlpha = 1;
  places.forEach(([x, y], i) => {
    graph.fillStyle = css(i === selected || i >= data.cameras.length ? "--accent" : "--text");
    graph.beginPath(); graph.arc(x, y, pixel * (i === selected ? 6 : 3.5), 0, 2 * Math.PI); graph.fill();
  });
  const { context: matrix } = prepared(byId("matrix")), step = 1 / data.names.length;
  matrix.fillStyle = css("--text");
  for (const [i, j, , inliers] of data.pairs) {
    if (!inliers) continue;
    matrix.globalAlpha = 0.1 + 0.9 * strength(inliers);
    for (const [row, column] of [[i, j], [j, i]]) matrix.fillRect(column * step, row * step, Math.max(step, pixel), Math.max(step, pixel));
  }
  matrix.globalAlpha = 1;
  if (data.cameras.length < data.names.length) {
    matrix.fillStyle = css("--accent");
    matrix.fillRect(data.cameras.length * step, 0, pixel, 1); matrix.fillRect(0, data.cameras.length * step, 1, pixel);
  }
}

const place = (event) => [event.offsetX, event.offsetY].map((v) => v / event.currentTarget.clientWidth);
const nearestPlace = (event) => {
  const [x, y] = place(event);
  const away = places.map((p) => Math.hypot(p[0] - x, p[1] - y)), best = away.indexOf(Math.min(...away));
  return away[best] < 0.03 ? best : -1;
};
const captions = { graph: byId("graph-caption").textContent, matrix: byId("matrix-caption").textContent };
byId("graph").addEventListener("pointermove", (event) => {
  const i = nearestPlace(event);
  byId("graph-caption").textContent = i < 0 ? captions.graph : `${data.names[i]}: verified matches with ${partners[i].length} photos`;
});
byId("graph").addEventListener("click", (event) => { const i = nearestPlace(event); select(i < data.cameras.length ? i : -1); drawGraphs(); });
const matches = new Map(data.pairs.map(([i, j, count, inliers]) => [`${Math.min(i, j)} ${Math.max(i, j)}`, [count, inliers]]));
byId("matrix").addEventListener("pointermove", (event) => {
  const [column, row] = place(event).map((v) => Math.floor(v * data.names.length));
  if (row === column || !data.names[row] || !data.names[column]) { byId("matrix-caption").textContent = captions.matrix; return; }
  const [count, inliers] = matches.get(`${Math.min(row, column)} ${Math.max(row, column)}`) || [-1, 0];
  byId("matrix-caption").textContent = `${data.names[row]} and ${data.names[column]}: ${count < 0 ? "not matched" : `${count} matches, ${inliers} verified`}`;
});

// ---- tables ----------------------------------------------------------------------------------------------------------

const cell = (content, className) => {
  const made = element("td", undefined, className);
  if (content) made.append(content);
  return made;
};
const row = (cells) => { const made = element("tr"); made.append(...cells); return made; };
const worst = [
  ...Object.entries(data.left_out).map(([name, why]) => [name, "not in the model", why]),
  ...Object.entries(data.weak).map(([name, why]) => [name, "weak", why]),
];
byId("worst").append(...worst.map(([name, what, why]) => row([cell(thumbnail(name)), cell(name), cell(what, what === "weak" ? "" : "out"), cell(why)])));
byId("worst-section").hidden = !worst.length && !data.failures.length;
byId("worst").append(...data.failures.map((line) => row([cell(), cell(), cell("left out", "out"), cell(line)])));
const total = data.steps.reduce((sum, step) => sum + step[1], 0);
byId("steps").append(...[...data.steps, ["together", total]].map(([step, seconds]) => row([cell(step), cell(`${seconds.toFixed(1)} s`, "number")])));
byId("made").textContent = `Made by PoSFeat ${data.version}. This page needs no other file and no network.`;

select(-1);
drawGraphs();
new ResizeObserver(drawGraphs).observe(byId("graph"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { recolour(); drawGraphs(); });
