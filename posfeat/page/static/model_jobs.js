// Reconstructions: start one, watch it, stop it, open what came of it.

import { $, announce, ask, count, element, tell, tellError } from "/static/common.js";

const WATCH_MS = 700, IDLE_MS = 5000;
const STEPS = { "": "starting", extract: "extracting features", pairs: "choosing pairs", match: "matching", verify: "verifying", map: "mapping", export: "exporting", report: "writing the report" };
const ORDER = Object.keys(STEPS);
const STATES = { waiting: "waits for its turn", running: "", done: "done", failed: "failed", cancelled: "stopped" };
const shown = new Map(); // job -> its box and its last state
let photos = null;

export async function prepareJobs({ choose, opened }) {
  $("choose-photos").addEventListener("click", async () => {
    const path = await choose();
    if (!path) return;
    photos = path;
    $("photos-chosen").textContent = path;
    $("start").disabled = false;
  });
  const keypoints = () => Math.round(2 ** Number($("max-keypoints").value));
  const show = () => { $("out-max").value = keypoints().toLocaleString("en"); };
  $("max-keypoints").addEventListener("input", show);
  show();
  $("reconstruct").addEventListener("submit", async (event) => {
    event.preventDefault();
    tell("");
    $("start").disabled = true;
    try {
      const asked = { photos, method: $("method").value, max_keypoints: keypoints(), pairs: $("pairs").value, share_camera: $("share").value };
      showJob(await ask("/api/reconstructions", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), attempts: 1 }), opened);
      announce("Reconstruction started");
    } catch (error) { tellError(error); } finally { $("start").disabled = false; }
  });
  const { methods } = await ask("/api/status");
  $("method").replaceChildren(...methods.map(({ name, title }) => element("option", { value: name, textContent: title })));
  watch(opened);
}

async function watch(opened) {
  let wait = IDLE_MS;
  try {
    const jobs = document.hidden ? [] : await ask("/api/reconstructions");
    for (const job of [...jobs].reverse()) showJob(job, opened);
    if (jobs.some(({ state }) => state === "running" || state === "waiting")) wait = WATCH_MS;
  } catch { /* the next look may succeed */ }
  if ([...shown.values()].some(({ state }) => state === "running" || state === "waiting")) wait = WATCH_MS;
  setTimeout(() => watch(opened), wait);
}

function showJob(job, opened) {
  let known = shown.get(job.job);
  if (!known) {
    const box = element("div", { className: "job", dataset: { job: job.job } });
    $("jobs").prepend(box);
    known = { box, state: "" };
    shown.set(job.job, known);
  }
  const running = job.state === "running" || job.state === "waiting";
  if (known.state === job.state && !running) return;
  if (known.state && known.state !== job.state && !running) announce(`Reconstruction of ${job.photos}: ${STATES[job.state]}`);
  if (known.state === "running" && job.state === "done") opened(job.scene).catch(tellError);
  known.state = job.state;
  known.box.dataset.state = job.state;
  // the button keeps its place and its focus while the lines around it change
  const stop = known.box.querySelector(".stop") || element("button", { type: "button", className: "small stop", textContent: "Stop", onclick: () => cancel(job.job, opened) });
  const title = element("p", {}, element("b", { textContent: job.photos }), ` · ${job.method} · ${job.seconds.toFixed(0)} s`);
  const part = job.total ? `, ${job.done} of ${job.total}` : "";
  if (running) {
    const bar = element("progress", { max: 1, ariaLabel: `Reconstruction of ${job.photos}` });
    // steps count alike; within the step that runs, its own share
    if (job.step) bar.value = (ORDER.indexOf(job.step) - 1 + (job.total ? job.done / job.total : 0)) / (ORDER.length - 1);
    const text = element("p", { className: "small" }, element("span", { className: "busy" }), job.state === "waiting" ? STATES.waiting : STEPS[job.step] + part);
    fill(known.box, stop, [title, bar, text, ...lines(job)]);
  } else if (job.state === "done") {
    const { summary } = job, left = Object.entries(summary.left_out);
    const text = `${summary.images} of ${count(summary.photos, "photo")} placed, ${count(summary.points, "point")}, ${summary.reprojection_error_px} px, a point is seen by ${summary.track_length} photos.`;
    const open = element("button", { type: "button", className: "small", textContent: "Open", onclick: () => opened(job.scene).catch(tellError) });
    known.box.replaceChildren(title, element("p", { className: "small", textContent: text }), ...summary.doubts.map((line) => element("p", { className: "small", textContent: `Doubt: ${line}` })), ...list(left.map(([name, why]) => `${name}: ${why}`), "not placed"), ...lines(job), element("div", { className: "row" }, open));
  } else {
    const text = job.state === "failed" ? job.error : "Stopped. Starting it again goes on where it was.";
    known.box.replaceChildren(title, element("p", { className: "small", textContent: text }), ...lines(job));
  }
}

function fill(box, stop, before) {
  if (stop.parentNode !== box) { box.replaceChildren(...before, stop); return; }
  while (box.firstChild !== stop) box.firstChild.remove();
  stop.before(...before);
}

const lines = (job) => list(job.lines, "left out");
const list = (texts, title) => (texts.length ? [element("details", { className: "small" }, element("summary", { textContent: `${texts.length} ${title}` }), element("ul", {}, ...texts.map((text) => element("li", { textContent: text }))))] : []);

async function cancel(number, opened) {
  try { showJob(await ask(`/api/reconstructions/${number}`, { method: "DELETE" }), opened); } catch (error) { tellError(error); }
}
