// What all pages share: asking the server, messages, the theme, choosing from the server's folders.

export class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

export const $ = (id) => document.getElementById(id);

export function query(parameters) {
  const kept = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
}

// The answer to a request; a busy server is asked again a few times, as it says.
export async function ask(path, { parameters = {}, wanted = "json", attempts = 4, ...options } = {}) {
  const text = query(parameters);
  for (let attempt = 1; ; attempt += 1) {
    let answer;
    try {
      answer = await fetch(text ? `${path}?${text}` : path, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "the server does not answer; is posfeat serve still running?");
    }
    if (answer.ok) return wanted === "raw" ? answer : answer[wanted]();
    let detail = `${answer.status} ${answer.statusText}`;
    try { detail = (await answer.json()).detail || detail; } catch { /* not one of ours */ }
    const wait = Number(answer.headers.get("Retry-After"));
    if (!((answer.status === 503 || answer.status === 429) && wait && attempt < attempts)) throw new Refused(answer.status, detail);
    await new Promise((resolve) => setTimeout(resolve, Math.min(wait, 10) * 1000));
  }
}

// One line above the page; none if the text is empty.
export function tell(text, bad = false) {
  const box = $("message");
  box.hidden = !text;
  box.className = bad ? "message bad" : "message";
  box.textContent = text;
}

export function tellError(error) {
  if (error.name !== "AbortError") tell(error.message || String(error), true);
}

// Say something to those who listen instead of look.
export function announce(text) { $("announcement").textContent = text; }

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "dataset") Object.assign(made.dataset, value);
    else if (key.startsWith("aria") || key === "role" || key === "for" || key === "scope") made.setAttribute(key === "for" ? key : key.replace("aria", "aria-").replace("--", "-").toLowerCase(), value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

export function count(number, one, many = `${one}s`) { return `${number.toLocaleString("en")} ${number === 1 ? one : many}`; }

export function cssColour(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16) / 255);
}

// The address holds what is shown, so another one typed or pasted there is read from the start; the skip link is no address.
export function followAddress() {
  addEventListener("hashchange", () => location.reload());
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
}

const THEMES = ["auto", "light", "dark"];

export function prepareTheme(changed = () => {}) {
  const choice = $("theme");
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
    changed();
  };
  let known = "auto";
  try { known = localStorage.getItem("theme") || "auto"; } catch { /* storage may be off */ }
  choice.value = THEMES.includes(known) ? known : "auto";
  apply(choice.value);
  choice.addEventListener("change", () => {
    try { localStorage.setItem("theme", choice.value); } catch { /* storage may be off */ }
    apply(choice.value);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed());
}

// A dialog over the server's folders. what: "photo" or "folder". Resolves to root/path, or null.
export function chooseFromServer(title, what, accepts = () => true) {
  const dialog = element("dialog", { ariaLabel: title });
  const names = element("ul", { className: "names" });
  const where = element("p", { className: "soft small" });
  const cancel = element("button", { type: "button", textContent: "Cancel" });
  const take = element("button", { type: "button", className: "main", textContent: "Choose this folder", hidden: what !== "folder" });
  const line = element("p", { className: "small", role: "status" });
  dialog.append(element("h2", { textContent: title }), where, names, line, element("div", { className: "row" }, take, cancel));
  document.body.append(dialog);
  return new Promise((resolve) => {
    const done = (value) => { dialog.close(); dialog.remove(); resolve(value); };
    const button = (text, act) => names.append(element("li", {}, element("button", { type: "button", textContent: text, onclick: act })));
    let here = null;
    const open = async (path) => {
      try {
        here = await ask("/api/folder", { parameters: { path } });
      } catch (error) { line.textContent = error.message; return; }
      names.replaceChildren();
      where.textContent = here.path || "Folders given to posfeat serve";
      if (here.path) button("↑ up", () => open(here.path.includes("/") ? here.path.slice(0, here.path.lastIndexOf("/")) : ""));
      for (const folder of here.folders) button(`${folder}/`, () => open(here.path ? `${here.path}/${folder}` : folder));
      if (what === "photo") for (const photo of here.photos) button(photo, () => done(`${here.path}/${photo}`));
      const empty = !here.path && !here.folders.length;
      line.textContent = empty ? "No folder was given: start posfeat serve FOLDER to choose from it." : what === "folder" && here.path ? count(here.photos.length, "photo") + " here" : "";
      take.disabled = !here.path || !accepts(here);
      names.querySelector("button")?.focus();
    };
    take.onclick = () => done(here.path);
    cancel.onclick = () => done(null);
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); done(null); });
    dialog.showModal();
    open("");
  });
}
