// The model page: a model in 3D, its photos and tracks; photos found in it.

import { $, announce, ask, chooseFromServer, count, cssColour, element, followAddress, prepareTheme, query, tell, tellError } from "/static/common.js";
import { prepareJobs } from "/static/model_jobs.js";
import { drawCrop, PhotoView } from "/static/photo_view.js";
import { SceneViewer } from "/static/scene_viewer.js";

const MOST_CROPS = 40;
const state = { path: "", scene: null, camera: -1, point: -1, located: null };
const viewer = new SceneViewer($("world"), { onCamera: (index) => selectCamera(index).catch(tellError), onPoint: (index) => selectPoint(index).catch(tellError) });
const photo = new PhotoView($("photo"), (point) => selectPoint(point).catch(tellError));

function recolour() {
  viewer.setColours({ background: cssColour("--stage"), camera: cssColour("--soft"), selected: cssColour("--bad"), highlight: cssColour("--bad"), located: cssColour("--good") });
}

function remember() {
  const { path, camera, point } = state;
  history.replaceState(null, "", `#${query({ scene: path, camera: camera >= 0 ? camera : "", point: point >= 0 ? point : "" })}`);
}

// ---- the model ---------------------------------------------------------------------------------------------------------------

async function listScenes(wanted) {
  const found = await ask("/api/scenes");
  $("scene").replaceChildren(...found.map(({ path, images, points }) => element("option", { value: path, textContent: `${path}${images === null ? "" : ` · ${count(images, "photo")}, ${count(points ?? 0, "point")}`}` })));
  $("scene").disabled = !found.length;
  $("empty").hidden = found.length > 0;
  $("empty").textContent = "No model in the folders that were given: reconstruct photos at the side, or start posfeat serve with a model's folder.";
  const path = found.some((scene) => scene.path === wanted) ? wanted : found[0]?.path;
  if (path) { $("scene").value = path; await openScene(path); } else document.body.dataset.ready = "yes";
}

function applySizes() { viewer.setSizes({ point: Number($("point-size").value), camera: Number($("camera-size").value) }); }

async function openScene(path) {
  delete document.body.dataset.ready;
  $("summary").textContent = "reading the model ...";
  const scene = await ask("/api/scene", { parameters: { path }, attempts: 20 });
  const bytes = await ask("/api/scene/points", { parameters: { path }, wanted: "arrayBuffer", attempts: 20 });
  const positions = new Float32Array(bytes, 0, 3 * scene.num_points), colours = new Uint8Array(bytes, 12 * scene.num_points);
  Object.assign(state, { path, scene, camera: -1, point: -1, located: null });
  viewer.setScene({ positions, colours, cameras: scene.cameras });
  if (!state.sized) { $("point-size").value = 7 - Math.log10(Math.max(1, scene.num_points)); applySizes(); } // few points are drawn large
  const part = scene.num_points < scene.total_points ? ` (of ${scene.total_points.toLocaleString("en")}: those that most photos see)` : "";
  $("summary").textContent = `${count(scene.cameras.length, "photo")}, ${count(scene.num_points, "point")}${part}.`;
  $("found").replaceChildren(element("p", { className: "soft", textContent: scene.can_localize ? "" : "Photos cannot be found in this model: its features.h5 does not lie beside it." }));
  listCameras();
  showSelection();
  remember();
  document.body.dataset.ready = "yes";
}

function listCameras() {
  const text = $("filter").value.toLowerCase();
  $("cameras").replaceChildren(...(state.scene?.cameras || []).flatMap((camera, index) => (camera.name.toLowerCase().includes(text)
    ? [element("li", {}, element("button", { type: "button", dataset: { camera: index }, onclick: () => selectCamera(index).catch(tellError) }, element("span", { textContent: camera.name, title: camera.name }), element("span", { className: "soft", textContent: camera.num_points.toLocaleString("en"), title: `sees ${count(camera.num_points, "point")}` }, element("span", { className: "visually-hidden", textContent: " points" }))))] : [])));
  markCamera();
}

function markCamera() {
  for (const button of $("cameras").querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.camera) === state.camera));
  const pressed = $("cameras").querySelector('[aria-pressed="true"]'), list = $("cameras");
  // scrolls the list alone, not the page
  if (pressed) list.scrollTop = Math.min(pressed.offsetTop, Math.max(list.scrollTop, pressed.offsetTop + pressed.offsetHeight - list.clientHeight));
}

// ---- a camera, a point ---------------------------------------------------------------------------------------------------------

function clear() {
  Object.assign(state, { camera: -1, point: -1, located: null });
  showSelection();
  remember();
}

function clearPoint() {
  state.point = -1;
  photo.choose(-1);
  showSelection();
  remember();
}

function showSelection() {
  viewer.selectCamera(state.camera);
  if (state.camera < 0) { viewer.markPoints([]); $("photo-card").hidden = !state.located; }
  if (state.point < 0) { viewer.clearTrack(); $("track-card").hidden = true; }
  markCamera();
}

async function selectCamera(index) {
  const { path, scene } = state, camera = scene.cameras[index];
  Object.assign(state, { camera: index, point: -1, located: null });
  showSelection();
  remember();
  viewer.flyToCamera(index);
  const { points } = await ask("/api/scene/camera", { parameters: { path, camera: index } });
  if (state.camera !== index) return;
  viewer.markPoints(points.map(([point]) => point));
  $("photo-card").hidden = false;
  $("photo-title").textContent = camera.name;
  $("photo-text").textContent = `Sees ${count(points.length, "point")}; a click on one shows its track.${camera.photo ? "" : " Its photo is not in the folders that were given."}`;
  announce(`${camera.name}: sees ${count(points.length, "point")}`);
  await photo.show(camera, points);
}

