// Windows: what the model was sent at each call, part by part; why a part is not there; and the same call by other rules.

import { ask, get, sessionPath } from "./api.js";
import { html, useEffect, useMemo, useRef, useState, t, to, go, number, short, money, useAnswer, useKeys, useRedraw, Failure, Waiting, Empty, Chip, CopyButton } from "./lib.js";
import { Json, Long, Message, asJson, blocksOf } from "./messages.js";

const FORMATS = ["openai_chat", "openai_responses", "anthropic", "bedrock_converse", "turnlog"];
const PRESETS = ["default", "run_loops", "recall", "classic", "turns", "tokens", "full"];
const MOST_EVENTS = 20_000, MEASURED = 80, SEARCHED = 3_000, EDGE = 100;

// ---- the session's model calls, from its history

// Read once from the newest entry to the oldest; of a log that grows only what came since.
class Calls {
  constructor(id, onPage) { Object.assign(this, { id, onPage, entries: [], isAll: false, isReading: false }); }
  async read(head) {
    if (this.isReading) return;
    this.isReading = true;
    try {
      if (!this.entries.length) await this.back(undefined, 0, (page, entries) => entries.unshift(...page));
      else while (this.newest < head) {
        const news = [];
        await this.back(undefined, this.newest, page => news.unshift(...page));
        if (!news.length) break;
        this.entries.push(...news);
      }
      this.onPage(callsOf(this.entries), this.isAll);
    } finally { this.isReading = false; }
  }
  get newest() { return Number(this.entries.at(-1).history_id); }
  async back(before, known, take) {
    do {
      const page = await get(sessionPath(this.id, "/history"), { limit: known ? 100 : 1_000, before });
      const entries = page.entries.filter(entry => Number(entry.history_id) > known).reverse();
      take(entries, this.entries);
      before = entries.length < page.entries.length ? undefined : page.next ?? undefined;
      if (!known) {
        this.isAll = before === undefined;
        this.onPage(callsOf(this.entries), this.isAll);
      }
    } while (before !== undefined && this.entries.length < MOST_EVENTS);
  }
}

// Messages of the assistant in a row are one answer: some formats write calls and reasoning as items of their own.
function callsOf(entries) {
  const calls = [];
  let previous = null;
  for (const entry of entries) {
    const position = Number(entry.history_id), role = entry.metadata.role;
    if (role === undefined) continue;
    const isAnswer = ["assistant", "reasoning", "_call", "model"].includes(role) || entry.action === "tool_call";
    // An agent that works within a call of another has windows of its own.
    const parent = entry.metadata.parent ? { ref: entry.metadata.parent, agent_id: entry.agent_id } : null;
    const continues = previous?.isAnswer && parent?.ref === previous.parent?.ref && parent?.agent_id === previous.parent?.agent_id;
    if (isAnswer && !continues && position > 1) calls.push({ position, at: position - 1, last: position, parent, sent: entry.metadata.window });
    else if (isAnswer && calls.length) calls[calls.length - 1].last = position;
    previous = { isAnswer, parent };
  }
  return calls;
}

const isSameAgent = (call, other) => JSON.stringify(call.parent) === JSON.stringify(other.parent);

const bodyOf = (call, options) => {
  // The newest window of all needs no moment, and a server has most of it at hand.
  const body = { ...(call.position ? { at: call.at } : {}), format: options.format, ...(call.parent ? { parent: call.parent } : {}) };
  const policy = options.policy?.trim();
  if (policy) body.policy = policy.startsWith("{") ? JSON.parse(policy) : policy;
  if (Number(options.budget) > 0) body.budget = Number(options.budget);
  return body;
};

// Windows by call and options. What was asked for once is not asked for again while its position is the past.
class WindowCache {
  constructor(id) { this.id = id; this.known = new Map(); }
  key(call, options) { return JSON.stringify([call.at, call.parent, options.policy || "", options.budget || "", options.format]); }
  peek(call, options) { return this.known.get(this.key(call, options))?.value; }
  read(call, options) {
    const key = this.key(call, options);
    if (!this.known.has(key)) {
      const entry = {};
      entry.promise = Promise.resolve().then(() => ask(sessionPath(this.id, "/context"), bodyOf(call, options))).then(value => (entry.value = value));
      entry.promise.catch(() => this.known.delete(key));
      this.known.set(key, entry);
    }
    return this.known.get(key).promise;
  }
}

// ---- reasons in words

