// The match page: photos, settings, results, and the address that holds them all.

import { $, announce, ask, count, element, chooseFromServer, followAddress, prepareTheme, query, tell, tellError } from "/static/common.js";
import { Pane } from "/static/pane.js";
import { epipolarLine, outlineOf } from "/static/match_geometry.js";
import { drawLines } from "/static/match_lines.js";
import { fillComparison } from "/static/match_table.js";
import { find, keep } from "/static/photo_store.js";

const DEFAULTS = { method: "", keypoints: 2048, score: 0, ratio: 1, similarity: -1, geometry: "fundamental", threshold: 1.5, lines: 150, overlay: "", strength: 0.6, good: 1, bad: 1, points: 1 };
const SHOWN = ["good", "bad", "points"];
const LOOK = { longest_px: 1600 };
const state = { photos: [null, null], settings: { ...DEFAULTS }, compared: new Set(), chosen: null };
let methods = [];
const features = new Map(); // "method photo" -> features
const results = new Map(); // method -> what /api/pair answered, for the photos and settings of now
const panes = [...document.querySelectorAll(".pane")].map((box, side) => {
  const pane = new Pane(box.querySelector("canvas"), { onPick: (index) => choose(side, index), onView: () => linesSoon() });
  pane.box = box;
  return pane;
});

// ---- settings ----------------------------------------------------------------------------------------------------------

const controls = {
  keypoints: { input: "keypoints", read: (v) => Math.round(2 ** v), write: Math.log2, show: (v) => v.toLocaleString("en") },
  score: { input: "score", read: Number, write: Number, show: (v) => (v ? `${v} %` : "any") },
  ratio: { input: "ratio", read: Number, write: Number, show: (v) => (v < 1 ? v.toFixed(2) : "off") },
  similarity: { input: "similarity", read: (v) => (v < 0 ? -1 : Number(v)), write: (v) => (v < 0 ? -0.02 : v), show: (v) => (v < 0 ? "any" : v.toFixed(2)) },
  threshold: { input: "threshold", read: Number, write: Number, show: (v) => `${v} px` },
  lines: { input: "lines-shown", read: Number, write: Number, show: (v) => (v ? `at most ${v}` : "none") },
  strength: { input: "strength", read: Number, write: Number, show: (v) => `${Math.round(100 * v)} %` },
};
const outputs = { keypoints: "out-keypoints", score: "out-score", ratio: "out-ratio", similarity: "out-similarity", threshold: "out-threshold", lines: "out-lines", strength: "out-strength" };

function showSettings() {
  for (const [name, { input, write, show }] of Object.entries(controls)) {
    $(input).value = write(state.settings[name]);
    $(outputs[name]).value = show(state.settings[name]);
    $(input).setAttribute("aria-valuetext", show(state.settings[name]));
  }
  for (const name of ["method", "geometry", "overlay"]) $(name).value = state.settings[name];
  for (const name of SHOWN) $(`show-${name}`).checked = state.settings[name];
  const card = methods.find((method) => method.name === state.settings.method);
  $("note").textContent = card?.note || "";
  $("note").hidden = !card?.note;
  for (const option of $("overlay").options) option.disabled = option.value !== "" && !card?.has_maps;
}

function listenToSettings() {
  for (const [name, { input, read }] of Object.entries(controls)) {
    $(input).addEventListener("input", () => { state.settings[name] = read($(input).value); changed(name); });
  }
  for (const name of ["geometry", "overlay"]) $(name).addEventListener("change", () => { state.settings[name] = $(name).value; changed(name); });
  $("method").addEventListener("change", () => showMethod($("method").value));
  for (const name of SHOWN) $(`show-${name}`).addEventListener("change", () => { state.settings[name] = Number($(`show-${name}`).checked); changed(name); });
  $("settings").addEventListener("submit", (event) => event.preventDefault());
}

function changed(name) {
  showSettings();
  remember();
  if (name === "strength") panes.forEach((pane) => pane.set({ strength: state.settings.strength }));
  else if (name === "lines" || SHOWN.includes(name)) draw();
  else if (name === "overlay") overlays();
  else { draw(); update(); }
}

