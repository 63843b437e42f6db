// Messages of every provider as text, calls, results and media. Nothing of their content becomes HTML.

import { parse } from "./api.js";
import { html, visible, useErrorBoundary, useState, t, number, short, clock, time, Chip, CopyButton } from "./lib.js";

const isLeaf = value => value === null || typeof value !== "object" || value instanceof Number;
const isObject = value => !isLeaf(value) && !Array.isArray(value);
const list = value => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]);
const plain = value => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

// ---- from a provider's body to blocks

export function blocksOf(body) {
  const blocks = [];
  const text = value => { if (value) blocks.push({ kind: "text", text: String(value) }); };
  if (typeof body.reasoning_content === "string") blocks.push({ kind: "thinking", text: body.reasoning_content });
  if (body.type === "reasoning") blocks.push({ kind: "thinking", text: list(body.summary).map(part => part?.text || "").join("\n") || t("(encrypted)") });
  else if (body.type === "function_call") blocks.push({ kind: "call", id: body.call_id, name: body.name, args: body.arguments });
  else if (body.type === "function_call_output") blocks.push({ kind: "result", id: body.call_id, content: body.output });
  else if (body.role === "tool" && "tool_call_id" in body) {
    blocks.push({ kind: "result", id: body.tool_call_id, content: body.content });
  } else if (typeof body.content === "string") text(body.content);
  else for (const block of list(body.content)) blocks.push(blockOf(block));
  for (const call of list(body.tool_calls)) {
    const inner = call?.function || call || {};
    blocks.push({ kind: "call", id: call?.id, name: inner.name, args: inner.arguments ?? inner.args });
  }
  if (isObject(body.function_call)) blocks.push({ kind: "call", name: body.function_call.name, args: body.function_call.arguments });
  for (const result of list(body.tool_results)) {
    blocks.push({ kind: "result", id: result?.tool_call_id, content: result?.result ?? result?.content, error: result?.is_error });
    for (const media of list(result?.media)) blocks.push(blockOf(media));
  }
  if (!blocks.length && body.type && !["message"].includes(body.type)) blocks.push({ kind: "other", name: body.type, value: body });
  return blocks;
}

function blockOf(block) {
  if (typeof block === "string") return { kind: "text", text: block };
  if (!isObject(block)) return { kind: "other", name: typeof block, value: block };
  if (typeof block.text === "string" && !["thinking"].includes(block.type)) return { kind: "text", text: block.text };
  if (block.type === "refusal") return { kind: "text", text: block.refusal };
  if (block.type === "thinking" || block.reasoningContent) {
    return { kind: "thinking", text: block.thinking ?? block.text ?? block.reasoningContent?.reasoningText?.text ?? t("(encrypted)") };
  }
  if (block.type === "tool_use" || block.type === "server_tool_use") return { kind: "call", id: block.id, name: block.name, args: block.input };
  if (block.toolUse) return { kind: "call", id: block.toolUse.toolUseId, name: block.toolUse.name, args: block.toolUse.input };
  if (block.type === "tool_result") return { kind: "result", id: block.tool_use_id, content: block.content, error: block.is_error };
  if (block.toolResult) {
    return { kind: "result", id: block.toolResult.toolUseId, content: block.toolResult.content, error: block.toolResult.status === "error" };
  }
  return imageOf(block) || { kind: "other", name: block.type || Object.keys(block)[0], value: block };
}

const IMAGE = /^image\/(png|jpeg|gif|webp|svg\+xml|bmp|avif)$/;

function imageOf(block) {
  const source = block.source || {};
  const url = typeof block.image_url === "string" ? block.image_url : block.image_url?.url || source.url || block.url;
  const kind = block.media_type || source.media_type || (block.image?.format ? `image/${block.image.format}` : "");
  const data = block.data || source.data || block.image?.source?.bytes;
  const isImage = block.type === "image" || block.type === "image_url" || block.type === "input_image" || block.image;
  if (!isImage) return null;
  if (typeof data === "string" && IMAGE.test(kind)) return { kind: "image", src: `data:${kind};base64,${data}` };
  if (typeof url === "string" && /^data:image\/(png|jpeg|gif|webp|svg\+xml|bmp|avif);base64,/.test(url)) return { kind: "image", src: url };
  return { kind: "image", note: url ? String(url).slice(0, 300) : t("an image that is kept elsewhere") };
}

// ---- long text, JSON, marked values

const CUT = 900, LINES = 14, STEP = 100_000;

