// The training page: one run or two side by side; curves, pictures over time, and what was asked of them.

import { Chart } from "/static/chart.js";
import { $, ask, element, followAddress, prepareTheme, query, tell, tellError } from "/static/common.js";

const FOLLOW_MS = 5000, STILL_RUNNING_S = 600, PLAY_MS = 700;
const KEYS = ["a", "b"];
const MEANING = {
  dense_2px: "nearest neighbour in the whole other map within 2 px", dense_4px: "nearest neighbour in the whole other map within 4 px",
  repeatability: "keypoints found again within 3 px", repeatability_1px: "keypoints found again within 1 px", mma: "matching accuracy over 1 to 10 px",
  mma_1px: "matches within 1 px", matches_3px: "right matches a pair", posed_1px: "matches within 1 px of the true line", posed_3px: "matches within 3 px of the true line",
  posed_matches: "matches a posed pair",
};
const state = { paths: ["", ""], runs: [null, null], smoothing: 0.8, log: false, picture: "", moment: Infinity };
const charts = { validation: new Map(), training: new Map() };
let playing = null;

function remember() {
  const { paths, smoothing, log, picture, moment } = state;
  history.replaceState(null, "", `#${query({ a: paths[0], b: paths[1], smoothing, log: log ? 1 : "", picture, moment: Number.isFinite(moment) ? moment : "" })}`);
}

function restore(found) {
  const parameters = new URLSearchParams(location.hash.slice(1));
  state.paths = [parameters.get("a") || found[0]?.path || "", parameters.get("b") || ""];
  if (parameters.has("smoothing")) state.smoothing = Math.min(0.98, Math.max(0, Number(parameters.get("smoothing")) || 0));
  state.log = parameters.has("log");
  state.picture = parameters.get("picture") || "";
  if (parameters.has("moment")) state.moment = Number(parameters.get("moment"));
  $("smoothing").value = state.smoothing;
  $("log").checked = state.log;
}

function listRuns(found) {
  KEYS.forEach((key, i) => {
    const options = found.map(({ path, step }) => element("option", { value: path, textContent: `${path} · step ${step.toLocaleString("en")}` }));
    if (i) options.unshift(element("option", { value: "", textContent: "none" }));
    $(`run-${key}`).replaceChildren(...options);
    $(`run-${key}`).value = state.paths[i];
  });
}

async function load() {
  state.runs = await Promise.all(state.paths.map((path) => (path ? ask("/api/run", { parameters: { path } }) : null)));
  remember();
  draw();
}

const names = (kind) => [...new Set(state.runs.flatMap((run) => Object.keys(run?.curves[kind] || {})))];

function draw() {
  for (const kind of ["validation", "training"]) drawCharts(kind);
  drawPictures();
  $("texts").replaceChildren(...state.runs.flatMap((run, i) => (run && Object.keys(run.texts).length ? [textsOf(run, KEYS[i])] : [])));
  $("texts-card").hidden = !$("texts").children.length;
  const latest = Math.max(...state.runs.map((run) => run?.updated || 0)), age = Date.now() / 1000 - latest;
  $("updated").textContent = latest ? (age < 90 ? "written just now" : `last written ${new Date(latest * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })}`) : "";
  document.body.dataset.ready = "yes";
}

function textsOf(run, key) {
  const parts = Object.entries(run.texts).map(([name, text]) => element("details", {}, element("summary", { textContent: name }), element("pre", { className: "text", textContent: text, tabIndex: 0 })));
  return element("div", {}, element("h3", {}, element("i", { className: `key ${key}` }), run.path), ...parts);
}

function drawCharts(kind) {
  const wanted = names(kind);
  $(`${kind}-card`).hidden = !wanted.length;
  for (const [name, chart] of charts[kind]) if (!wanted.includes(name)) { chart.root.remove(); charts[kind].delete(name); }
  for (const name of wanted) {
    if (!charts[kind].has(name)) { const chart = new Chart(name, MEANING[name] || ""); charts[kind].set(name, chart); $(kind).append(chart.root); }
    const series = state.runs.map((run, i) => ({ name: state.paths[1] ? run?.path.split("/").pop() : "", colour: `--run-${KEYS[i]}`, dash: i ? "5 3" : "", rows: run?.curves[kind]?.[name] || [] }));
    charts[kind].get(name).set(series, kind === "training" ? { log: state.log, weight: state.smoothing } : {});
  }
}

// ---- pictures --------------------------------------------------------------------------------------------------------------