function showMethod(name) {
  state.settings.method = name;
  if (!methods.find((method) => method.name === name)?.has_maps) state.settings.overlay = "";
  unchoose();
  changed("method");
  overlays();
}

// ---- the address ---------------------------------------------------------------------------------------------------------

function remember() {
  const parameters = new URLSearchParams();
  state.photos.forEach((photo, side) => { if (photo) { parameters.set(`photo${side}`, photo.reference); parameters.set(`name${side}`, photo.name); } });
  for (const [name, value] of Object.entries(state.settings)) if (value !== DEFAULTS[name]) parameters.set(name, value);
  if (state.compared.size) parameters.set("compared", [...state.compared].join(","));
  if (state.chosen) parameters.set("keypoint", `${state.chosen.side},${state.chosen.index}`);
  history.replaceState(null, "", `#${parameters}`);
}

async function restore() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(DEFAULTS)) {
    const text = parameters.get(name);
    if (text !== null && (typeof value === "string" || Number.isFinite(Number(text)))) state.settings[name] = typeof value === "string" ? text : Number(text);
  }
  if (!methods.some((method) => method.name === state.settings.method)) state.settings.method = methods[0].name;
  for (const name of (parameters.get("compared") || "").split(",")) if (methods.some((method) => method.name === name)) state.compared.add(name);
  showSettings();
  const wanted = [0, 1].map((side) => [parameters.get(`photo${side}`), parameters.get(`name${side}`) || ""]);
  const keypoint = (parameters.get("keypoint") || "").match(/^([01]),(\d+)$/);
  await Promise.all(wanted.map(([reference, name], side) => reference && bringBack(side, reference, name)));
  await update();
  if (state.settings.overlay) await overlays();
  if (keypoint && state.photos[0] && state.photos[1]) await choose(Number(keypoint[1]), Number(keypoint[2]));
}

async function bringBack(side, reference, name) {
  try {
    await show(side, reference, name || reference.split("/").pop());
  } catch (error) {
    const kept = error.status === 404 ? await find(reference) : null;
    if (kept) await send(side, kept.blob, kept.name);
    else tell(`${name || "A photo of this link"}: ${error.message}`, true);
  }
}

// ---- photos ----------------------------------------------------------------------------------------------------------------

function upload(file, name) {
  const body = new FormData();
  body.append("image", file, name);
  return ask("/api/photos", { method: "POST", body, attempts: 20 });
}

async function send(side, file, name) {
  const photo = await upload(file, name);
  keep(photo.photo, file, photo.name);
  await show(side, photo.photo, photo.name);
}

async function show(side, reference, name) {
  const answer = await ask("/api/photo/preview", { parameters: { photo: reference, ...LOOK }, wanted: "raw" });
  const image = await createImageBitmap(await answer.blob());
  const [width, height] = ["X-Photo-Width", "X-Photo-Height"].map((header) => Number(answer.headers.get(header)));
  state.photos[side] = { reference, name };
  unchoose();
  results.clear();
  panes[side].setPhoto(image, width, height);
  const shapes = panes.filter((pane) => pane.width).map((pane) => pane.width / pane.height);
  $("stage").style.setProperty("--shape", Math.max(0.6, Math.min(2, ...shapes)));
  panes[side].box.querySelector(".name").textContent = name;
  panes[side].box.querySelector(".invite").hidden = true;
  panes[side].canvas.setAttribute("aria-label", `${side ? "Second" : "First"} photo: ${name}, ${width} by ${height} pixels`);
  remember();
}

async function take(side, file) {
  tell("");
  const view = panes[side].box.querySelector(".view");
  view.classList.add("wait");
  try {
    await send(side, file, file.name || "pasted");
    await update();
    await overlays();
  } catch (error) { tellError(error); } finally { view.classList.remove("wait"); }
}