const REASONS = {
  past_loop: "a past loop: told in a digest", max_loops: "more loops than the policy shows", max_age: "older than the policy shows",
  high_mark: "digest: the window is beyond its mark", digests_full: "no room left for digests", turns: "more turns than the policy shows",
  messages: "more messages than the policy shows", tokens: "more tokens than the policy shows", no_reply: "a loop without a final reply",
  max_tokens: "the summary is cut", budget: "made to fit the budget", stub_tool_results: "the result is cut by the policy",
  stub: "the result is cut to fit", fold: "the step is told in a note to fit", summary: "a summary stands for it",
  compaction: "the provider summarised it", pinned: "pinned, so it is in", settled: "a call was answered with a neutral text",
  calls_as_text: "calls are sent as text", late_result: "the result came in a later loop", open_call: "waits for a result",
  memory: "the session began with it", reasoning_alone: "reasoning that nothing follows", orphan_result: "a result that belongs to no call",
  superseded_result: "a newer result took its place", interrupted: "the stream was interrupted", unknown_role: "a role that no provider has",
  by_meaning: "ranked by the embedding model", by_words: "the embedding model gave no answer", skipped: "the log could not be searched", not_included: "the current loop is not included", not_read: "older than what a window reads",
  left_out: "says that something is left out", nothing_said: "nothing has been said", frame: "room for what the format needs",
};
const BREAKS = {
  first: "there was no window before", tools: "the tools changed", system: "the system text changed", policy: "the policy changed", budget: "the budget changed or is full",
  summary: "there is a new summary", not_read: "older messages are not read any more", redaction: "a message was redacted", late_result: "a late result replaced what was sent",
  unprompted: "an answer that nothing prompted", crossing: "more loops became digests", large_result: "large results shrank", media: "media left the window",
  past_loop: "a loop ended and is sent otherwise now", recall: "what was recalled gave way", stub: "an older result was cut", compaction: "the provider's own summary",
};
export const REASON_TEXTS = [...Object.values(REASONS), ...Object.values(BREAKS)];
const reason = code => (code ? t(REASONS[code] || code) : "");

const LEVELS = { whole: "whole", digest: "digest", stub: "cut", out: "left out" };
const partKind = part => (part.kind === "summary" || part.kind === "recalled" ? part.kind : part.kind === "system" || part.kind === "tools" || part.kind === "omission_notice" ? "frame" : part.level);

function labelOf(part) {
  if (part.kind === "loop") return t("Loop {n}", { n: part.loop });
  if (part.kind === "message") return t("Message #{n}", { n: part.first === part.last ? part.first : `${part.first}–${part.last}` });
  if (part.kind === "older") return t("Older, up to loop {n}", { n: part.loop ?? "?" });
  if (part.kind === "block") return t("Block of #{n}", { n: part.first });
  return t({ system: "System text", tools: "Tools", summary: "Summary", recalled: "Recalled", omission_notice: "Notice" }[part.kind] || part.kind);
}

export function partAt(parts, position) {
  return parts.find(part => part.kind === "message" && part.first === position && part.last === position)
    || parts.find(part => part.kind === "message" && part.first <= position && position <= part.last)
    || parts.find(part => part.kind === "loop" && part.first <= position && position <= part.last)
    || parts.find(part => part.first !== null && part.kind !== "recalled" && part.first <= position && position <= part.last);
}

// ---- what differs between two windows

function keyed(parts, whole) {
  const rows = new Map();
  for (const part of parts) {
    if (part.kind === "message" && part.loop !== null && !whole.has(part.loop)) continue;
    const name = part.kind === "loop" ? part.loop : part.kind === "message" ? part.first : part.reason;
    let key = `${part.kind} ${name}`;
    while (rows.has(key)) key += "+";
    rows.set(key, part);
  }
  return rows;
}

export function changesBetween(before, after) {
  const wholeOf = parts => new Set(parts.filter(part => part.kind === "loop" && part.level === "whole").map(part => part.loop));
  const first = wholeOf(before), whole = new Set([...wholeOf(after)].filter(loop => first.has(loop)));
  const old = keyed(before, whole), now = keyed(after, whole), changes = [];
  for (const key of new Set([...old.keys(), ...now.keys()])) {
    const was = old.get(key), is = now.get(key);
    if ((was?.level ?? "out") === "out" && (is?.level ?? "out") === "out" && was && is) continue;
    if (was && is && was.level === is.level && was.tokens === is.tokens) continue;
    changes.push({ was, is, part: is || was, tokens: (is?.tokens || 0) - (was?.tokens || 0) });
  }
  return changes;
}

// ---- pictures

