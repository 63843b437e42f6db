// What all views share: the library, words, routes, formats of numbers and times, and small components.

import { h, html as markup, render, createContext, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./vendor/htm-preact.js";
import { CHINESE, ENGLISH } from "./words.js";

export { h, render, createContext, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState };

// ---- text: characters that are not seen, or that move others, are shown as escapes

// The rule of `plain` in cli/screen.py, which a test compares. The first group is the flag of a region, which is seen.
const HIDDEN = new RegExp(String.raw`(\u{1f3f4}[\u{e0030}-\u{e007a}]{2,6}\u{e007f})|\r(?!\n)`
  + String.raw`|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}]`
  + String.raw`|(?<![\u0300-\u1fff\u2010-\u{10ffff}])[\u200c\u200d]|[\u200c\u200d](?![\u0300-\u1fff\u2010-\u{10ffff}])`, "gu");
const escaped = char => { const code = char.codePointAt(0).toString(16).padStart(4, "0"); return code.length > 4 ? `\\u{${code}}` : `\\u${code}`; };
export const plain = (text, mark = part => part) => text.replace(HIDDEN, (char, flag) => flag ?? mark(escaped(char)));

const shown = new WeakSet();
export function visible(node) {
  if (typeof node === "string") {
    const parts = node.search(HIDDEN) < 0 ? [] : plain(node, char => `\0${char}\0`).split("\0");
    return parts.length ? parts.map((part, index) => (index % 2 ? h("span", { class: "escape" }, part) : part)) : node;
  }
  if (Array.isArray(node)) return node.map(visible);
  // An object of a message: Preact would take one with a `type` for an element.
  if (typeof node === "object" && node !== null && node.constructor !== undefined) return visible(JSON.stringify(node));
  if (typeof node?.type !== "string" || shown.has(node)) return node;
  shown.add(node);
  for (const name of ["title", "aria-label", "placeholder"]) if (typeof node.props[name] === "string") node.props[name] = plain(node.props[name]);
  node.props.children = visible(node.props.children);
  return node;
}

export const html = (...parts) => visible(markup(...parts));

// ---- settings of this browser

function stored(name, fallback) {
  try { return localStorage.getItem(`turnlog-${name}`) ?? fallback; } catch { return fallback; }
}

export const settings = {
  language: stored("language", (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en"),
  theme: stored("theme", "auto"),
  price: stored("price", ""),
};

export function keep(name, value) {
  settings[name] = value;
  try { localStorage.setItem(`turnlog-${name}`, value); } catch { /* kept for this page only */ }
  apply();
  dispatchEvent(new Event("turnlog-settings"));
}

export function apply() {
  document.documentElement.lang = settings.language === "zh" ? "zh-CN" : "en";
  document.documentElement.dataset.theme = settings.theme;
}

export function t(text, values = {}) {
  const words = (settings.language === "zh" ? CHINESE[text] : undefined) ?? ENGLISH[text] ?? text;
  const told = words.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  return settings.language === "zh" ? told : told.replace(/\b1 (message|loop|call|token|session|part|place)s\b/g, "1 $1");
}

const locale = () => (settings.language === "zh" ? "zh-CN" : /^en\b/.test(navigator.language) ? navigator.language : "en");
export const number = value => (value ?? 0).toLocaleString(locale());
export const short = value =>
  value >= 9_999_500 ? `${Math.round(value / 1e6)}M` : value >= 999_500 ? `${(value / 1e6).toFixed(1)}M`
    : value >= 9_950 ? `${Math.round(value / 1e3)}k` : value >= 1_000 ? `${(value / 1e3).toFixed(1)}k` : String(value ?? 0);
export const money = (tokens, cached = 0) => {
  const price = Number(settings.price);
  if (!(price > 0)) return "";
  const dollars = ((tokens - cached) * price + cached * price * 0.1) / 1e6;
  return `$${dollars < 0.1 ? dollars.toFixed(4) : dollars.toFixed(2)}`;
};
export const clock = text => new Date(text).toLocaleTimeString(locale());
export const time = text => new Date(text).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "medium" });
export function ago(text) {
  const seconds = Math.round((Date.now() - new Date(text)) / 1000);
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: "auto", style: "narrow" });
  for (const [unit, size] of [["year", 31_536_000], ["month", 2_592_000], ["day", 86_400], ["hour", 3_600], ["minute", 60]]) {
    if (Math.abs(seconds) >= size) return format.format(-Math.trunc(seconds / size), unit);
  }
  return t("now");
}

// ---- the address: #/s/SESSION/TAB?name=value

// A part that encodes nothing stays as it is: the server says what is wrong with it.
const decoded = part => { try { return decodeURIComponent(part); } catch { return part; } };

export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/");
  const isSession = parts[0] === "s" && parts[1];
  return {
    id: isSession ? decoded(parts[1]) : null,
    tab: isSession ? parts[2] || "messages" : "",
    params: new URLSearchParams(query || ""),
  };
}

export function to(id, tab = "messages", params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== ""));
  return `#/s/${encodeURIComponent(id)}/${tab}${query.size ? `?${query}` : ""}`;
}

export const go = (address, replace = false) => {
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new Event("hashchange"));
  } else location.hash = address;
};

export function useEvent(name, handle) {
  useEffect(() => {
    addEventListener(name, handle);
    return () => removeEventListener(name, handle);
  });
}

export function useRedraw() {
  return useReducer(count => count + 1, 0)[1];
}