async function takeFiles(side, files) {
  const photos = [...files].filter((file) => file.type.startsWith("image/") || /\.(tiff?|p[bgnp]m)$/i.test(file.name));
  if (!photos.length) { tell("That is no photo: choose JPEG, PNG, WebP, TIFF, BMP or PNM files.", true); return; }
  if (photos.length > 1) await Promise.all([take(0, photos[0]), take(1, photos[1])]);
  else await take(side, photos[0]);
}

function listenToPhotos() {
  panes.forEach(({ box }, side) => {
    const input = box.querySelector("input");
    input.addEventListener("change", () => { takeFiles(side, input.files); input.value = ""; });
    input.multiple = true;
    panes[side].canvas.addEventListener("click", () => { if (!state.photos[side]) input.click(); });
    box.querySelector(".from-server").addEventListener("click", async () => {
      const path = await chooseFromServer(`${side ? "Second" : "First"} photo`, "photo");
      if (!path) return;
      try { tell(""); await show(side, path, path.split("/").pop()); await update(); await overlays(); } catch (error) { tellError(error); }
    });
    box.addEventListener("dragover", (event) => { event.preventDefault(); box.classList.add("over"); });
    box.addEventListener("dragleave", () => box.classList.remove("over"));
    box.addEventListener("drop", (event) => { event.preventDefault(); event.stopPropagation(); box.classList.remove("over"); takeFiles(side, event.dataTransfer.files); });
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  const free = () => (state.photos[0] && !state.photos[1] ? 1 : 0);
  document.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files.length) takeFiles(free(), event.dataTransfer.files); });
  document.addEventListener("paste", (event) => { if (event.clipboardData?.files.length) takeFiles(free(), event.clipboardData.files); });
}

// A request about the photos. If the server has forgotten them (or was started anew), it gets them once more.
async function askAboutPhotos(path, options) {
  try {
    return await ask(path, options);
  } catch (error) {
    if (error.status !== 404) throw error;
    const kept = (await Promise.all(state.photos.filter(Boolean).map(({ reference }) => find(reference)))).filter(Boolean);
    if (!kept.length) throw error;
    await Promise.all(kept.map(({ blob, name }) => upload(blob, name)));
    return ask(path, options);
  }
}

// ---- features and matches --------------------------------------------------------------------------------------------------

const shownMethods = () => [...new Set([state.settings.method, ...state.compared])];
const known = (method, side) => state.photos[side] && features.get(`${method} ${state.photos[side].reference}`);

async function learnFeatures(method, side) {
  const photo = state.photos[side];
  if (!photo || known(method, side)) return;
  const view = panes[side].box.querySelector(".view");
  view.classList.add("wait");
  try {
    const found = await askAboutPhotos("/api/photo/features", { parameters: { photo: photo.reference, method, ...LOOK }, attempts: 20 });
    features.set(`${method} ${photo.reference}`, { ...found, top: found.scores[0] || 0 });
  } finally { view.classList.remove("wait"); }
}

// The score slider is a share of the best score, squared: low scores are many.
const leastScore = (method) => Math.max(...[0, 1].map((side) => known(method, side)?.top || 0)) * (state.settings.score / 100) ** 2;

// What the sliders mean for the server.
function parameters(method) {
  const { settings, photos } = state;
  return {
    photo0: photos[0].reference, photo1: photos[1].reference, method, ...LOOK, max_keypoints: settings.keypoints,
    min_score: leastScore(method), ratio: settings.ratio, min_similarity: settings.similarity,
    geometry: settings.geometry, threshold_px: settings.threshold,
  };
}

let running = null, again = false;

// Bring what is shown up to date. Changes that come meanwhile wait for one more round, so that only the last one counts.
function update() {
  if (running) { again = true; return running; }
  running = (async () => {
    do { again = false; await round(); } while (again);
  })().catch(tellError).finally(() => { running = null; });
  return running;
}

async function round() {
  const start = performance.now();
  for (const method of shownMethods()) { // the one that is shown comes first
    if (again && method !== state.settings.method) return; // a slider moved on: it goes before the comparison
    await learnFeatures(method, 0);
    await learnFeatures(method, 1);
    if (method === state.settings.method) draw();
    if (!state.photos[0] || !state.photos[1]) continue;
    results.set(method, await askAboutPhotos("/api/pair", { parameters: parameters(method), attempts: 20 }));
    if (method === state.settings.method) { $("summary").dataset.ms = Math.round(performance.now() - start); draw(); }
    showComparison();
  }
  for (const method of results.keys()) if (!shownMethods().includes(method)) results.delete(method);
  if (state.chosen && results.size) showLine();
}