async function selectPoint(index) {
  const { path, scene } = state;
  state.point = index;
  remember();
  const { xyz, track } = await ask("/api/scene/point", { parameters: { path, point: index } });
  if (state.point !== index) return;
  viewer.showTrack(index, track.map(([camera]) => camera));
  if (state.camera < 0) viewer.markPoints([index]);
  photo.choose(index);
  $("track-card").hidden = false;
  $("track-title").textContent = `A point that ${count(track.length, "photo sees", "photos see")}`;
  announce(`${$("track-title").textContent}, at ${xyz.map((v) => v.toFixed(2)).join(", ")}`);
  $("track").replaceChildren(...track.slice(0, MOST_CROPS).map(([camera, x, y]) => {
    const crop = element("canvas", { width: 220, height: 220, ariaHidden: "true" });
    const { name } = scene.cameras[camera];
    drawCrop(crop, scene.cameras[camera], x, y).catch(() => {});
    return element("button", { type: "button", title: name, onclick: () => selectCamera(camera).then(() => $("photo").focus()).catch(tellError) }, crop, element("span", { textContent: name }));
  }));
}

// ---- a photo to find -------------------------------------------------------------------------------------------------------------

async function locate(file) {
  if (!file) return;
  if (!state.scene) { tell("Open a model first."); return; }
  tell("");
  $("found").replaceChildren(element("p", {}, element("span", { className: "busy" }), `looking for ${file.name} ...`));
  const body = new FormData();
  body.append("image", file, file.name || "photo");
  body.append("scene", state.path);
  try {
    const found = await ask("/api/localize", { method: "POST", body });
    clear();
    viewer.showLocated(found);
    viewer.flyToPose(found);
    showLocated(file.name, found);
    await showQuery(file, found);
  } catch (error) {
    $("found").replaceChildren(element("p", { textContent: error.message }));
    viewer.showLocated(null);
  }
}

// The photo itself, with the keypoints that support its place; they have no number in the model.
async function showQuery(file, found) {
  const image = await createImageBitmap(file, { imageOrientation: "none" }).catch(() => null);
  if (!image) return; // a kind of picture that the browser does not know
  state.located = found;
  $("photo-card").hidden = false;
  $("photo-title").textContent = file.name;
  $("photo-text").textContent = `Found in the model by ${count(found.keypoints.length, "keypoint")}.`;
  await photo.show({ ...found, name: file.name }, found.keypoints.map(([x, y]) => [-1, x, y]), image);
}

function forget() {
  state.located = null;
  viewer.showLocated(null);
  $("found").replaceChildren();
  showSelection();
}

function showLocated(name, found) {
  const rows = [
    ["Photo", name], ["Place", found.centre.map((v) => v.toFixed(3)).join(", ")], ["Support", `${found.num_inliers.toLocaleString("en")} of ${count(found.num_matches, "match", "matches")}`],
    ["Error", `${found.reprojection_error_px.toFixed(2)} px`], ["Focal length", `${found.focal_px.toFixed(0)} px`], ["Matched with", `${found.images.slice(0, 3).join(", ")}${found.images.length > 3 ? ` and ${found.images.length - 3} more` : ""}`],
  ];
  $("found").replaceChildren(element("dl", {}, ...rows.flatMap(([term, text]) => [element("dt", { textContent: term }), element("dd", { textContent: text })])),
    element("div", { className: "row" }, element("button", { type: "button", className: "small", textContent: "Fly there", onclick: () => viewer.flyToPose(found) }), element("button", { type: "button", className: "small", textContent: "Forget", onclick: forget })));
  announce(`${name} found: ${rows[2][1]} support its place`);
}

function listenToPhoto() {
  const drop = $("drop");
  $("query").addEventListener("change", () => { locate($("query").files[0]); $("query").value = ""; });
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => { event.preventDefault(); drop.classList.remove("over"); locate(event.dataTransfer.files[0]); });
}

async function start() {
  followAddress();
  prepareTheme(() => { recolour(); photo.draw(); });
  $("scene").addEventListener("change", () => openScene($("scene").value).catch(tellError));
  $("all").addEventListener("click", () => viewer.showAll());
  for (const id of ["point-size", "camera-size"]) $(id).addEventListener("input", () => { state.sized = true; applySizes(); });
  $("filter").addEventListener("input", listCameras);
  $("unselect").addEventListener("click", () => { clear(); $("world").focus(); });
  $("untrack").addEventListener("click", () => { clearPoint(); (state.camera >= 0 ? $("photo") : $("world")).focus(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !document.querySelector("dialog[open]")) (state.point >= 0 ? clearPoint : clear)(); });
  listenToPhoto();
  const parameters = new URLSearchParams(location.hash.slice(1));
  prepareJobs({ choose: () => chooseFromServer("Photos to reconstruct", "folder", (folder) => folder.photos.length + folder.folders.length > 0), opened: (path) => listScenes(path) }).catch(tellError);
  await listScenes(parameters.get("scene"));
  const [camera, point] = ["camera", "point"].map((name) => (parameters.has(name) ? Number(parameters.get(name)) : -1));
  if (state.scene?.cameras[camera]) await selectCamera(camera);
  if (state.scene && point >= 0 && point < state.scene.num_points) await selectPoint(point);
  window.viewer = viewer; // for the curious, in the browser's console
}

start().catch(tellError);
