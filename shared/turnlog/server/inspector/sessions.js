// The list of sessions: newest first, filtered as one types, forks below their parents, what the next model call costs.

import { ask, get, pages, sessionPath } from "./api.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState, t, to, go, originOf, number, short, money, ago, time, useAnswer, useKeys, usePoll, Failure, Waiting, Empty, Chip } from "./lib.js";

const MOST = 1_000;

// The row that one went to a session from, and how far the list was scrolled: one comes back to them.
let left = { address: "", top: 0 };
const leave = event => { left = { address: event.target.closest("a")?.getAttribute("href"), top: scrollY }; };

// Rows in the list's order, each fork and each agent's own session behind its parent where both are listed.
function asTree(sessions) {
  const ids = new Set(sessions.map(session => session.session_id));
  const parentOf = session => { const id = originOf(session)?.id; return id !== session.session_id && ids.has(id) ? id : null; };
  const forks = new Map();
  for (const session of sessions) {
    const parent = parentOf(session);
    if (parent) forks.set(parent, [...(forks.get(parent) || []), session]);
  }
  const rows = [], seen = new Set();
  const add = (session, depth) => {
    if (seen.has(session.session_id)) return;
    seen.add(session.session_id);
    rows.push({ session, depth });
    for (const fork of forks.get(session.session_id) || []) add(fork, depth + 1);
  };
  for (const session of sessions) if (!parentOf(session)) add(session, 0);
  for (const session of sessions) add(session, 0);
  return rows;
}

// A row's exact figures and what the next model call would be sent, asked for when the row is seen: the list is a cache that
// lags behind, and building a window reads the session.
function Figures({ session }) {
  const place = useRef();
  const [exact, set] = useState(session);
  const [tokens, count] = useState(null);
  useEffect(() => {
    let current = true;
    const path = sessionPath(session.session_id);
    const watch = new IntersectionObserver(async entries => {
      if (!entries.some(entry => entry.isIntersecting)) return;
      watch.disconnect();
      try {
        const now = await get(path);
        if (current) set(now);
        const window = await ask(`${path}/context`, {});
        if (current) count(window.tokens);
      } catch { if (current) count(-1); }
    });
    watch.observe(place.current);
    return () => { current = false; watch.disconnect(); };
  }, [session.updated_at, session.head]);
  return html`<td class="number" data-label=${t("Messages")} ref=${place}>${number(exact.messages)}</td><td class="number loops" data-label=${t("Loops")}>${number(exact.loops)}</td>
    <td class="number" data-label=${t("Tokens")}>${short(exact.tokens)}</td>
    <td class="number" data-label=${t("Next call")}>${tokens === null ? "·" : tokens < 0 ? "–" : html`${short(tokens)}${money(tokens) && html` <small class="note">${money(tokens)}</small>`}`}</td>
    <td class="number" title=${time(exact.updated_at)}>${ago(exact.updated_at)}</td>`;
}

function Results({ query }) {
  const { value, error, busy } = useAnswer(() => get("/v1/search", { q: query, limit: 20 }), [query]);
  if (error || !value) return html`<${Failure} error=${error} /><${Waiting} when=${busy} />`;
  return html`<section aria-label=${t("Found in all sessions")}>
    <h2>${t("Found in all sessions")}</h2>
    ${!value.results.length && html`<${Empty}>${t("Nothing found")}</${Empty}>`}
    <ol class="found">${value.results.map((hit, index) => html`<li key=${index}>
      <a href=${to(hit.session_id, "messages", { at: hit.position })}><strong><bdi>${hit.title || hit.session_id}</bdi></strong>
        <span class="note">${hit.where === "message" ? `#${hit.position} ${hit.role}` : t(hit.where)}</span>
        <${Snippet} text=${hit.snippet} /></a></li>`)}</ol>
    ${!value.is_complete && html`<p class="note">${t("Not all sessions have been searched yet; try again in a moment.")}</p>`}
  </section>`;
}

export function Snippet({ text }) {
  const parts = (text || "").split(/[⟦⟧]/);
  return html`<span class="snippet" dir="auto">${parts.map((part, index) => (index % 2 ? html`<mark key=${index}>${part}</mark>` : part))}</span>`;
}