function draw() {
  const { method, good, bad, points } = state.settings, result = results.get(method);
  panes.forEach((pane, side) => {
    const found = known(method, side);
    const number = result ? result.num_keypoints[side] : found ? Math.min(state.settings.keypoints, found.scores.filter((score) => score >= leastScore(method)).length) : 0;
    const states = new Uint8Array(number);
    result?.matches.forEach((row, i) => { states[row[side]] = Math.max(states[row[side]], result.verified[i] ? 2 : 1); });
    pane.set({ keypoints: found ? found.keypoints.slice(0, number) : [], states, shown: { good, bad }, showPoints: points, strength: state.settings.strength, outline: side && result ? outlineOf(result.geometry, panes[0]) : null });
  });
  describe(result);
  keepLinks(Boolean(result));
  linesSoon();
}

function describe(result) {
  const numbers = [0, 1].filter((side) => state.photos[side]).map((side) => panes[side].keypoints.length);
  const text = numbers.length ? `${numbers.slice(0, -1).map((number) => `${number.toLocaleString("en")} and `).join("")}${count(numbers.at(-1), "keypoint")}` : "";
  if (!result) { if (text) $("summary").textContent = `${text}.`; return; }
  const { length } = result.matches, good = result.geometry.num_inliers;
  const share = length ? ` (${Math.round((100 * good) / length)} %)` : "";
  const kind = result.geometry.kind === "homography" ? "homography" : "epipolar geometry";
  $("summary").textContent = `${text}: ${count(length, "match", "matches")}, ${good.toLocaleString("en")} agree${good === 1 ? "s" : ""} with one ${kind}${share}.`;
  Object.assign($("summary").dataset, { matches: length, agree: good });
}

let linesWaiting = 0;
function linesSoon() {
  if (linesWaiting) return;
  linesWaiting = requestAnimationFrame(() => {
    linesWaiting = 0;
    const { method, lines, good, bad } = state.settings;
    drawLines($("lines"), panes, results.get(method), { most: lines, good, bad, chosen: state.chosen });
  });
}

function showComparison() {
  $("comparison").hidden = !(state.photos[0] && state.photos[1]);
  fillComparison($("rows"), methods, results, { shown: state.settings.method, compared: state.compared }, {
    onShow: (name) => { state.compared.add(state.settings.method); showMethod(name); },
    onCompare: (name) => { state.compared.add(name); remember(); showComparison(); update(); },
  });
}

// ---- one keypoint ------------------------------------------------------------------------------------------------------------

function unchoose() {
  if (state.chosen) panes[1 - state.chosen.side].set({ overlay: null });
  state.chosen = null;
  panes.forEach((pane) => pane.set({ chosen: -1, candidates: [], line: null }));
  $("selected").hidden = true;
  linesSoon();
}

async function choose(side, index) {
  const before = state.chosen;
  if (before) unchoose();
  if (index < 0) { remember(); if (before && state.settings.overlay) overlays(); return; }
  state.chosen = { side, index };
  panes[side].set({ chosen: index });
  remember();
  if (!state.photos[1 - side]) return;
  const asked = { ...parameters(state.settings.method), side, keypoint: index };
  try {
    const found = await askAboutPhotos("/api/pair/keypoint", { parameters: asked });
    if (state.chosen?.side !== side || state.chosen.index !== index) return;
    showChosen(found);
    showLine();
    if (!methods.find((method) => method.name === state.settings.method).has_maps) return;
    const answer = await askAboutPhotos("/api/pair/similarity", { parameters: asked, wanted: "raw", attempts: 20 });
    const overlay = await createImageBitmap(await answer.blob());
    if (state.chosen?.side === side && state.chosen.index === index) panes[1 - side].set({ overlay });
  } catch (error) { if (state.chosen) tellError(error); }
}

