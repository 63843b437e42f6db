// The API reference: every call of the OpenAPI document with its fields, an example, and a form that sends it.

import { about, get, newKey, send } from "./api.js";
import { html, useMemo, useRef, useState, t, useAnswer, useKeys, Failure, Waiting, CopyButton, Chip } from "./lib.js";
import { Json, Value, asJson } from "./messages.js";

const READS = new Set(["build_context", "build_window", "lint_messages", "get_documents"]);

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) { const name = schema.$ref.split("/").pop(); return html`<a href=${`#schema-${name}`}>${name}</a>`; }
  for (const choice of ["anyOf", "oneOf", "allOf"]) {
    if (schema[choice]) return schema[choice].map((option, index) => html`${index > 0 && ` ${t("or")} `}${typeOf(option)}`);
  }
  const values = schema.enum || ("const" in schema ? [schema.const] : null);
  if (values) return values.map((value, index) => html`${index > 0 && " | "}<code>${JSON.stringify(value)}</code>`);
  if (schema.type === "array") return html`${t("list of")} ${typeOf(schema.items)}`;
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return html`${t("object of")} ${typeOf(schema.additionalProperties)}`;
  return Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type || "any JSON";
}

const BOUNDS = [["minimum", "≥ {v}"], ["maximum", "≤ {v}"], ["exclusiveMinimum", "> {v}"], ["minLength", "≥ {v} characters"], ["maxLength", "≤ {v} characters"], ["minItems", "≥ {v} items"], ["maxItems", "≤ {v} items"], ["pattern", "{v}"], ["default", "default {v}"]];
function boundsOf(schema) {
  const own = BOUNDS.filter(([name]) => schema?.[name] !== undefined && schema[name] !== null).map(([name, text]) => text.replace("{v}", name === "pattern" ? schema[name] : JSON.stringify(schema[name])));
  return [...new Set([...own, ...[...(schema?.anyOf || []), ...(schema?.oneOf || [])].flatMap(boundsOf)])];
}