function Growth({ calls, chosen, cache, options, onChoose }) {
  const shown = calls.slice(-600);
  const windows = shown.map(call => cache.peek(call, options));
  const budget = windows.find(Boolean)?.manifest.budget.tokens || 0;
  const most = Math.max(1, ...windows.map(window => window?.tokens || 0));
  const top = budget && budget < most * 2.5 ? Math.max(budget, most) : most * 1.15;
  const width = 100 / shown.length;
  return html`<svg class="growth" viewBox="0 0 100 40" preserveAspectRatio="none" role="img"
    aria-label=${t("Tokens of each window, from the first call to the next one")}>
    ${budget > 0 && budget <= top && html`<line class="budgetline" x1="0" x2="100" y1=${40 - (budget / top) * 40} y2=${40 - (budget / top) * 40} />`}
    ${shown.map((call, index) => {
      const window = windows[index], height = window ? (window.tokens / top) * 40 : 2;
      const stable = window ? (Math.min(window.prefix.stable_tokens, window.tokens) / top) * 40 : 0;
      const x = index * width, wide = Math.max(width * 0.82, 0.12);
      return html`<g key=${call.at} class=${`${call === chosen ? "chosen" : ""} ${window ? "" : "unknown"} ${call.parent ? "nested" : ""}`} onClick=${() => onChoose(call)}>
        <rect class="touch" x=${x} y="0" width=${width} height="40" /><rect class="new" x=${x} y=${40 - height} width=${wide} height=${height} />
        <rect class="stable" x=${x} y=${40 - stable} width=${wide} height=${stable} />
        ${window?.prefix.broke_at !== null && window && call.number > 1 && html`<rect class="break" x=${x} y="0" width=${wide} height="1.6" />`}</g>`;
    })}
  </svg>`;
}

function Budget({ window }) {
  const { totals, parts, budget } = window.manifest;
  const stubs = parts.filter(part => part.kind === "message" && part.level === "stub").reduce((sum, part) => sum + part.tokens, 0);
  const segments = [
    ["frame", t("system and tools"), totals.system + totals.tools], ["summary", t("summary"), totals.summary], ["recalled", t("recalled"), totals.recalled || 0],
    ["digest", t("digests"), totals.digest], ["stub", t("cut results"), stubs], ["whole", t("whole"), totals.whole - stubs], ["notice", t("notices"), totals.omission_notice],
  ].filter(([, , tokens]) => tokens > 0);
  const all = Math.max(budget.tokens, window.tokens);
  const out = parts.filter(part => part.level === "out" && (part.kind === "loop" || part.kind === "older" || part.loop === null || !parts.some(loop => loop.kind === "loop" && loop.loop === part.loop && loop.level === "out")));
  return html`<div class="budget">
    <div class="meter" role="img" aria-label=${t("{n} of {budget} tokens", { n: number(window.tokens), budget: number(budget.tokens) })}>
      ${segments.map(([kind, label, tokens]) => html`<span key=${kind} class=${`seg ${kind}`} style=${{ width: `${(tokens / all) * 100}%` }} title=${`${label}: ${number(tokens)}`}></span>`)}
    </div>
    <p class="legend"><strong>${t("{n} of {budget} tokens", { n: number(window.tokens), budget: number(budget.tokens) })}</strong>
      <span class="note">${t(`budget:${budget.source}`)}</span>
      ${money(window.tokens, window.prefix.stable_tokens) && html`<span class="note">≈ ${money(window.tokens, window.prefix.stable_tokens)}</span>`}
      ${segments.map(([kind, label, tokens]) => html`<span key=${kind}><i class=${`seg ${kind}`} aria-hidden="true"></i>${label} ${short(tokens)}</span>`)}
      ${out.length > 0 && html`<span><i class="seg out" aria-hidden="true"></i>${t("{n} left out", { n: out.length })}</span>`}</p>
  </div>`;
}

function Cache({ window, isFirst }) {
  const { stable_tokens: stable, broke_at: broke, reason: why } = window.prefix;
  const share = Math.round((Math.min(stable, window.tokens) / Math.max(1, window.tokens)) * 100);
  return html`<p class="cache"><${Chip} kind=${broke === null || isFirst ? "good" : "warn"}>${t("prompt cache {n} %", { n: share })}</${Chip}>
    ${broke === null || isFirst ? t("begins as the call before did: {n} tokens", { n: number(stable) })
      : html`${t("broke at {place}", { place: typeof broke === "number" ? `#${broke}` : t(`broke:${broke}`) })}: ${t(BREAKS[why] || why || "")}`}</p>`;
}

// ---- parts

