// A scene of points and cameras to look at from all sides: WebGL where there is one, a plain canvas otherwise.
// One module that needs no other file: pages import it, and a report can carry it inline.
//
//   const viewer = new SceneViewer(canvas, { onCamera: index => ..., onPoint: index => ... });
//   viewer.setScene({ positions: Float32Array(3N), colours: Uint8Array(3N), cameras: [...] });
//
// A camera is { name, world_from_cam: 16 numbers row by row, tan_x, tan_y }: x right, y down, z forward; tan_x and tan_y are
// half its picture's width and height at distance 1. Drag orbits, shift or the right button moves, the wheel and two
// fingers zoom; on the keyboard arrows orbit, shift and arrows move, + and - zoom, Home shows all, n and p step through cameras.

const FOV = 0.9; // of the picture's height, in radians
const PICK_PX = 10;
const POINTS_WITHOUT_GL = 30000;
const FLIGHT_MS = 700;
const DEFAULT_COLOURS = {
  background: [1, 1, 1], camera: [0.35, 0.42, 0.5], selected: [0.91, 0.3, 0.1], highlight: [0.91, 0.3, 0.1], located: [0.1, 0.55, 0.3],
};

const add = (a, b, s = 1) => [a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const length = (a) => Math.sqrt(dot(a, a));
const unit = (a) => { const n = length(a) || 1; return [a[0] / n, a[1] / n, a[2] / n]; };
const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
const centreOf = (camera) => [camera.world_from_cam[3], camera.world_from_cam[7], camera.world_from_cam[11]];
const axisOf = (camera, i) => [camera.world_from_cam[i], camera.world_from_cam[4 + i], camera.world_from_cam[8 + i]];
const median = (values) => { values.sort((a, b) => a - b); return values.length ? values[values.length >> 1] : 0; };

const POINT_SHADER = `
attribute vec3 position; attribute vec3 colour; uniform mat4 matrix; uniform float size; uniform float world_size; varying vec3 tint;
void main() { gl_Position = matrix * vec4(position, 1.0); gl_PointSize = clamp(world_size / gl_Position.w, size, 6.0 * size); tint = colour; }`;
const POINT_FRAGMENT = `
precision mediump float; varying vec3 tint;
void main() { vec2 p = gl_PointCoord - 0.5; if (dot(p, p) > 0.25) discard; gl_FragColor = vec4(tint, 1.0); }`;
const LINE_FRAGMENT = `precision mediump float; varying vec3 tint; void main() { gl_FragColor = vec4(tint, 1.0); }`;

export class SceneViewer {
  constructor(canvas, { onCamera = () => {}, onPoint = () => {}, onMove = () => {}, webgl = true } = {}) {
    this.canvas = canvas;
    Object.assign(this, { onCamera, onPoint, onMove });
    this.colours = DEFAULT_COLOURS;
    this.pointSize = 2;
    this.cameraScale = 1;
    this.frames = 0;
    this.gl = webgl ? canvas.getContext("webgl", { antialias: true }) : null;
    this.flat = this.gl ? null : canvas.getContext("2d");
    if (this.gl) this.prepareWebGL();
    this.setScene({ positions: new Float32Array(), colours: new Uint8Array(), cameras: [] });
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  // ---- what is shown -------------------------------------------------------------------------------------------------

  setScene({ positions, colours, cameras }) {
    Object.assign(this, { positions, pointColours: colours, cameras, selected: -1, marked: [], rays: [], located: null });
    const count = positions.length / 3;
    const step = Math.max(1, Math.floor(count / 20000));
    const sample = [0, 1, 2].map((axis) => { const v = []; for (let i = 0; i < count; i += step) v.push(positions[3 * i + axis]); return v; });
    const centres = cameras.map(centreOf);
    for (const c of count ? [] : centres) sample.forEach((v, axis) => v.push(c[axis]));
    this.middle = sample.map((v) => median([...v]));
    const away = sample[0].map((_, i) => length([0, 1, 2].map((axis) => sample[axis][i] - this.middle[axis]))).sort((a, b) => a - b);
    this.radius = away[Math.floor(away.length * 0.9)] || 1;
    const cameraAway = centres.map((c) => length(add(c, this.middle, -1))).sort((a, b) => a - b);
    this.extent = Math.max(this.radius, Math.min(cameraAway[Math.floor(cameraAway.length * 0.8)] || 0, 6 * this.radius));
    const some = centres.slice(0, 300); // how far a camera's nearest neighbour is
    const gaps = some.map((c, i) => Math.min(...some.map((other, j) => (i === j ? Infinity : length(add(c, other, -1))))));
    this.spacing = clamp(median(gaps.filter(Number.isFinite)), 0.04 * this.extent, 0.25 * this.extent);
    this.setUp(cameras.length ? unit(cameras.reduce((sum, c) => add(sum, unit(axisOf(c, 1)), -1), [0, 0, 0])) : [0, -1, 0]);
    if (this.gl) {
      this.upload(this.pointBuffer, positions);
      this.upload(this.colourBuffer, Float32Array.from(colours, (v) => v / 255));
    }
    this.showAll(false);
  }

  setUp(up) {
    this.up = length(up) > 0.5 ? up : [0, -1, 0];
    const side = Math.abs(this.up[0]) < 0.9 ? [1, 0, 0] : [0, 1, 0];
    this.east = unit(cross(side, this.up));
    this.north = cross(this.up, this.east);
  }

  setColours(colours) { this.colours = { ...DEFAULT_COLOURS, ...colours }; this.redraw(); }
  setSizes({ point = this.pointSize, camera = this.cameraScale }) { this.pointSize = point; this.cameraScale = camera; this.redraw(); }
  selectCamera(index) { this.selected = index; this.redraw(); }
  markPoints(indices) { this.marked = indices; this.redraw(); }
  // Lines from a point to the cameras that see it.
  showTrack(point, cameras) { this.rays = cameras.map((c) => [this.pointAt(point), centreOf(this.cameras[c])]); this.redraw(); }
  clearTrack() { this.rays = []; this.redraw(); }
  // One more camera, in a colour of its own: a photo that was localized. null takes it away.
  showLocated(camera) { this.located = camera; this.redraw(); }
  pointAt(index) { return [...this.positions.subarray(3 * index, 3 * index + 3)]; }

  // ---- where it is looked at from ------------------------------------------------------------------------------------

  showAll(animate = true) {
    let towards = this.cameras.reduce((sum, c) => add(sum, add(centreOf(c), this.middle, -1)), [0, 0, 0]);
    if (length(towards) < 1e-9) towards = this.north;
    const view = { target: [...this.middle], distance: (2.2 * this.extent) / Math.min(1, this.aspect()), ...this.angles(add(unit(towards), this.up, 0.45)) };
    this.fly(view, animate);
  }

  flyToCamera(index, animate = true) { this.flyToPose(this.cameras[index], animate); }

  // Look along a camera from a little behind it.
  flyToPose(camera, animate = true) {
    const forward = unit(axisOf(camera, 2)), centre = centreOf(camera);
    const depth = clamp(dot(add(this.middle, centre, -1), forward), 0.3 * this.radius, 3 * this.radius);
    const behind = Math.max(1.04, camera.tan_x / (Math.tan(FOV / 2) * this.aspect())); // further where the canvas is narrow
    this.fly({ target: add(centre, forward, depth), distance: behind * depth, ...this.angles(add([0, 0, 0], forward, -1)) }, animate);
  }

  flyToPoint(index, animate = true) { this.fly({ ...this.view, target: this.pointAt(index), distance: Math.min(this.view.distance, this.radius) }, animate); }

  markSize() { return this.pointSize + (this.canvas.clientWidth < 600 ? 0.5 : 2); }
  aspect() { return this.canvas.clientWidth / this.canvas.clientHeight || 1; }

  angles(direction) {
    const d = unit(direction);
    return { yaw: Math.atan2(dot(d, this.north), dot(d, this.east)), pitch: Math.asin(clamp(dot(d, this.up), -1, 1)) };
  }

  fly(view, animate) {
    cancelAnimationFrame(this.flight);
    if (!animate || !this.view || matchMedia("(prefers-reduced-motion: reduce)").matches) { this.look(view); return; }
    const from = this.view, start = performance.now();
    const turn = Math.atan2(Math.sin(view.yaw - from.yaw), Math.cos(view.yaw - from.yaw));
    const step = (now) => {
      const t = clamp((now - start) / FLIGHT_MS, 0, 1), s = t * t * (3 - 2 * t);
      this.look({
        target: add(from.target, add(view.target, from.target, -1), s), yaw: from.yaw + s * turn,
        pitch: from.pitch + s * (view.pitch - from.pitch), distance: from.distance * (view.distance / from.distance) ** s,
      });
      if (t < 1) this.flight = requestAnimationFrame(step);
    };
    this.flight = requestAnimationFrame(step);
  }

  look(view) {
    this.view = { ...view, pitch: clamp(view.pitch, -1.55, 1.55), distance: clamp(view.distance, 1e-4 * this.radius, 50 * this.extent) };
    this.onMove(this.view);
    this.redraw();
  }

  orbit(dx, dy) { this.look({ ...this.view, yaw: this.view.yaw + dx, pitch: this.view.pitch + dy }); }
  zoom(factor) { this.look({ ...this.view, distance: this.view.distance * factor }); }
  move(dx, dy) { // in pixels of the canvas
    const { right, upward } = this.axes(), scale = (2 * Math.tan(FOV / 2) * this.view.distance) / this.canvas.clientHeight;
    this.look({ ...this.view, target: add(add(this.view.target, right, -dx * scale), upward, dy * scale) });
  }

  axes() {
    const { yaw, pitch, target, distance } = this.view;
    const flat = add(this.east.map((v) => v * Math.cos(yaw)), this.north, Math.sin(yaw));
    const back = add(flat.map((v) => v * Math.cos(pitch)), this.up, Math.sin(pitch));
    const right = unit(cross(this.up, back));
    return { eye: add(target, back, distance), right, upward: cross(back, right), back };
  }

  // The matrix of OpenGL, column by column.
  matrix() {
    const { eye, right, upward, back } = this.axes(), f = 1 / Math.tan(FOV / 2);
    const aspect = this.canvas.width / Math.max(1, this.canvas.height);
    const far = this.view.distance + 60 * this.extent, near = Math.min(this.view.distance, this.radius) * 0.01;
    const rows = [
      [...right.map((v) => (f / aspect) * v), (-f / aspect) * dot(right, eye)],
      [...upward.map((v) => f * v), -f * dot(upward, eye)],
      [...back.map((v) => (v * (far + near)) / (near - far)), ((-dot(back, eye) * (far + near)) + 2 * far * near) / (near - far)],
      [...back.map((v) => -v), dot(back, eye)],
    ];
    return Float32Array.from({ length: 16 }, (_, i) => rows[i % 4][i >> 2]);
  }

  // Position on the canvas in CSS pixels and depth, or null behind the eye.
  project(p, m = this.matrix()) {
    const w = m[3] * p[0] + m[7] * p[1] + m[11] * p[2] + m[15];
    if (w <= 0) return null;
    const x = (m[0] * p[0] + m[4] * p[1] + m[8] * p[2] + m[12]) / w, y = (m[1] * p[0] + m[5] * p[1] + m[9] * p[2] + m[13]) / w;
    return [((x + 1) / 2) * this.canvas.clientWidth, ((1 - y) / 2) * this.canvas.clientHeight, w];
  }

  // ---- drawing -------------------------------------------------------------------------------------------------------

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  // Cameras before the eye would hide what it looks at.
  isClose(camera, eye) { return length(add(centreOf(camera), eye, -1)) <= 4 * this.cameraSize(); }

  cameraSize() { return 0.6 * this.cameraScale * this.spacing; }

  frustum(camera) {
    const size = this.cameraSize(), c = centreOf(camera), scale = 1 / Math.max(camera.tan_x, camera.tan_y);
    const [x, y, z] = [0, 1, 2].map((i) => axisOf(camera, i));
    const corner = (sx, sy) => add(add(add(c, z, size * scale), x, sx * camera.tan_x * size * scale), y, sy * camera.tan_y * size * scale);
    return { centre: c, corners: [corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)], roof: add(corner(0, -1), y, -0.35 * size) };
  }

  lines() {
    const { camera, selected, highlight, located } = this.colours, lines = [];
    const put = (colour) => (a, b) => lines.push([a, b, colour]);
    const draw = (shown, line) => {
      const { centre, corners, roof } = this.frustum(shown);
      corners.forEach((corner, i) => { line(centre, corner); line(corner, corners[(i + 1) % 4]); });
      line(corners[0], roof); line(corners[1], roof);
    };
    const { eye } = this.axes();
    this.cameras.forEach((c, i) => { if (i !== this.selected && !this.isClose(c, eye)) draw(c, put(camera)); });
    if (this.selected >= 0) draw(this.cameras[this.selected], put(selected));
    if (this.located) draw(this.located, put(located));
    for (const [a, b] of this.rays) put(highlight)(a, b);
    return lines;
  }

  draw() {
    const ratio = Math.min(devicePixelRatio || 1, 2), { canvas } = this;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height || !this.view) return;
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    (this.gl ? this.drawWebGL : this.drawFlat).call(this, this.matrix(), ratio);
    this.frames += 1;
  }

  prepareWebGL() {
    const { gl } = this;
    const compile = (kind, source) => { const s = gl.createShader(kind); gl.shaderSource(s, source); gl.compileShader(s); return s; };
    const link = (fragment) => {
      const program = gl.createProgram();
      gl.attachShader(program, compile(gl.VERTEX_SHADER, POINT_SHADER)); gl.attachShader(program, compile(gl.FRAGMENT_SHADER, fragment));
      gl.bindAttribLocation(program, 0, "position"); gl.bindAttribLocation(program, 1, "colour");
      gl.linkProgram(program);
      return { program, at: Object.fromEntries(["matrix", "size", "world_size"].map((n) => [n, gl.getUniformLocation(program, n)])) };
    };
    this.dots = link(POINT_FRAGMENT);
    this.strokes = link(LINE_FRAGMENT);
    [this.pointBuffer, this.colourBuffer, this.freeBuffer, this.freeColours] = [0, 0, 0, 0].map(() => gl.createBuffer());
    gl.enableVertexAttribArray(0); gl.enableVertexAttribArray(1);
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => { this.prepareWebGL(); this.upload(this.pointBuffer, this.positions);
      this.upload(this.colourBuffer, Float32Array.from(this.pointColours, (v) => v / 255)); this.redraw(); }, { once: true });
  }

  upload(buffer, values) { const { gl } = this; gl.bindBuffer(gl.ARRAY_BUFFER, buffer); gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW); }

  drawWebGL(matrix, ratio) {
    const { gl } = this, b = this.colours.background;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(b[0], b[1], b[2], 1); gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT); gl.enable(gl.DEPTH_TEST);
    const run = ({ program, at }, positions, colours, mode, count, size) => {
      gl.useProgram(program);
      gl.uniformMatrix4fv(at.matrix, false, matrix); gl.uniform1f(at.size, size * ratio);
      gl.uniform1f(at.world_size, (0.004 * size * this.radius * this.canvas.height) / 2);
      gl.bindBuffer(gl.ARRAY_BUFFER, positions); gl.vertexAttribPointer(0, 3, gl.FLOAT, false, 0, 0);
      gl.bindBuffer(gl.ARRAY_BUFFER, colours); gl.vertexAttribPointer(1, 3, gl.FLOAT, false, 0, 0);
      gl.drawArrays(mode, 0, count);
    };
    run(this.dots, this.pointBuffer, this.colourBuffer, gl.POINTS, this.positions.length / 3, this.pointSize);
    const free = (program, mode, positions, colours, size) => {
      if (!positions.length) return;
      this.upload(this.freeBuffer, new Float32Array(positions)); this.upload(this.freeColours, new Float32Array(colours));
      run(program, this.freeBuffer, this.freeColours, mode, positions.length / 3, size);
    };
    const lines = this.lines();
    free(this.strokes, gl.LINES, lines.flatMap(([p, q]) => [...p, ...q]), lines.flatMap(([, , c]) => [...c, ...c]), 1);
    gl.disable(gl.DEPTH_TEST);
    free(this.dots, gl.POINTS, Array.from(this.marked).flatMap((i) => this.pointAt(i)), Array.from(this.marked).flatMap(() => this.colours.highlight), this.markSize());
  }

  drawFlat(matrix, ratio) {
    const { flat } = this, css = (c) => `rgb(${c.map((v) => Math.round(255 * v)).join(",")})`;
    flat.setTransform(ratio, 0, 0, ratio, 0, 0);
    flat.fillStyle = css(this.colours.background); flat.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    const dot2 = (index, colour, size) => {
      const at = this.project(this.pointAt(index), matrix);
      if (at) { flat.fillStyle = colour; flat.fillRect(at[0] - size / 2, at[1] - size / 2, size, size); }
    };
    const count = this.positions.length / 3, step = Math.max(1, Math.ceil(count / POINTS_WITHOUT_GL)), c = this.pointColours;
    for (let i = 0; i < count; i += step) dot2(i, `rgb(${c[3 * i]},${c[3 * i + 1]},${c[3 * i + 2]})`, this.pointSize);
    for (const [from, to, colour] of this.lines()) {
      const a = this.project(from, matrix), z = this.project(to, matrix);
      if (!a || !z) continue;
      flat.strokeStyle = css(colour); flat.beginPath(); flat.moveTo(a[0], a[1]); flat.lineTo(z[0], z[1]); flat.stroke();
    }
    for (const index of this.marked) dot2(index, css(this.colours.highlight), this.markSize());
  }

  // ---- hand and keyboard ---------------------------------------------------------------------------------------------

  // The camera, or else the point, under a position of the canvas in CSS pixels.
  pick(x, y) {
    const m = this.matrix(), near = (at) => (at ? Math.hypot(at[0] - x, at[1] - y) : Infinity);
    const { eye } = this.axes();
    let best = { distance: PICK_PX, camera: -1 };
    this.cameras.forEach((c, i) => {
      if (this.isClose(c, eye)) return;
      const { centre, corners } = this.frustum(c);
      const middle = corners.reduce((sum, p) => add(sum, p, 0.25), [0, 0, 0]);
      const distance = Math.min(near(this.project(centre, m)), near(this.project(middle, m)));
      if (distance < best.distance) best = { distance, camera: i };
    });
    if (best.camera >= 0) return best;
    // the nearest to the eye counts among those that are about as near to the finger; no object a point: there may be a million
    const p = this.positions, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    let point = -1, least = Infinity;
    for (let i = 0; i < p.length; i += 3) {
      const w = m[3] * p[i] + m[7] * p[i + 1] + m[11] * p[i + 2] + m[15];
      if (w <= 0) continue;
      const dx = (((m[0] * p[i] + m[4] * p[i + 1] + m[8] * p[i + 2] + m[12]) / w + 1) / 2) * width - x;
      const dy = ((1 - (m[1] * p[i] + m[5] * p[i + 1] + m[9] * p[i + 2] + m[13]) / w) / 2) * height - y;
      const away = Math.hypot(dx, dy);
      if (away < PICK_PX && away + (4 * w) / this.view.distance < least) { least = away + (4 * w) / this.view.distance; point = i / 3; }
    }
    return { camera: -1, point };
  }

  listen() {
    const { canvas } = this, fingers = new Map();
    let moved = 0, spread = 0;
    canvas.style.touchAction = "none";
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const gap = () => { const [a, b] = [...fingers.values()]; return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0; };
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event)); spread = gap(); moved = fingers.size > 1 ? 99 : 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const now = place(event), [dx, dy] = [now[0] - before[0], now[1] - before[1]];
      fingers.set(event.pointerId, now); moved += Math.abs(dx) + Math.abs(dy);
      if (fingers.size === 2) {
        const wide = gap();
        if (spread && wide) this.zoom(spread / wide);
        spread = wide; this.move(dx / 2, dy / 2);
      } else if (moved > 3) (event.shiftKey || event.buttons & 2 ? this.move(dx, dy) : this.orbit(-dx * 0.006, dy * 0.006));
    });
    const release = (event) => {
      const at = fingers.get(event.pointerId);
      fingers.delete(event.pointerId); spread = 0;
      if (!at || moved > 3 || event.type !== "pointerup" || event.button !== 0) return;
      const { camera, point } = this.pick(...at);
      if (camera >= 0) this.onCamera(camera); else if (point >= 0) this.onPoint(point);
    };
    canvas.addEventListener("pointerup", release); canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(Math.exp(clamp(event.deltaY, -120, 120) * 0.002)); }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const count = this.cameras.length, step = { n: 1, p: -1 }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (arrows && event.shiftKey) this.move(-40 * arrows[0], -40 * arrows[1]);
      else if (arrows) this.orbit(0.1 * arrows[0], -0.1 * arrows[1]);
      else if (event.key === "+" || event.key === "=") this.zoom(0.85);
      else if (event.key === "-") this.zoom(1 / 0.85);
      else if (event.key === "Home") this.showAll();
      else if (step && count) this.onCamera(this.selected < 0 ? 0 : (this.selected + step + count) % count);
      else return;
      event.preventDefault();
    });
  }
}
