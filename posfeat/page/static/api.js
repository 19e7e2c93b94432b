// The interface's own description, readable.

import { $, ask, element, prepareTheme, tellError } from "/static/common.js";

const typeOf = (schema = {}, all = {}) => {
  if (schema.$ref) { const name = schema.$ref.split("/").pop(); return all[name]?.enum ? all[name].enum.join(" | ") : name; }
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, all)).join(" | ");
  if (schema.format === "binary" || schema.contentMediaType) return "file";
  if (schema.type === "array") return `${typeOf(schema.items, all)}[${schema.minItems && schema.minItems === schema.maxItems ? schema.minItems : ""}]`;
  return schema.type || "any";
};

const bounds = (schema) => [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"]].filter(([key]) => key in schema).map(([key, sign]) => `${sign} ${schema[key]}`).join(", ");

function fields(operation, all) {
  const asked = (operation.parameters || []).map(({ name, required, schema, description }) => ({ name, required, schema, description: description || schema.description }));
  for (const { schema } of Object.values(operation.requestBody?.content || {})) {
    const body = schema.$ref ? all[schema.$ref.split("/").pop()] : schema;
    for (const [name, inner] of Object.entries(body.properties || {})) asked.push({ name, required: (body.required || []).includes(name), schema: inner, description: inner.description });
  }
  return asked;
}

function table(rows) {
  const head = element("tr", {}, ...["Field", "Type", "Default", ""].map((text) => element("th", { scope: "col", textContent: text })));
  const body = rows.map(({ name, required, schema, description, all }) => element("tr", {}, element("td", {}, element("code", { textContent: name })), element("td", { textContent: [typeOf(schema, all), bounds(schema)].filter(Boolean).join(", ") }), element("td", { textContent: required ? "required" : JSON.stringify(schema.default) ?? "" }), element("td", { textContent: description || "" })));
  return element("div", { className: "scroll" }, element("table", { className: "words" }, element("thead", {}, head), element("tbody", {}, ...body)));
}

function answer(operation, all) {
  const [kind, { schema = {} } = {}] = Object.entries(operation.responses["200"]?.content || {})[0] || [""];
  if (kind !== "application/json") return `answers ${kind || "a file"}`;
  const name = typeOf(schema, all), properties = all[name.replace("[]", "")]?.properties || {};
  return `answers ${name} { ${Object.entries(properties).map(([key, inner]) => `${key}: ${typeOf(inner, all)}`).join(", ")} }`;
}

async function start() {
  prepareTheme();
  $("example").textContent = `curl -F image0=@a.jpg -F image1=@b.jpg -F max_keypoints=1024 ${location.origin}/api/match\n\n{"images": [{"width": 640, "height": 480, "keypoints": 1024}, ...],\n "matches": [[x0, y0, x1, y1, score], ...], "verified": [true, ...],\n "geometry": {"kind": "fundamental", "matrix": [[...], [...], [...]], "num_inliers": 512}}`;
  const document_ = await ask("/api/openapi.json"), all = document_.components.schemas;
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const asked = fields(operation, all).map((field) => ({ ...field, all }));
      $("paths").append(element("section", { className: "card" },
        element("h2", {}, element("code", { textContent: `${method.toUpperCase()} ${path}` })), element("p", { textContent: operation.description || operation.summary }),
        asked.length ? table(asked) : "", element("p", { className: "small soft", textContent: answer(operation, all) })));
    }
  }
  document.body.dataset.ready = "yes";
}

start().catch(tellError);