// The answer of `read`, which runs again when one of `inputs` changes; the answer before stays until a later one is there, also
// one that comes when inputs have changed again: those of a session that grows change faster than they are read.
export function useAnswer(read, inputs) {
  const [answer, set] = useState({ value: null, error: null, busy: true });
  const turns = useRef({ begun: 0, shown: 0 });
  useEffect(() => {
    const turn = ++turns.current.begun;
    const show = changes => {
      if (turn < turns.current.shown) return;
      turns.current.shown = turn;
      set({ ...changes, busy: turn < turns.current.begun });
    };
    set(before => ({ ...before, busy: true }));
    read().then(value => show({ value, error: null }), error => show({ value: null, error }));
  }, inputs);
  return answer;
}

// Run `tick` at most once a second while the page is seen.
export function usePoll(tick, seconds, inputs) {
  useEffect(() => {
    let timer, ended = false;
    const next = async () => {
      clearTimeout(timer);
      if (ended || document.hidden) return;
      try { await tick(); } catch { /* the next try may succeed */ }
      if (!ended) timer = setTimeout(next, seconds * 1000);
    };
    const wake = () => { clearTimeout(timer); if (!document.hidden) timer = setTimeout(next, seconds * 1000); };
    timer = setTimeout(next, seconds * 1000);
    document.addEventListener("visibilitychange", wake);
    return () => { ended = true; clearTimeout(timer); document.removeEventListener("visibilitychange", wake); };
  }, inputs);
}

// The session that another came from: the one it was forked from, or that of the call which its agent works for.
export function originOf(session) {
  if (session.forked_from) return { id: session.forked_from, at: session.forked_at };
  const parent = session.metadata?.parent;
  if (typeof parent?.session_id !== "string" || typeof parent.ref !== "string") return null;
  return { id: parent.session_id, at: Number.parseInt(parent.ref, 10), ref: parent.ref };
}

// ---- keys: a view names what its keys do; keys in a field are the field's, and those of an open dialog the dialog's

const keys = new Map();
export function useKeys(table) {
  useEffect(() => {
    for (const [key, action] of Object.entries(table)) keys.set(key, action);
    return () => { for (const [key, action] of Object.entries(table)) if (keys.get(key) === action) keys.delete(key); };
  });
}

addEventListener("keydown", event => {
  const target = event.target;
  const isField = target instanceof HTMLElement && target.matches("input:not([type=range]), textarea, select");
  // A button that is disabled while its request runs gives the focus to the body.
  if (isField || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (target instanceof HTMLElement && target.matches("input[type=range]") && event.key.startsWith("Arrow")) return;
  const action = keys.get(event.key);
  if (action) {
    event.preventDefault();
    action();
  }
});

// ---- small components

export function Failure({ error }) {
  if (!error) return null;
  return html`<p class="failure" role="alert"><strong>${error.code || t("Error")}</strong> ${error.message}</p>`;
}

export function Waiting({ when = true }) {
  return when ? html`<p class="waiting" role="status">${t("Loading…")}</p>` : null;
}

export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

export function Chip({ kind = "", title, children }) {
  return html`<span class=${`chip ${kind}`} title=${title}>${children}</span>`;
}

let say = () => {};
export const tell = text => say(text);
export function Toasts() {
  const [text, set] = useState("");
  const timer = useRef();
  say = message => {
    set(message);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set(""), 5000);
  };
  return html`<div class="toast" role="status" aria-live="polite" hidden=${!text}>${text}</div>`;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    tell(t("Copied"));
  } catch {
    tell(t("The browser does not allow copying here"));
  }
}

export function CopyButton({ text, label = t("Copy") }) {
  return html`<button type="button" class="quiet" onClick=${() => copy(typeof text === "function" ? text() : text)}>${label}</button>`;
}

export function Dialog({ title, onClose, children }) {
  const place = useRef();
  useEffect(() => { place.current.showModal(); }, []);
  return html`<dialog ref=${place} aria-label=${title} onClose=${onClose} onClick=${event => event.target === place.current && place.current.close()}>
    <div class="dialog">
      <header><h2>${title}</h2><button type="button" class="quiet" aria-label=${t("Close")} onClick=${() => place.current.close()}>✕</button></header>
      ${children}
    </div>
  </dialog>`;
}

// A dialog that asks before something is changed. `run` does it; its answer is passed to `onDone`.
export function Confirm({ title, text, action, danger, fields = [], run, onDone, onClose }) {
  const [values, set] = useState(Object.fromEntries(fields.map(field => [field.name, field.value ?? ""])));
  const [error, fail] = useState(null);
  const [busy, wait] = useState(false);
  const submit = async event => {
    event.preventDefault();
    wait(true);
    fail(null);
    try {
      const answer = await run(values);
      onClose();
      onDone?.(answer);
    } catch (problem) {
      fail(problem);
      wait(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      <p>${text}</p>
      ${fields.map(field => html`<label key=${field.name}>${field.label}
        ${field.choices
          ? html`<select onChange=${event => set({ ...values, [field.name]: event.target.value })}>
              ${field.choices.map(choice => html`<option key=${choice} value=${choice} selected=${choice === values[field.name]}>${choice}</option>`)}</select>`
          : html`<input value=${values[field.name]} required=${field.required} onInput=${event => set({ ...values, [field.name]: event.target.value })} />`}
      </label>`)}
      <${Failure} error=${error} />
      <footer>
        <button type="button" onClick=${onClose}>${t("Cancel")}</button>
        <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy}>${action}</button>
      </footer>
    </form>
  </${Dialog}>`;
}