function Part({ part, most, depth, chosen, onChoose, children, isOpen, onToggle, missing }) {
  const kind = partKind(part);
  const where = part.first === null ? "" : part.first === part.last ? `#${part.first}` : `#${part.first}–${part.last}`;
  return html`<li class=${`part ${kind} depth${depth} ${chosen === part ? "chosen" : ""}`}>
    <div class="partrow">
      ${children?.length ? html`<button type="button" class="fold" aria-expanded=${isOpen ? "true" : "false"} aria-label=${t("Messages of {part}", { part: labelOf(part) })} onClick=${onToggle}>${isOpen ? "▾" : "▸"}</button>` : html`<span class="fold"></span>`}
      <button type="button" class="partname" aria-pressed=${chosen === part ? "true" : "false"} onClick=${() => onChoose(part)}>
        <span class="name">${part.kind === "message" ? t("Message") : labelOf(part)}</span><span class="position">${where}</span>
        <${Chip} kind=${`level ${part.level}`}>${t(LEVELS[part.level])}</${Chip}>
        <span class="why">${reason(part.reason)}</span>
        <span class="bar" aria-hidden="true"><i class=${`seg ${kind}`} style=${{ width: `${Math.max(part.tokens ? 1 : 0, (part.tokens / most) * 100)}%` }}></i></span>
        <span class="tokens">${part.level === "out" ? "–" : number(part.tokens)}</span>
      </button>
    </div>
    ${isOpen && children?.length > 0 && html`<ol>${children.map((child, index) => html`<${Part} key=${index} part=${child} most=${most} depth=${depth + 1} chosen=${chosen} onChoose=${onChoose} />`)}</ol>`}
  </li>`;
}

function Parts({ window, chosen, onChoose }) {
  const [opened, open] = useState({});
  const [isWhole, showWhole] = useState(false);
  const rows = useMemo(() => {
    const { parts } = window.manifest, loops = new Map(), rows = [];
    for (const part of parts) {
      if (part.kind === "loop") { const row = { part, children: [] }; loops.set(part.loop, row); rows.push(row); }
      else if ((part.kind === "message" || part.kind === "block") && loops.has(part.loop)) loops.get(part.loop).children.push(part);
      else rows.push({ part, children: [] });
    }
    return rows;
  }, [window]);
  const most = Math.max(1, ...rows.map(row => row.part.tokens));
  return html`<ol class="parts" aria-label=${t("Parts of the window, in the order in which they are sent")}>
    ${rows.map(({ part, children }, index) => {
      // Of thousands of parts the first and the last are shown, and the one that was chosen.
      const isBetween = !isWhole && rows.length > 3 * EDGE && index >= EDGE && index < rows.length - EDGE;
      if (isBetween && index === EDGE) return html`<li key=${index}><button type="button" class="more" onClick=${() => showWhole(true)}>${t("Show the {n} parts between", { n: number(rows.length - 2 * EDGE) })}</button></li>`;
      if (isBetween && part !== chosen && !children.includes(chosen)) return null;
      const isOpen = opened[part.loop] ?? (children.some(child => child === chosen) || (children.length > 0 && rows.length < 6 && children.length < 8));
      return html`<${Part} key=${index} part=${part} children=${children} most=${most} depth=${0} chosen=${chosen} onChoose=${onChoose} isOpen=${isOpen}
        onToggle=${() => open({ ...opened, [part.loop]: !isOpen })} />`;
    })}</ol>`;
}

// Every text of the window, in order.
function textsOf(window) {
  const texts = [];
  const walk = value => {
    if (typeof value === "string") texts.push(value);
    else if (value && typeof value === "object") for (const [name, item] of Object.entries(value)) if (!["role", "type", "id", "tool_call_id", "call_id"].includes(name)) walk(item);
  };
  walk(window.system);
  walk(window.messages);
  return texts;
}

