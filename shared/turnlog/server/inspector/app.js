// The shell: head, theme and language, the token's question, and which view the address names.

import { about, hasToken, load, setToken } from "./api.js";
import { html, render, useEffect, useErrorBoundary, useState, settings, keep, apply, t, route, go, useEvent, useRedraw, useKeys, Failure, Waiting, Toasts, Dialog, Chip } from "./lib.js";
import { Sessions } from "./sessions.js";
import { Session } from "./session.js";
import { Reference } from "./reference.js";

const isReference = location.pathname === "/docs";

function Settings({ onClose }) {
  const choose = (name, label, choices) => html`<label>${label}
    <select value=${settings[name]} onChange=${event => keep(name, event.target.value)}>
      ${choices.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>`;
  const own = (name, label) => html`<label>${label}
    <input value=${about[name]} required onChange=${event => { about[name] = event.target.value.trim() || about[name]; dispatchEvent(new Event("turnlog-owner")); }} /></label>`;
  return html`<${Dialog} title=${t("Settings")} onClose=${onClose}>
    <form method="dialog">
      ${choose("language", t("Language"), [["en", "English"], ["zh", "中文"]])}
      ${choose("theme", t("Theme"), [["auto", t("as the system")], ["light", t("light")], ["dark", t("dark")]])}
      <label>${t("Price of a million input tokens, in dollars")}
        <input type="number" min="0" step="0.01" value=${settings.price} placeholder="3.00" onInput=${event => keep("price", event.target.value)} /></label>
      <p class="note">${t("With a price, tokens are shown as money too. What a prompt cache still has counts a tenth.")}</p>
      ${about.tenant && own("tenant", t("Tenant"))}
      ${about.user && own("user", t("User"))}
      <footer><button type="submit" class="primary">${t("Close")}</button></footer>
    </form>
  </${Dialog}>`;
}

const HELP = [
  ["/", "Search"], ["↑ ↓", "Previous and next message"], ["← →", "Previous and next model call"], ["1 – 7", "The session's views"],
  ["f", "Find a value in the window"], ["Esc", "Back"], ["?", "This help"],
];

function Help({ onClose }) {
  return html`<${Dialog} title=${t("Keys")} onClose=${onClose}>
    <dl class="keys">${HELP.map(([key, text]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${t(text)}</dd></div>`)}</dl>
  </${Dialog}>`;
}

function Locked({ onOpen }) {
  const [value, set] = useState("");
  const submit = event => { event.preventDefault(); setToken(value.trim()); onOpen(); };
  return html`<main class="locked" id="main"><h1>${t("This server needs its token")}</h1>
    <form onSubmit=${submit}><label>${t("Bearer token")}<input type="password" autocomplete="off" autofocus value=${value} onInput=${event => set(event.target.value)} /></label>
    ${hasToken() && html`<p class="failure" role="alert">${t("The server has another token")}</p>`}
    <button type="submit" class="primary">${t("Open")}</button></form></main>`;
}

function App() {
  const redraw = useRedraw();
  const [state, set] = useState({ loaded: false, locked: false, error: null });
  const [dialog, open] = useState(null);
  const [broken, retry] = useErrorBoundary();
  const start = () => load().then(
    () => set({ loaded: true, locked: false, error: null }),
    error => set({ loaded: false, locked: error.status === 401, error: error.status === 401 ? null : error }));
  useEffect(() => { start(); }, []);
  useEvent("hashchange", () => { retry(); document.getElementById("main")?.focus({ preventScroll: true }); redraw(); });
  useEvent("turnlog-settings", redraw);
  useEvent("turnlog-owner", () => { go("#/"); redraw(); });
  useEvent("turnlog-locked", () => set({ loaded: false, locked: true, error: null }));
  const { id, tab, params } = route();
  useKeys({ "?": () => open("help"), Escape: () => !isReference && go(id && tab !== "messages" ? `#/s/${encodeURIComponent(id)}` : "#/") });
  const view = () => {
    if (state.locked) return html`<${Locked} onOpen=${start} />`;
    const error = state.error || broken;
    if (error) return html`<main id="main"><${Failure} error=${error} /></main>`;
    if (!state.loaded) return html`<main id="main"><${Waiting} /></main>`;
    if (isReference) return html`<${Reference} />`;
    const owner = `${about.tenant}/${about.user}`;
    return id ? html`<${Session} key=${`${owner}/${id}`} id=${id} tab=${tab} params=${params} /> ` : html`<${Sessions} key=${owner} params=${params} />`;
  };
  return html`
    <a class="skip" href="#main" onClick=${event => { event.preventDefault(); document.getElementById("main")?.focus(); }}>${t("Skip to content")}</a>
    <header class="top">
      <a class="brand" href=${isReference ? "/inspector" : "#/"}><img src="/inspector/icon.svg" alt="" width="20" height="20" />Turnlog</a>
      <nav aria-label=${t("Pages")}>
        <a href=${isReference ? "/inspector" : "#/"} aria-current=${!isReference && !id ? "page" : undefined}>${t("Sessions")}</a>
        <a href="/docs" aria-current=${isReference ? "page" : undefined}>${t("API")}</a>
      </nav>
      <span class="place">
        ${about.where && html`<span class="where" title=${about.where}>${about.where.split("/").pop() || about.where}</span>`}
        ${about.read_only && html`<${Chip} kind="warn" title=${t("Nothing can be changed here")}>${t("read-only")}</${Chip}>`}
      </span>
      <button type="button" class="quiet" aria-label=${t("Keys")} title=${t("Keys")} onClick=${() => open("help")}>?</button>
      <button type="button" class="quiet" aria-label=${t("Settings")} title=${t("Settings")} onClick=${() => open("settings")}>⚙</button>
    </header>
    ${view()}
    <${Toasts} />
    ${dialog === "settings" && html`<${Settings} onClose=${() => open(null)} />`}
    ${dialog === "help" && html`<${Help} onClose=${() => open(null)} />`}`;
}

apply();
render(html`<${App} />`, document.getElementById("app"));