export function Marked({ text, values }) {
  if (!values?.length || !text) return visible(text);
  const escaped = values.map(value => value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = text.split(new RegExp(`(${escaped.join("|")})`, "g"));
  return parts.map((part, index) => (index % 2 ? html`<mark key=${index}>${part}</mark>` : visible(part)));
}

export function Long({ text: value, values, mono }) {
  const text = plain(value ?? "");
  const [length, more] = useState(0);
  const lines = text.split("\n", LINES + 1);
  const first = lines.length > LINES ? Math.min(CUT, lines.slice(0, LINES).join("\n").length) : CUT;
  const limit = length || first;
  const isCut = text.length > limit * 1.2 || (!length && lines.length > LINES);
  const shown = isCut ? text.slice(0, limit) : text;
  const rest = text.length - shown.length;
  return html`<div class=${`long ${mono ? "mono" : ""}`} dir="auto"><${Marked} text=${shown} values=${values} />${isCut ? "…" : ""}
    ${isCut && html`<div><button type="button" class="more" onClick=${() => more(limit + STEP)}>
      ${rest > STEP ? t("Show {n} more of {all} characters", { n: number(STEP), all: number(text.length) }) : t("Show all {all} characters", { all: number(text.length) })}</button></div>`}
    ${length > 0 && !isCut && html`<div><button type="button" class="more" onClick=${() => more(0)}>${t("Show less")}</button></div>`}
  </div>`;
}

export function asJson(value) {
  if (typeof value !== "string") return value;
  const start = value.trimStart()[0];
  if ((start !== "{" && start !== "[") || value.length > 300_000) return undefined;
  try { return parse(value); } catch { return undefined; }
}

export function Json({ value, name, depth = 0, open = 2, unfolded = false, values }) {
  const [isOpen, toggle] = useState(null);
  const [limit, more] = useState(20);
  const label = name === undefined ? null : html`<span class="key">${name}</span>: `;
  if (isLeaf(value)) {
    if (typeof value === "string" && value.length > 300) return html`<div class="leaf">${label}<${Long} text=${value} values=${values} mono /></div>`;
    return html`<div class="leaf">${label}<span class=${`value ${value === null ? "null" : value instanceof Number ? "number" : typeof value}`} dir="auto"><${Marked} text=${JSON.stringify(value)} values=${values} /></span></div>`;
  }
  const isList = Array.isArray(value);
  const entries = isList ? value.map((item, index) => [index, item]) : Object.entries(value);
  if (!entries.length) return html`<div class="leaf">${label}<span class="value">${isList ? "[]" : "{}"}</span></div>`;
  const shown = isOpen ?? ((unfolded && !depth) || (depth < open && JSON.stringify(value).length < (depth ? 1_500 : 4_000)));
  return html`<div class="node">
    <button type="button" class="fold" aria-expanded=${shown ? "true" : "false"} onClick=${() => toggle(!shown)}>
      <span aria-hidden="true">${shown ? "▾" : "▸"}</span> ${label}<span class="count">${isList ? `[${entries.length}]` : `{${entries.length}}`}</span>
      ${!shown && html`<span class="peek" dir="auto">${JSON.stringify(value).slice(0, 120)}</span>`}
    </button>
    ${shown && html`<div class="children">
      ${entries.slice(0, limit).map(([key, item]) => html`<${Json} key=${key} name=${key} value=${item} depth=${depth + 1} open=${open} values=${values} />`)}
      ${entries.length > limit && html`<button type="button" class="more" onClick=${() => more(limit + 500)}>${t("Show {n} more", { n: entries.length - limit })}</button>`}
    </div>`}
  </div>`;
}

export function Value({ value, values }) {
  const parsed = asJson(value);
  if (parsed !== undefined && parsed !== null && typeof parsed === "object") return html`<${Json} value=${parsed} values=${values} />`;
  return html`<${Long} text=${plain(value ?? "")} values=${values} mono />`;
}

// ---- a message

function ResultContent({ content, values }) {
  if (!Array.isArray(content)) return html`<${Value} value=${content} values=${values} />`;
  return content.map((part, index) => {
    if (isObject(part) && "json" in part) return html`<${Value} key=${index} value=${part.json} values=${values} />`;
    const block = blockOf(part);
    return block.kind === "text" ? html`<${Value} key=${index} value=${block.text} values=${values} />` : html`<${Block} key=${index} block=${block} values=${values} />`;
  });
}

function Block({ block, refName, values }) {
  if (block.kind === "text") return html`<${Long} text=${block.text} values=${values} />`;
  if (block.kind === "thinking") return html`<details class="thinking"><summary>${t("Thinking")}</summary><${Long} text=${block.text} values=${values} /></details>`;
  if (block.kind === "image") {
    return block.src ? html`<img src=${block.src} alt=${t("An image of the message")} loading="lazy" />` : html`<p class="note">${t("Image, not loaded: {note}", { note: block.note })}</p>`;
  }
  if (block.kind === "call") {
    return html`<div class="call"><div class="callhead"><span class="tool" dir="auto">${block.name || "?"}</span>${refName && html`<code class="ref" title=${t("The log's name of this call")}>${refName}</code>`}<code class="id">${block.id}</code></div>
      <${Value} value=${block.args ?? ""} values=${values} /></div>`;
  }
  if (block.kind === "result") {
    return html`<div class=${`result ${block.error ? "error" : ""}`}><div class="callhead"><span class="label">${block.error ? t("Result, an error") : t("Result")}</span><code class="id">${block.id}</code></div>
      <${ResultContent} content=${block.content} values=${values} /></div>`;
  }
  return html`<div class="other"><span class="label">${block.name}</span><${Json} value=${block.value} open=${0} values=${values} /></div>`;
}

export function roleOf(body, blocks = blocksOf(body)) {
  if (blocks.length && blocks.every(block => block.kind === "result")) return "tool";
  if (body.type === "function_call" || body.type === "reasoning") return "assistant";
  return body.role === "developer" ? "system" : String(body.role || body.type || "?");
}

export const roleName = role => ({ user: t("user"), assistant: t("assistant"), tool: t("tool"), system: t("system") })[role] || role;

export const Body = props => (useErrorBoundary()[0] ? html`<${Json} value=${props.body} />` : html`<${Blocks} ...${props} />`);

function Blocks({ body, position, values }) {
  const blocks = blocksOf(body);
  let call = -1;
  if (!blocks.length) return html`<p class="note">${t("(empty)")}</p>`;
  return blocks.map((block, index) => {
    if (block.kind === "call") call += 1;
    return html`<${Block} key=${index} block=${block} refName=${block.kind === "call" && position ? `${position}.${call}` : ""} values=${values} />`;
  });
}

export function Message({ message, warnings = [], usage, faded, actions, values, selected }) {
  const role = roleOf(message.body);
  const known = ["user", "assistant", "tool", "system"].includes(role) ? role : "unknown";
  const label = t("Message {position}, {role}", { position: message.position, role: roleName(role) });
  return html`<article class=${`message ${known} ${faded ? "faded" : ""} ${message.parent ? "nested" : ""} ${selected ? "selected" : ""}`} aria-label=${label} data-position=${message.position}>
    <header>
      <span class="role">${roleName(role)}</span>
      <span class="position">#${message.position}</span>
      ${message.parent && html`<${Chip} title=${t("An agent that works within this call; its messages are in no loop")}>↳ ${message.parent}${message.agent_id ? ` ${message.agent_id}` : ""}</${Chip}>`}
      ${message.author && html`<${Chip} title=${t("Author")}>${message.author}</${Chip}>`}
      ${message.pin && html`<${Chip} kind="pin">${t("pinned")}</${Chip}>`}
      ${message.redacted && html`<${Chip} kind="bad">${t("redacted")}</${Chip}>`}
      ${message.status === "interrupted" && html`<${Chip} kind="warn">${t("interrupted")}</${Chip}>`}
      ${message.origin && html`<${Chip}>${t("from memory")}</${Chip}>`}
      ${faded && html`<${Chip} kind="warn">${t("rewound")}</${Chip}>`}
      <span class="actions">${actions}<${CopyButton} text=${() => JSON.stringify(message.body, null, 2)} label="JSON" /></span>
      <span class="facts"><span title=${t("Tokens of this message")}>${t("{n} tokens", { n: short(message.tokens) })}</span>
        ${usage && html`<span title=${t("What the provider counted: input, output")}>${short(usage.input_tokens)} → ${short(usage.output_tokens)}</span>`}
        <time datetime=${message.created_at} title=${time(message.created_at)}>${clock(message.created_at)}</time></span>
    </header>
    ${warnings.map((warning, index) => html`<p key=${index} class="warning">⚠ <code>${warning.code}</code> ${t(warning.code)}</p>`)}
    <div class="content"><${Body} body=${message.body} position=${message.position} values=${values} /></div>
  </article>`;
}