function sentText(window, part) {
  const texts = textsOf(window);
  if (part.kind === "summary") return texts.find(text => /<turnlog-data kind='summary/.test(text));
  if (part.kind === "system") return typeof window.system === "string" ? window.system : texts[0];
  if (part.kind === "recalled") return texts.find(text => /<turnlog-data kind='[^']*recall/.test(text) || /kind='found/.test(text));
  if (part.level !== "digest") return null;
  return texts.filter(text => new RegExp(`kind='notes on [^']*\\b${part.loop}\\b`).test(text)).join("\n\n") || null;
}

function Detail({ id, window, part, values, find }) {
  const isStored = part.first !== null && part.kind !== "tools" && part.kind !== "system";
  const { value: messages, error, busy } = useAnswer(async () => {
    if (!isStored) return [];
    const page = await get(sessionPath(id, "/messages"), { after: part.first - 1, before: part.last + 1, limit: 100 });
    return page.messages;
  }, [part.first, part.last, isStored]);
  const sent = part.kind === "tools" ? null : sentText(window, part);
  const lit = find ? [find] : values;
  const place = useRef();
  useEffect(() => { place.current.scrollIntoView({ block: "nearest" }); }, [part]);
  const later = sent ? values.filter(value => sent.includes(value)) : [];
  return html`<section ref=${place} class="detail" aria-label=${labelOf(part)}>
    <h3>${labelOf(part)} <${Chip} kind=${`level ${part.level}`}>${t(LEVELS[part.level])}</${Chip}> <span class="note">${reason(part.reason)}</span></h3>
    ${part.kind === "tools" && html`<${Json} value=${window.tools} open=${2} />`}
    ${sent && html`<h4>${t("As the model was sent it")}</h4><div class="sent"><${Long} text=${sent} values=${find ? [find] : later} mono /></div>
      ${later.length > 0 && html`<p class="note">${t("Marked: values that later calls use")} (${later.length})</p>`}`}
    ${isStored && html`<h4>${t("The original, in the log")} ${part.refs.length > 0 && html`<span class="note">${part.refs.map(ref => html`<a key=${ref} href=${to(id, "find", { ref })}>${ref}</a> `)}</span>`}</h4>`}
    <${Failure} error=${error} /><${Waiting} when=${busy && !messages} />
    ${(messages || []).map(message => html`<${Message} key=${message.position} message=${message} values=${lit} />`)}
    ${isStored && part.last - part.first > 100 && html`<p class="note"><a href=${to(id, "messages", { at: part.first })}>${t("All of it is in the messages")}</a></p>`}
  </section>`;
}

// ---- values: those of later calls, and the search for one

const IS_VALUE = /^(?=.*[\d_@/-])[^\s]{3,80}$/;
function leaves(value, into) {
  if (typeof value === "string") { if (IS_VALUE.test(value)) into.add(value); else for (const word of value.split(/[\s,;"'()]+/)) if (/\d/.test(word) && IS_VALUE.test(word)) into.add(word.replace(/[.:]$/, "")); }
  else if (typeof value === "number" || value instanceof Number) { if (Math.abs(value) > 99) into.add(String(value)); }
  else if (value && typeof value === "object") for (const item of Object.values(value)) leaves(item, into);
}

function useLaterValues(id, from) {
  const { value } = useAnswer(async () => {
    const calls = [];
    for (let before, pages = 0; pages < 5; pages += 1) {
      const page = await get(sessionPath(id, "/loops"), { limit: 100, before });
      calls.push(...page.loops.flatMap(loop => loop.tool_calls));
      before = page.next ?? undefined;
      if (!before) break;
    }
    return calls;
  }, [id]);
  return useMemo(() => {
    const values = new Set();
    for (const call of value || []) if (Number(call.ref.split(".")[0]) >= from) leaves(call.arguments, values);
    return [...values].sort((one, other) => other.length - one.length).slice(0, 200);
  }, [value, from]);
}

function FindValue({ id, window, call, wanted, onFind, onPart, field }) {
  const [text, type] = useState(wanted);
  useEffect(() => type(wanted), [wanted]);
  const { value, error, busy } = useAnswer(async () => {
    if (!wanted) return null;
    const low = wanted.toLowerCase(), hits = [];
    let read = 0;
    for (let before = call.at + 1; before && read < SEARCHED;) {
      const page = await get(sessionPath(id, "/messages"), { before, order: "desc", limit: 100, at: call.at });
      read += page.messages.length;
      hits.push(...page.messages.filter(message => JSON.stringify(message.body).toLowerCase().includes(low)));
      before = page.next;
    }
    return { hits: hits.reverse(), isAll: read < SEARCHED };
  }, [wanted, call.at]);
  const inWindow = useMemo(() => (wanted ? textsOf(window).filter(text => text.toLowerCase().includes(wanted.toLowerCase())).length : 0), [window, wanted]);
  const submit = event => { event.preventDefault(); onFind(text.trim()); };
  return html`<section class="findvalue" aria-label=${t("Find a value")}>
    <form class="bar" onSubmit=${submit}><input ref=${field} type="search" value=${text} placeholder=${t("A value, such as an order number: was it in this window?")} aria-label=${t("Value to find")}
      onInput=${event => { type(event.target.value); if (!event.target.value) onFind(""); }} /><button type="submit">${t("Find")}</button></form>
    <${Failure} error=${error} />
    ${wanted && html`<div role="status" class="verdict">
      <p>${inWindow ? html`<${Chip} kind="good">${t("in the window")}</${Chip}> ${t("The model could read “{value}” in {n} places.", { value: wanted, n: inWindow })}`
        : html`<${Chip} kind="bad">${t("not in the window")}</${Chip}> ${t("The model could not read “{value}” at this call.", { value: wanted })}`}</p>
      ${busy && html`<${Waiting} />`}
      ${value && !value.hits.length && html`<p class="note">${t("Nothing said up to here has it.")}</p>`}
      ${value && value.hits.length > 0 && html`<p class="note">${t("Where it was said up to here, and what this window has of it:")}</p>
        <ul class="hits">${value.hits.slice(0, 50).map(message => {
          const part = partAt(window.manifest.parts, message.position);
          return html`<li key=${message.position}><button type="button" onClick=${() => onPart(part, message.position)}>
            <span class="position">#${message.position}</span> <span>${blocksOf(message.body).some(block => block.kind === "result") ? t("tool result") : t(message.body.role || message.body.type || "")}</span>
            ${part ? html`<${Chip} kind=${`level ${part.level}`}>${t(LEVELS[part.level])}</${Chip}> <span class="why">${reason(part.reason)}</span>` : html`<${Chip} kind="level out">${t("left out")}</${Chip}>`}</button></li>`;
        })}</ul>`}
      ${value && !value.isAll && html`<p class="note">${t("Only the newest {n} messages were looked through.", { n: number(SEARCHED) })}</p>`}
    </div>`}
  </section>`;
}

// What the model answered to this window, and which values of its calls the window lacked.
function Answered({ id, window, call, onFind }) {
  const { value } = useAnswer(async () => (call.position ? (await get(sessionPath(id, "/messages"), { after: call.position - 1, before: call.last + 1 })).messages : []), [call.position, call.last]);
  const values = useMemo(() => {
    const into = new Set();
    for (const message of value || []) for (const block of blocksOf(message.body)) if (block.kind === "call") leaves(asJson(block.args) ?? block.args, into);
    return [...into];
  }, [value]);
  if (!value?.length) return null;
  const told = textsOf(window).join("\n");
  const lacking = values.filter(item => !told.includes(item));
  return html`<section class="answered"><h3>${t("What the model answered")}</h3>
    ${lacking.length > 0 && html`<p class="note">${t("Values of its calls that the window did not have:")} ${lacking.slice(0, 12).map(item => html`<button type="button" key=${item} class="quiet value" onClick=${() => onFind(item)}>${item}</button> `)}</p>`}
    ${value.map(message => html`<${Message} key=${message.position} message=${message} values=${values.filter(item => told.includes(item))} />`)}</section>`;
}

// ---- requests

export function requestOf(window, format, model) {
  const { messages, system, tools } = window;
  const some = tools.length ? { tools } : {};
  if (format === "openai_responses") return { model, ...(system ? { instructions: system } : {}), input: messages, ...some };
  if (format === "bedrock_converse") return { modelId: model, ...(system ? { system: typeof system === "string" ? [{ text: system }] : system } : {}), messages, ...(tools.length ? { toolConfig: { tools } } : {}) };
  return { model, ...(system ? { system } : {}), messages, ...some };
}

function Request({ window, format, model }) {
  const request = requestOf(window, format, model || "…");
  return html`<section class="request"><p><${CopyButton} text=${() => JSON.stringify(request, null, 2)} label=${t("Copy the request as JSON")} /></p><${Json} value=${request} open=${3} unfolded /></section>`;
}

// A field that keeps what is typed until Enter or until it is left, however often the view is drawn meanwhile.
function Field({ value, onEnter, ...attributes }) {
  const [text, type] = useState(value);
  useEffect(() => type(value), [value]);
  const enter = () => text !== value && onEnter(text);
  return html`<input ...${attributes} value=${text} onInput=${event => type(event.target.value)} onBlur=${enter} onKeyDown=${event => event.key === "Enter" && enter()} />`;
}

function Options({ options, onChange, session, name }) {
  const list = `policies-${name}`;
  return html`<fieldset class="options"><legend class="unseen">${name}</legend>
    <label>${t("Policy")}<${Field} list=${list} value=${options.policy || ""} placeholder=${typeof session.policy === "string" ? session.policy : t("own")} onEnter=${policy => onChange({ ...options, policy })} />
      <datalist id=${list}>${PRESETS.map(preset => html`<option value=${preset} />`)}</datalist></label>
    <label>${t("Budget")}<${Field} type="number" min="1" value=${options.budget || ""} placeholder=${t("of the session")} onEnter=${budget => onChange({ ...options, budget })} /></label>
    <label>${t("Format")}<select onChange=${event => onChange({ ...options, format: event.target.value })}>${FORMATS.map(format => html`<option value=${format} selected=${format === options.format}>${format}</option>`)}</select></label>
  </fieldset>`;
}

function Changes({ before, after, title, onChoose }) {
  const changes = changesBetween(before.manifest.parts, after.manifest.parts);
  if (!changes.length) return html`<p class="note">${title}: ${t("nothing changed")}</p>`;
  return html`<details class="changes" open=${changes.length < 6}><summary>${title}: ${t("{n} parts", { n: changes.length })}</summary><ul>
    ${changes.slice(0, 100).map((change, index) => html`<li key=${index}><button type="button" class="quiet" onClick=${() => change.is && onChoose(change.is)}>${labelOf(change.part)}</button>
      ${!change.was ? html`<${Chip} kind="good">${t("came")}</${Chip}>` : !change.is ? html`<${Chip} kind="bad">${t("went")}</${Chip}>` : change.was.level !== change.is.level ? html`<span class="note">${t(LEVELS[change.was.level])} → ${t(LEVELS[change.is.level])}</span>` : ""}
      <span class="note">${change.tokens > 0 ? "+" : ""}${number(change.tokens)}</span></li>`)}</ul></details>`;
}

export function Windows({ id, session, params }) {
  const redraw = useRedraw();
  const cache = useMemo(() => new WindowCache(id), [id]);
  const [answers, setAnswers] = useState({ calls: [], isAll: false });
  const [error, fail] = useState(null);
  const [part, choose] = useState(null);
  const find = params.get("find") || "";
  const [pane, show] = useState("parts");
  const [measuring, measure] = useState(false);
  const field = useRef();
  const log = useMemo(() => new Calls(id, (calls, isAll) => setAnswers({ calls, isAll })), [id]);
  useEffect(() => { log.read(session.head).catch(fail); }, [log, session.head]);
  const calls = useMemo(() => {
    const all = answers.calls.map((call, index) => ({ ...call, number: index + 1 }));
    return [...all, { position: null, at: session.head, last: session.head, parent: null, number: all.length + 1 }];
  }, [answers, session.head]);
  // Windows are in the format of the newest message until another is chosen.
  const { value: usual } = useAnswer(async () => {
    const page = await get(sessionPath(id, "/messages"), { order: "desc", limit: 1 });
    return FORMATS.includes(page.messages[0]?.format) ? page.messages[0].format : FORMATS[0];
  }, [id]);
  const options = { policy: params.get("policy") || "", budget: params.get("budget") || "", format: params.get("format") || usual };
  const read = (call, options) => (options.format ? cache.read(call, options) : new Promise(() => {}));
  const other = params.get("beside") ? { policy: params.get("policy2") || "", budget: params.get("budget2") || "", format: params.get("format2") || options.format } : null;
  const wanted = Number(params.get("call")), at = Number(params.get("at"));
  const call = (wanted && calls.find(item => item.number === wanted)) || (at && calls.find(item => item.last >= at)) || calls[calls.length - 1];
  const set = changes => {
    const now = Object.fromEntries(params);
    delete now.at;
    go(to(id, "window", { ...now, call: call.number, ...changes }), true);
  };
  const goTo = item => { if (item) { choose(null); set({ call: item.number }); } };
  const optionKey = JSON.stringify([options, other]);
  const { value: window, error: refused, busy } = useAnswer(() => read(call, options), [call.at, optionKey, cache]);
  const previous = calls.slice(0, call.number - 1).findLast(item => isSameAgent(item, call));
  const { value: before } = useAnswer(() => (previous ? read(previous, options) : Promise.resolve(null)), [previous?.at, call.at, optionKey, cache]);
  const { value: beside, error: besideRefused } = useAnswer(() => (other ? read(call, other) : Promise.resolve(null)), [call.at, optionKey, cache]);
  const values = useLaterValues(id, call.position ?? Infinity);
  const total = calls.length;
  useEffect(() => {
    let current = true;
    (async () => {
      for (const item of calls) {
        while (document.hidden && current) await new Promise(resolve => setTimeout(resolve, 500));
        if (!current || (calls.length > MEASURED && !measuring)) return;
        if (cache.peek(item, options)) continue;
        try { await read(item, options); } catch { return; }
        if (current) redraw();
      }
    })();
    return () => { current = false; };
  }, [total, measuring, optionKey]);
  useKeys({ ArrowLeft: () => goTo(calls[call.number - 2]), ArrowRight: () => goTo(calls[call.number]), f: () => field.current?.focus() });
  const findHere = value => { choose(null); set({ find: value }); };
  const onPart = (found, position) => choose(found || { kind: "message", loop: null, first: position, last: position, level: "out", tokens: 0, reason: null, refs: [] });
  const measured = calls.map(item => cache.peek(item, options)).filter(Boolean);
  const sum = measured.reduce((tokens, item) => tokens + item.tokens, 0);
  const cached = measured.reduce((tokens, item) => tokens + Math.min(item.prefix.stable_tokens, item.tokens), 0);
  return html`<div class="windows">
    <section class="scrub" aria-label=${t("Model calls")}>
      <div class="scrubhead">
        <button type="button" aria-label=${t("Previous call")} disabled=${call.number <= 1} onClick=${() => goTo(calls[call.number - 2])}>←</button>
        <strong>${call.position ? t("Call {n} of {all}", { n: number(call.number), all: number(total - 1) }) : t("The next call")}</strong>
        <button type="button" aria-label=${t("Next call")} disabled=${call.number >= total} onClick=${() => goTo(calls[call.number])}>→</button>
        ${call.parent && html`<${Chip} title=${t("An agent that works within this call; its messages are in no loop")}>↳ ${call.parent.ref} ${call.parent.agent_id}</${Chip}>`}
        <span class="note">${call.position ? html`${t("answered by")} <a href=${to(id, "messages", { at: call.position })}>#${call.position}</a>` : t("as the log is now, #{n}", { n: call.at })}</span>
        <span class="note sums">${measured.length > 1 && t("{n} calls: {tokens} tokens, {share} % still in the prompt cache", { n: measured.length, tokens: short(sum), share: Math.round((cached / Math.max(1, sum)) * 100) })} ${money(sum, cached)}</span>
        ${total > MEASURED && !measuring && html`<button type="button" class="quiet" onClick=${() => measure(true)}>${t("Measure all calls")}</button>`}
      </div>
      <${Growth} calls=${calls} chosen=${call} cache=${cache} options=${options} onChoose=${goTo} />
      <input type="range" min="1" max=${total} value=${call.number} aria-label=${t("Model call")} aria-valuetext=${call.position ? t("Call {n} of {all}", { n: number(call.number), all: number(total - 1) }) : t("The next call")}
        onInput=${event => goTo(calls[Number(event.target.value) - 1])} />
      ${!answers.isAll && answers.calls.length > 0 && html`<p class="note">${t("Earlier calls are being read…")}</p>`}
    </section>
    <div class="toolbar"><${Options} options=${options} session=${session} name=${t("This window")} onChange=${changed => set(changed)} />
      ${!other && html`<button type="button" onClick=${() => set({ beside: 1 })}>${t("Try another beside it")}</button>`}
      ${other && html`<${Options} options=${other} session=${session} name=${t("Beside it")} onChange=${changed => set({ policy2: changed.policy, budget2: changed.budget, format2: changed.format })} />
        <button type="button" class="quiet" onClick=${() => set({ beside: "", policy2: "", budget2: "", format2: "" })}>${t("Close")}</button>`}
      <span class="switch" role="group" aria-label=${t("Show as")}>${[["parts", "Parts"], ["request", "Request"]].map(([name, label]) => html`<button type="button" key=${name} aria-pressed=${pane === name ? "true" : "false"} onClick=${() => show(name)}>${t(label)}</button>`)}</span>
    </div>
    <${Failure} error=${error || refused} />
    ${!window && html`<${Waiting} when=${busy} />`}
    ${window && html`<div class=${`panes ${other ? "two" : ""}`}>
      <div class="pane"><${Budget} window=${window} /><${Cache} window=${window} isFirst=${!previous} />
        ${call.sent && call.sent.tokens !== window.tokens && html`<p class="note">${t("The agent was sent {n} tokens: its call named another policy, budget or format, which you can type above.", { n: number(call.sent.tokens) })}</p>`}
        ${!other && before && html`<${Changes} before=${before} after=${window} title=${t("Since the call before")} onChoose=${choose} />`}
        ${pane === "parts" ? html`<${Parts} window=${window} chosen=${part} onChoose=${choose} />` : html`<${Request} window=${window} format=${options.format} model=${session.model} />`}</div>
      ${other ? html`<div class="pane"><${Failure} error=${besideRefused} />${beside && html`<${Budget} window=${beside} /><${Cache} window=${beside} isFirst=${!previous} />
          <${Changes} before=${window} after=${beside} title=${t("Against this window")} onChoose=${choose} />
          ${pane === "parts" ? html`<${Parts} window=${beside} chosen=${part} onChoose=${choose} />` : html`<${Request} window=${beside} format=${other.format} model=${session.model} />`}`}</div>`
        : html`<div class="pane side"><${FindValue} id=${id} window=${window} call=${call} wanted=${find} onFind=${findHere} onPart=${onPart} field=${field} />
          ${part ? html`<${Detail} id=${id} window=${window} part=${part} values=${values} find=${find} />` : html`<${Answered} id=${id} window=${window} call=${call} onFind=${findHere} />`}</div>`}
    </div>
    ${other && part && html`<${Detail} id=${id} window=${window} part=${part} values=${values} find=${find} />`}`}
  </div>`;
}