function showChosen(found) {
  const { side, index } = state.chosen, other = side ? "first" : "second";
  const result = results.get(state.settings.method);
  const at = result ? result.matches.findIndex((row) => row[side] === index) : -1;
  const fate = at < 0 ? "It has no match." : result.verified[at] ? "Its match agrees with the geometry." : "Its match does not agree with the geometry.";
  $("selected-title").textContent = `Keypoint ${index + 1} of the ${side ? "second" : "first"} photo`;
  $("selected-text").textContent = `At (${found.x.toFixed(1)}, ${found.y.toFixed(1)}), score ${found.score.toPrecision(3)}. ${fate}`;
  $("candidates").replaceChildren(...found.candidates.map(([number, x, y, similarity], rank) => {
    const matched = at >= 0 && result.matches[at][1 - side] === number;
    const button = element("button", { type: "button", className: "small", textContent: `${rank + 1}. keypoint ${number + 1}${matched ? " (its match)" : ""}`, onclick: () => { panes[1 - side].canvas.focus(); choose(1 - side, number); } });
    return element("tr", {}, element("td", {}, button), ...[x.toFixed(1), y.toFixed(1), similarity.toFixed(3)].map((text) => element("td", { textContent: text })));
  }));
  $("selected").hidden = false;
  panes[1 - side].set({ candidates: found.candidates.map((row) => row[0]) });
  announce(`${$("selected-title").textContent}. ${$("selected-text").textContent} Most alike in the ${other} photo: similarity ${found.candidates[0]?.[3].toFixed(2) ?? "none"}.`);
}

// The epipolar line of the chosen keypoint in the other photo.
function showLine() {
  const { side, index } = state.chosen, found = results.get(state.settings.method)?.geometry, from = panes[side].keypoints[index];
  const line = found?.matrix && found.kind === "fundamental" && from ? epipolarLine(found.matrix, from, side) : null;
  panes[1 - side].set({ line });
}

async function overlays() {
  const { overlay, method } = state.settings;
  if (!overlay) { panes.forEach((pane) => pane.set({ overlay: null })); return; }
  try {
    await Promise.all(panes.map(async (pane, side) => {
      if (!state.photos[side]) return;
      const other = overlay === "descriptors" ? state.photos[1 - side]?.reference : "";
      const answer = await askAboutPhotos("/api/photo/overlay", { parameters: { photo: state.photos[side].reference, kind: overlay, method, other, ...LOOK }, wanted: "raw", attempts: 20 });
      const image = await createImageBitmap(await answer.blob());
      if (state.settings.overlay === overlay) pane.set({ overlay: image });
    }));
  } catch (error) { tellError(error); }
}

// ---- files and links -----------------------------------------------------------------------------------------------------------

function keepLinks(there) {
  for (const link of document.querySelectorAll(".keep")) {
    link.setAttribute("aria-disabled", String(!there));
    if (there) link.href = `/api/pair/export?${query({ ...parameters(state.settings.method), format: link.dataset.format })}`;
    else link.removeAttribute("href");
  }
}

async function copyLink() {
  remember();
  try { await navigator.clipboard.writeText(location.href); $("link").textContent = "Copied"; announce("Link copied"); } catch { prompt("Copy this link:", location.href); }
  setTimeout(() => { $("link").textContent = "Copy link"; }, 2000);
}

async function start() {
  prepareTheme();
  followAddress();
  listenToSettings();
  listenToPhotos();
  $("link").addEventListener("click", copyLink);
  $("unselect").addEventListener("click", () => { panes[state.chosen.side].canvas.focus(); choose(0, -1); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && state.chosen && !document.querySelector("dialog[open]")) choose(0, -1); });
  new ResizeObserver(linesSoon).observe($("stage"));
  methods = (await ask("/api/status")).methods;
  $("method").replaceChildren(...methods.map(({ name, title }) => element("option", { value: name, textContent: title })));
  keepLinks(false);
  await restore();
  document.body.dataset.ready = "yes";
}

start().catch(tellError);