// A docstring: code between backticks, paragraphs at empty lines.
function Words({ text }) {
  return (text || "").split("\n\n").map((part, index) => html`<p key=${index}>${part.replaceAll("\n", " ").split(/`{1,2}([^`]+)`{1,2}/).map((piece, at) => (at % 2 ? html`<code>${piece}</code>` : piece))}</p>`);
}

function Fields({ rows }) {
  return html`<table class="fields"><thead class="unseen"><tr><th scope="col">${t("Name")}</th><th scope="col">${t("Type")}</th><th scope="col">${t("Description")}</th></tr></thead><tbody>${rows.map(row => html`<tr key=${row.name}><th scope="row"><code>${row.name}</code>${row.required && html`<em title=${t("must be given")}>*</em>`}</th><td>${row.place && `${row.place}, `}${typeOf(row.schema)}</td>
    <td><${Words} text=${row.description || row.schema?.description} />${boundsOf(row.schema).length > 0 && html`<span class="note">${boundsOf(row.schema).join(", ")}</span>`}</td></tr>`)}</tbody></table>`;
}

function Try({ method, path, operation, bodyType }) {
  const names = (operation.parameters || []).filter(parameter => parameter.in !== "header");
  const [values, set] = useState({});
  const [body, write] = useState(bodyType ? "{}" : "");
  const [answer, show] = useState(null);
  const writes = method !== "get" && !READS.has(operation.operationId) || operation.operationId === "export_everything";
  if (writes && about.read_only) return html`<p class="note">${t("This server is read-only: it refuses this call.")}</p>`;
  const submit = async event => {
    event.preventDefault();
    if (method === "delete" && !confirm(t("Send {method} {path}? It removes what it names.", { method: method.toUpperCase(), path }))) return;
    const query = {};
    let target = path;
    for (const parameter of names) {
      const value = values[parameter.name] || "";
      if (parameter.in === "path") target = target.replace(`{${parameter.name}}`, encodeURIComponent(value.replaceAll("/", "%2F")));
      else query[parameter.name] = value;
    }
    const began = performance.now();
    try {
      const response = await send(method.toUpperCase(), target, { query, body: bodyType && body.trim() ? body : undefined, type: bodyType, key: writes ? newKey() : undefined });
      const text = await response.text();
      show({ status: response.status, text, milliseconds: Math.round(performance.now() - began) });
    } catch (error) { show({ status: 0, text: String(error), milliseconds: 0 }); }
  };
  return html`<form class="try" onSubmit=${submit}>
    ${names.map(parameter => html`<label key=${parameter.name}>${parameter.name}<input value=${values[parameter.name] || ""} required=${parameter.required} placeholder=${parameter.schema?.default ?? ""} onInput=${event => set({ ...values, [parameter.name]: event.target.value })} /></label>`)}
    ${bodyType && html`<label>${t("Body")}<textarea rows="5" spellcheck="false" value=${body} onInput=${event => write(event.target.value)}></textarea></label>`}
    <button type="submit" class="primary">${t("Send")}</button>
    ${answer && html`<div class="answer" role="status"><p><${Chip} kind=${answer.status >= 200 && answer.status < 300 ? "good" : "bad"}>${answer.status}</${Chip}> <span class="note">${answer.milliseconds} ms</span> <${CopyButton} text=${answer.text} /></p>
      ${asJson(answer.text) !== undefined ? html`<${Json} value=${asJson(answer.text)} open=${3} />` : html`<${Value} value=${answer.text.slice(0, 100_000)} />`}</div>`}
  </form>`;
}

function Operation({ method, path, operation }) {
  const [isTried, tryIt] = useState(false);
  const bodies = Object.entries(operation.requestBody?.content || {});
  const name = operation.operationId;
  return html`<section class="card operation" id=${name}>
    <h3><b class=${`method ${method}`}>${method.toUpperCase()}</b> <code>${path}</code></h3><p>${operation.summary}</p>
    ${(operation.parameters || []).length > 0 && html`<h4>${t("Parameters")}</h4><${Fields} rows=${operation.parameters.map(parameter => ({ ...parameter, place: parameter.in }))} />`}
    ${bodies.length > 0 && html`<h4>${t("Body")}</h4>${bodies.map(([kind, content]) => html`<p key=${kind}>${typeOf(content.schema)} <span class="note">${kind}</span></p>`)}`}
    <h4>${t("Answers")}</h4><table class="fields answers"><tbody>${Object.entries(operation.responses).map(([status, answer]) => html`<tr key=${status}><th scope="row" class=${Number(status) < 400 ? "good" : "bad"}>${status}</th><td>${Object.values(answer.content || {}).map((content, index) => html`<span key=${index}>${typeOf(content.schema)} </span>`)}</td><td><${Words} text=${answer.description} /></td></tr>`)}</tbody></table>
    ${(operation["x-codeSamples"] || []).map(sample => html`<h4>${sample.lang} <${CopyButton} text=${sample.source} /></h4><pre><code>${sample.source}</code></pre>`)}
    <p><button type="button" aria-expanded=${isTried ? "true" : "false"} onClick=${() => tryIt(!isTried)}>${t("Try it")}</button></p>
    ${isTried && html`<${Try} method=${method} path=${path} operation=${operation} bodyType=${bodies[0]?.[0]} />`}
  </section>`;
}

export function Reference() {
  const [text, type] = useState("");
  const field = useRef();
  const { value: api, error } = useAnswer(() => get("/docs/openapi.json"), []);
  useKeys({ "/": () => field.current.focus() });
  const calls = useMemo(() => {
    const all = Object.entries(api?.paths || {}).flatMap(([path, item]) => Object.entries(item).map(([method, operation]) => ({ path, method, operation })));
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return all.filter(({ path, method, operation }) => words.every(word => `${method} ${path} ${operation.summary} ${operation.operationId}`.toLowerCase().includes(word)));
  }, [api, text]);
  document.title = "API · Turnlog";
  if (!api) return html`<main id="main" tabindex="-1"><${Failure} error=${error} /><${Waiting} when=${!error} /></main>`;
  const schemas = Object.entries(api.components.schemas).sort();
  return html`<div class="reference">
    <nav class="outline" aria-label=${t("Calls")}><form role="search" onSubmit=${event => event.preventDefault()}><input ref=${field} type="search" value=${text} placeholder=${t("Find a call")} aria-label=${t("Find a call")} onInput=${event => type(event.target.value)} /></form>
      <ol>${calls.map(({ path, method, operation }) => html`<li key=${operation.operationId}><a href=${`#${operation.operationId}`}><b class=${`method ${method}`}>${method.toUpperCase()}</b> <span>${path.replace("/v1", "")}</span></a></li>`)}</ol>
      <p><a href="#schemas">${t("Schemas")}</a> · <a href="/v1/openapi.json">openapi.json</a></p></nav>
    <main id="main" tabindex="-1"><h1>${api.info.title} <span class="note">${api.info.version}</span></h1><p>${api.info.summary}</p>
      <p class="note">${t("A * marks what must be given. A writing call takes an Idempotency-Key; “Try it” sends a new one. Errors are problem documents: switch on their code.")}</p>
      ${calls.map(call => html`<${Operation} key=${call.operation.operationId} ...${call} />`)}
      <h2 id="schemas">${t("Schemas")}</h2>
      ${schemas.map(([name, schema]) => html`<section class="card" id=${`schema-${name}`} key=${name}><h3>${name}</h3><${Words} text=${schema.description} />
        ${schema.properties ? html`<${Fields} rows=${Object.entries(schema.properties).map(([field, value]) => ({ name: field, schema: value, description: value.description, required: (schema.required || []).includes(field) }))} />` : html`<p>${typeOf(schema)}</p>`}</section>`)}
    </main></div>`;
}