const rowsOf = (run) => run?.pictures[state.picture] || [];

function drawPictures() {
  const kinds = [...new Set(state.runs.flatMap((run) => Object.keys(run?.pictures || {})))].sort();
  $("pictures-card").hidden = !kinds.length;
  $("no-pictures").hidden = kinds.length > 0;
  if (!kinds.length) return;
  if (!kinds.includes(state.picture)) state.picture = kinds[0];
  if (kinds.join() !== [...$("picture").options].map(({ value }) => value).join()) $("picture").replaceChildren(...kinds.map((name) => element("option", { value: name, textContent: name.replaceAll("_", " ") })));
  $("picture").value = state.picture;
  const steps = [...new Set(state.runs.flatMap((run) => rowsOf(run).map(([step]) => step)))].sort((a, b) => a - b);
  const at = steps.findLastIndex((step) => step <= state.moment);
  $("moment").max = steps.length - 1;
  $("moment").value = Math.max(0, at);
  $("moment").disabled = $("play").disabled = steps.length < 2;
  const step = steps[Math.max(0, at)];
  $("out-moment").value = `step ${step.toLocaleString("en")}`;
  $("moment").setAttribute("aria-valuetext", $("out-moment").value);
  $("moment").oninput = () => { const chosen = steps[Number($("moment").value)]; state.moment = chosen === steps[steps.length - 1] ? Infinity : chosen; remember(); drawPictures(); };
  showPictures(step);
}

// Each run's last picture up to this step; pictures stay in the page and only their address changes, so that nothing flickers.
function showPictures(step) {
  const shown = state.runs.map((run, i) => ({ run, i, row: rowsOf(run).findLast((row) => row[0] <= step) || rowsOf(run)[0] })).filter(({ row }) => row);
  const figures = [...$("both").children];
  shown.forEach(({ run, i, row }, place) => {
    let figure = figures[place];
    if (!figure) { figure = element("figure", {}, element("figcaption"), element("img")); $("both").append(figure); }
    figure.querySelector("figcaption").replaceChildren(element("i", { className: `key ${KEYS[i]}` }), `${run.path} · step ${row[0].toLocaleString("en")}`);
    const image = figure.querySelector("img"), source = `/api/run/picture?${query({ path: run.path, name: row[1] })}`;
    if (image.getAttribute("src") !== source) image.src = source;
    image.alt = `${state.picture.replaceAll("_", " ")} of ${run.path} at step ${row[0]}`;
  });
  figures.slice(shown.length).forEach((figure) => figure.remove());
}

function play() {
  const start = !playing;
  clearInterval(playing);
  playing = null;
  $("play").textContent = start ? "Stop" : "Play";
  $("play").setAttribute("aria-pressed", String(start));
  if (!start) return;
  const slider = $("moment");
  if (slider.value === slider.max) slider.value = -1;
  playing = setInterval(() => {
    if (Number(slider.value) >= Number(slider.max)) { play(); return; }
    slider.value = Number(slider.value) + 1;
    slider.dispatchEvent(new Event("input"));
  }, PLAY_MS);
}

async function follow() {
  const running = state.runs.some((run) => run && Date.now() / 1000 - run.updated < STILL_RUNNING_S);
  if ($("follow").checked && running && !document.hidden && !playing) {
    try { await load(); } catch (error) { tellError(error); }
  }
  setTimeout(follow, FOLLOW_MS);
}

async function start() {
  prepareTheme();
  followAddress();
  const found = await ask("/api/runs");
  if (!found.length) { tell("No training run in the folders that were given: start posfeat serve with the folder that holds them, such as posfeat serve runs/."); document.body.dataset.ready = "yes"; return; }
  restore(found);
  listRuns(found);
  KEYS.forEach((key, i) => $(`run-${key}`).addEventListener("change", () => { state.paths[i] = $(`run-${key}`).value; tell(""); load().catch(tellError); }));
  const smoothing = () => { state.smoothing = Number($("smoothing").value); $("out-smoothing").value = state.smoothing ? state.smoothing.toFixed(2) : "off"; };
  smoothing();
  $("smoothing").addEventListener("input", () => { smoothing(); remember(); drawCharts("training"); });
  $("log").addEventListener("change", () => { state.log = $("log").checked; remember(); drawCharts("training"); });
  $("picture").addEventListener("change", () => { state.picture = $("picture").value; remember(); drawPictures(); });
  $("play").addEventListener("click", play);
  await load();
  follow();
}

start().catch(tellError);
