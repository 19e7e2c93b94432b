// The table of methods: what each finds in these photos, and which one is shown.

import { element } from "/static/common.js";

export function fillComparison(rows, methods, results, { shown, compared }, { onShow, onCompare }) {
  const focused = document.activeElement.closest("#rows tr")?.dataset.method;
  rows.replaceChildren(...methods.map(({ name, title }) => {
    const radio = element("input", { type: "radio", name: "shown", checked: name === shown, onchange: () => onShow(name) });
    const cells = results.has(name) ? numbers(results.get(name)) : compared.has(name) || name === shown ? [working()] : [compare(title, () => { radio.focus(); onCompare(name); })];
    return element("tr", { dataset: { method: name } }, element("td", {}, element("label", {}, radio, title)), ...cells);
  }));
  // the keyboard keeps its place
  [...rows.children].find((row) => row.dataset.method === focused)?.querySelector("input").focus();
}

function numbers({ num_keypoints, matches, geometry }) {
  const share = matches.length ? `${Math.round((100 * geometry.num_inliers) / matches.length)} %` : "–";
  const keypoints = num_keypoints.map((number) => number.toLocaleString("en")).join(" · ");
  return [keypoints, matches.length, geometry.num_inliers, share].map((text) => element("td", { textContent: text.toLocaleString("en") }));
}

const working = () => element("td", { colSpan: 4 }, element("span", { className: "busy" }), "matching");

function compare(title, onclick) {
  return element("td", { colSpan: 4 }, element("button", { type: "button", className: "small", textContent: "Compare", ariaLabel: `Compare ${title}`, onclick }));
}
