// The interface's own description, readable.

import { $, ask, element, followAddress, prepareTheme, tellError } from "/static/common.js";

const typeOf = (schema = {}, all = {}) => {
  if (schema.$ref) return typeOf(all[schema.$ref.split("/").pop()], all);
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, all)).join(" | ");
  if (schema.format === "binary" || schema.contentMediaType) return "file";
  if (schema.type === "array") return `${typeOf(schema.items, all)}[${schema.minItems && schema.minItems === schema.maxItems ? schema.minItems : ""}]`;
  if (schema.properties) return `{ ${Object.entries(schema.properties).map(([key, inner]) => `${key}: ${typeOf(inner, all)}`).join(", ")} }`;
  return schema.type || "any";
};

const bounds = (schema) => [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"]].filter(([key]) => key in schema).map(([key, sign]) => `${sign} ${schema[key]}`).join(", ");

function fields(operation, all) {
  const asked = (operation.parameters || []).map(({ name, required = false, schema, description }) => ({ name, required, schema, description: description || schema.description }));
  for (const { schema } of Object.values(operation.requestBody?.content || {})) {
    const body = schema.$ref ? all[schema.$ref.split("/").pop()] : schema;
    for (const [name, inner] of Object.entries(body.properties || {})) asked.push({ name, required: (body.required || []).includes(name), schema: inner, description: inner.description });
  }
  return asked.sort((a, b) => Number(b.required) - Number(a.required));
}

function table(rows) {
  const head = element("tr", {}, ...["Field", "Type", "Default", ""].map((text) => element("th", { scope: "col", textContent: text })));
  const body = rows.map(({ name, required, schema, description, all }) => element("tr", {}, element("td", {}, element("code", { textContent: name })), element("td", { textContent: [typeOf(schema, all), bounds(schema)].filter(Boolean).join(", ") }), element("td", { textContent: required ? "required" : JSON.stringify(schema.default) ?? "" }), element("td", { textContent: description || "" })));
  return element("div", { className: "scroll" }, element("table", { className: "words" }, element("thead", {}, head), element("tbody", {}, ...body)));
}

function answer(operation, all) {
  const content = operation.responses["200"]?.content || {}, schema = content["application/json"]?.schema;
  if (!schema || !Object.keys(schema).length) return `answers ${Object.keys(content).join(", ") || "a file"}`;
  const named = all[(schema.$ref || schema.items?.$ref || "").split("/").pop()];
  return `answers ${typeOf(schema, all)}. ${named?.description || ""}`;
}

async function start() {
  prepareTheme();
  followAddress();
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