export function Sessions({ params }) {
  const [sessions, set] = useState(null);
  const [error, fail] = useState(null);
  const [text, type] = useState(params.get("q") || "");
  const [status, filter] = useState("");
  const [query, search] = useState(params.get("q") || "");
  const field = useRef();
  const read = async () => {
    try {
      set(await pages("/v1/sessions", { limit: 100, status }, "sessions", MOST));
      fail(null);
    } catch (problem) { fail(problem); }
  };
  useEffect(() => { read(); }, [status]);
  usePoll(async () => {
    const newest = await get("/v1/sessions", { limit: 50, status });
    set(before => {
      const ids = new Set(newest.sessions.map(session => session.session_id));
      return [...newest.sessions, ...(before || []).filter(session => !ids.has(session.session_id))];
    });
  }, 3, [status]);
  usePoll(read, 60, [status]); // what is erased leaves the list
  useKeys({ "/": () => field.current.focus() });
  useEffect(() => { document.title = `${t("Sessions")} · Turnlog`; });
  useLayoutEffect(() => {
    const row = sessions && [...document.querySelectorAll(".list a")].find(link => link.getAttribute("href") === left.address);
    if (!row) return;
    scrollTo(0, left.top);
    if (document.activeElement?.matches("body, main")) row.focus({ preventScroll: true });
  }, [!sessions]);
  const rows = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return asTree((sessions || []).filter(session => {
      const told = `${session.title || ""} ${session.session_id}`.toLowerCase();
      return words.every(word => told.includes(word));
    }));
  }, [sessions, text]);
  const submit = event => {
    event.preventDefault();
    search(text.trim());
    go(text.trim() ? `#/?q=${encodeURIComponent(text.trim())}` : "#/", true);
  };
  return html`<main id="main" class="sessions" tabindex="-1">
    <h1 class="unseen">${t("Sessions")}</h1>
    <form class="bar" role="search" onSubmit=${submit}>
      <input ref=${field} type="search" value=${text} placeholder=${t("Filter; Enter searches messages")} aria-label=${t("Search sessions")}
        onInput=${event => { type(event.target.value); if (!event.target.value) search(""); }} />
      <select aria-label=${t("Status")} value=${status} onChange=${event => filter(event.target.value)}>
        <option value="">${t("any status")}</option>${["active", "inactive", "ended"].map(value => html`<option value=${value}>${t(value)}</option>`)}
      </select>
      <span class="note">${sessions && t("{n} sessions", { n: number(rows.length) })}</span>
    </form>
    <${Failure} error=${error} />
    ${query && html`<${Results} query=${query} />`}
    ${!sessions ? html`<${Waiting} when=${!error} />` : !rows.length ? html`<${Empty}>${text ? t("No session has this title or id") : t("No sessions yet. `POST /v1/sessions`, `log.sessions.create()` or `turnlog import` makes one.")}</${Empty}>` : html`
    <table class="list"><thead><tr><th scope="col">${t("Session")}</th><th scope="col">${t("Status")}</th><th scope="col" class="number">${t("Messages")}</th>
      <th scope="col" class="number">${t("Loops")}</th><th scope="col" class="number">${t("Tokens")}</th>
      <th scope="col" class="number" title=${t("What the next model call would be sent, in tokens")}>${t("Next call")}</th><th scope="col" class="number">${t("Last activity")}</th></tr></thead>
      <tbody onClick=${leave}>${rows.map(({ session, depth }) => html`<tr key=${session.session_id}>
        <th scope="row"><a href=${to(session.session_id)} class=${`depth${Math.min(depth, 4)}`}>${depth > 0 && html`<span class="fork" aria-label=${session.forked_from ? t("a fork") : t("an agent's own session")}>↳</span>`}
          <bdi class="title">${session.title || session.session_id}</bdi>${session.title && html`<span class="id">${session.session_id}</span>`}
          ${depth === 0 && session.forked_from && html`<span class="id">↳ ${session.forked_from} #${session.forked_at}</span>`}</a></th>
        <td class="status"><${Chip} kind=${session.status === "active" ? "good" : ""}>${t(session.status)}</${Chip}></td>
        <${Figures} session=${session} /></tr>`)}</tbody></table>`}
  </main>`;
}
