// The smaller views of a session: its state, history, search and recall, two moments side by side, snapshots and forks.

import { about, change, get, pages, sessionPath } from "./api.js";
import { html, useEffect, useRef, useState, t, to, go, originOf, number, time, useAnswer, useKeys, Failure, Waiting, Empty, Chip, CopyButton } from "./lib.js";
import { Json, Long, Message, Value } from "./messages.js";
import { Snippet } from "./sessions.js";

const waiting = agent => Object.values(agent.inbox || {}).reduce((count, entry) => count + (entry?.messages?.length || 0), 0);

// ---- the state, its agents, and how both became so

export function State({ id, session, params, act }) {
  const [at, set] = useState(Number(params.get("at")) || session.head);
  const moment = at >= session.head ? undefined : at;
  const { value, error, busy } = useAnswer(() => get(sessionPath(id, "/state"), { at: moment }), [moment, session.head]);
  const { value: changes } = useAnswer(async () => {
    const found = [];
    for (let before, tries = 0; tries < 4; tries += 1) {
      const page = await get(sessionPath(id, "/history"), { limit: 500, before });
      found.push(...page.entries.filter(entry => entry.diff !== null));
      before = page.next ?? undefined;
      if (!before) break;
    }
    return found;
  }, [session.head]);
  const agents = Object.entries(value?.state?.agents || {});
  const { agents: _, ...rest } = value?.state || {};
  const decide = (agent, decision) => act({
    title: decision === "approve" ? t("Approve the action") : t("Reject the action"), text: t("The agent {agent} waits for this decision.", { agent }),
    action: decision === "approve" ? t("Approve") : t("Reject"), danger: decision === "reject", fields: [{ name: "reason", label: t("Reason") }],
    run: values => change("POST", sessionPath(id, `/agents/${encodeURIComponent(agent)}/pending`), { decision, reason: values.reason || null }),
  });
  return html`<div class="columns">
    <section class="card"><h2>${t("State")} <span class="note">${value && t("version {n}", { n: value.version })}</span></h2>
      <label class="slider">${t("As of #{n}", { n: Math.min(at, session.head) })}<input type="range" min="1" max=${session.head} value=${Math.min(at, session.head)} onInput=${event => set(Number(event.target.value))} /></label>
      <${Failure} error=${error} /><${Waiting} when=${busy && !value} />
      ${value && (Object.keys(rest).length ? html`<${Json} value=${rest} open=${4} />` : html`<${Empty}>${t("The state is empty")}</${Empty}>`)}
      ${value && html`<p><${CopyButton} text=${() => JSON.stringify(value.state, null, 2)} /></p>`}
      ${agents.length > 0 && html`<h2>${t("Agents")}</h2>`}
      ${agents.map(([name, state]) => html`<article class="agent" key=${name}><h3>${state.name || name}${state.name && state.name !== name && html` <code>${name}</code>`}
          ${state.iteration !== undefined && html`<span class="note">${t("step {n} of {all}", { n: state.iteration, all: state.max_iterations ?? "–" })}</span>`}
          ${waiting(state) > 0 && html`<${Chip} kind="warn" title=${t("They wait in the agent's inbox until its run takes them")}>${t("{n} messages wait", { n: waiting(state) })}</${Chip}>`}
          ${state.pending_action && html`<${Chip} kind="warn">${t("waits for a decision")}</${Chip}>`}</h3>
        ${state.pending_action && !state.pending_action.decision && !about.read_only && !moment && html`<p><button type="button" class="primary" onClick=${() => decide(name, "approve")}>${t("Approve")}</button> <button type="button" class="danger" onClick=${() => decide(name, "reject")}>${t("Reject")}</button></p>`}
        <${Json} value=${state} open=${2} /></article>`)}
    </section>
    <section class="card"><h2>${t("Changes, newest first")}</h2>
      ${changes && !changes.length && html`<${Empty}>${t("The state has not been changed")}</${Empty}>`}
      ${(changes || []).slice(0, 200).map(entry => html`<article class="entry" key=${entry.history_id}>
        <p><button type="button" class="quiet" onClick=${() => set(Number(entry.history_id))}>#${entry.history_id}</button> <strong>${t(entry.action)}</strong> ${entry.agent_id && html`<${Chip}>${entry.agent_id}</${Chip}>`} <time class="note">${time(entry.created_at)}</time></p>
        <${Json} value=${entry.diff} open=${2} /></article>`)}
    </section></div>`;
}

// ---- everything that was done

const ACTIONS = ["message_added", "tool_call", "tool_result", "tool_recalled", "state_change", "policy_change", "run", "run_acquired", "run_renewed", "run_released", "sent_to_run", "approve", "reject", "summary_published", "summary_discarded", "rewind", "restore", "redact", "time_out", "documents_written"];

export function History({ id, session }) {
  const [action, filter] = useState("");
  const [entries, set] = useState(null);
  const [next, more] = useState(null);
  const [error, fail] = useState(null);
  const read = async before => {
    try {
      const page = await get(sessionPath(id, "/history"), { limit: 100, before, action });
      set(known => (before ? [...known, ...page.entries] : page.entries));
      more(page.next);
      fail(null);
    } catch (problem) { fail(problem); }
  };
  useEffect(() => { read(); }, [action, session.head]);
  return html`<section class="card"><div class="bar"><h2>${t("History")}</h2>
      <select aria-label=${t("Only entries of this kind")} value=${action} onChange=${event => filter(event.target.value)}><option value="">${t("everything")}</option>${ACTIONS.map(name => html`<option value=${name}>${t(name)}</option>`)}</select></div>
    <${Failure} error=${error} /><${Waiting} when=${!entries && !error} />
    ${entries && !entries.length && html`<${Empty}>${t("Nothing found")}</${Empty}>`}
    ${entries && entries.length > 0 && html`<table class="list history"><thead><tr><th scope="col">#</th><th scope="col">${t("What")}</th><th scope="col">${t("Agent")}</th><th scope="col">${t("When")}</th><th scope="col">${t("Details")}</th></tr></thead><tbody>
      ${entries.map(entry => {
        const details = Object.fromEntries(Object.entries({ ...entry.metadata, diff: entry.diff }).filter(([name, value]) => value !== null && !name.endsWith("state_keys")));
        return html`<tr key=${entry.history_id}><th scope="row"><a href=${to(id, "messages", { at: entry.history_id })}>${entry.history_id}</a></th><td>${t(entry.action)}</td><td>${entry.agent_id || ""}</td><td><time>${time(entry.created_at)}</time></td>
          <td class="details">${Object.keys(details).length > 0 && html`<${Json} value=${details} open=${0} />`}</td></tr>`;
      })}</tbody></table>`}
    ${next && html`<p><button type="button" class="more" onClick=${() => read(next)}>${t("Show earlier entries")}</button></p>`}
  </section>`;
}

// ---- recall and search, as the model's own tools do them

export function Find({ id, params }) {
  const [query, type] = useState(params.get("q") || "");
  const [asked, ask] = useState(params.get("q") || "");
  const [ref, setRef] = useState(params.get("ref") || "");
  const [pattern, setPattern] = useState("");
  const [call, recall] = useState(params.get("ref") ? { ref: params.get("ref") } : null);
  const field = useRef();
  useEffect(() => { const given = params.get("ref"); if (given) { setRef(given); recall({ ref: given }); } }, [params.get("ref")]);
  useKeys({ "/": () => field.current.focus() });
  const { value: found, error, busy } = useAnswer(() => (asked ? get(sessionPath(id, "/search"), { q: asked, limit: 20 }) : Promise.resolve(null)), [asked]);
  const { value: recalled, error: refused } = useAnswer(() => (call ? get(sessionPath(id, "/recall"), { ...call, max_tokens: 20_000 }) : Promise.resolve(null)), [JSON.stringify(call)]);
  const open = value => { setRef(value); recall({ ref: value, pattern }); };
  return html`<div class="columns">
    <section class="card"><h2>${t("Search, as the model's tool")}</h2>
      <form class="bar" role="search" onSubmit=${event => { event.preventDefault(); ask(query.trim()); }}><input ref=${field} type="search" value=${query} aria-label=${t("Question")} placeholder=${t("A question, in any words")} onInput=${event => type(event.target.value)} /><button type="submit" class="primary">${t("Search")}</button></form>
      <${Failure} error=${error} />${asked && html`<${Waiting} when=${busy} />`}
      ${found && !found.results.length && html`<${Empty}>${t("Nothing found")}</${Empty}>`}
      <ol class="found">${(found?.results || []).map(hit => html`<li key=${hit.position}><a href=${to(id, "messages", { at: hit.position })}><span class="position">#${hit.position}</span> ${t(hit.role)} <span class="note">${hit.score.toFixed(3)}</span> <${Snippet} text=${hit.snippet} /></a>
        ${hit.ref && html`<button type="button" class="quiet" onClick=${() => open(hit.ref)}>${t("recall {ref}", { ref: hit.ref })}</button>`}</li>`)}</ol>
    </section>
    <section class="card"><h2>${t("Recall a call, as the model's tool")}</h2>
      <form class="bar" onSubmit=${event => { event.preventDefault(); recall({ ref: ref.trim(), pattern }); }}><input value=${ref} required aria-label=${t("Ref or position")} placeholder=${t("A ref, such as 12.0, or a position")} onInput=${event => setRef(event.target.value)} />
        <input value=${pattern} aria-label=${t("Only lines that match")} placeholder=${t("only lines that match")} onInput=${event => setPattern(event.target.value)} /><button type="submit" class="primary">${t("Recall")}</button></form>
      <${Failure} error=${refused} />
      ${recalled && !recalled.found && html`<p class="failure">${recalled.error}. ${recalled.hint || ""}</p>${(recalled.newest_refs || []).map(item => html`<button type="button" key=${item} class="quiet" onClick=${() => open(item)}>${item}</button> `)}`}
      ${recalled?.found && html`<article class="entry"><p><strong>${recalled.name}</strong> <code>${recalled.ref}</code> ${recalled.is_error && html`<${Chip} kind="bad">${t("error")}</${Chip}>`} <span class="note">${t("{n} tokens", { n: number(recalled.tokens) })}${recalled.truncated ? `, ${t("cut")}` : ""}</span>
        ${recalled.position && html`<a href=${to(id, "messages", { at: recalled.position })}>#${recalled.position}</a>`}</p>
        ${recalled.arguments && html`<${Json} name=${t("arguments")} value=${recalled.arguments} open=${1} />`}
        <${Value} value=${recalled.content} />${recalled.note && html`<p class="note">${recalled.note}</p>`}</article>`}
    </section></div>`;
}

// ---- two moments

export function Compare({ id, session, params }) {
  const [from, setFrom] = useState(Number(params.get("from")) || Math.max(1, session.head - 10));
  const [until, setUntil] = useState(Number(params.get("to")) || session.head);
  const { value, error, busy } = useAnswer(() => get(sessionPath(id, "/diff"), { from, to: until, limit: 50 }), [from, until, session.head]);
  const slider = (label, position, set) => html`<label class="slider">${label} #${position}<input type="range" min="1" max=${session.head} value=${position} onInput=${event => set(Number(event.target.value))} />
    <input type="number" min="1" max=${session.head} value=${position} aria-label=${label} onChange=${event => set(Math.min(session.head, Math.max(1, Number(event.target.value) || 1)))} /></label>`;
  return html`<section class="card"><h2>${t("Two moments")}</h2>
    ${slider(t("From"), from, setFrom)}${slider(t("To"), until, setUntil)}
    <${Failure} error=${error} /><${Waiting} when=${busy && !value} />
    ${value && html`<p class="facts"><span>${t("{n} messages came into view", { n: value.messages.length + (value.next ? "+" : "") })}</span>
        <span>${value.left.length ? t("left: {ranges}", { ranges: value.left.map(range => `#${range.first}–${range.last}`).join(", ") }) : t("none left")}</span>
        ${value.settings.length > 0 && html`<span>${t("settings")}: ${value.settings.join(", ")}</span>`}
        ${value.summary_from !== value.summary_to && html`<span>${t("summary")}: ${value.summary_from ?? "–"} → ${value.summary_to ?? "–"}</span>`}</p>
      ${value.state.length > 0 && html`<h3>${t("State")}</h3><ul class="patch">${value.state.map((step, index) => html`<li key=${index} class=${step.op}><code>${step.op}</code> <code>${step.path || "/"}</code> ${"value" in step && html`<${Json} value=${step.value} open=${1} />`}</li>`)}</ul>`}
      ${value.messages.map(message => html`<${Message} key=${message.position} message=${message} />`)}`}
  </section>`;
}

// ---- snapshots, forks, the summary, settings

export function Copies({ id, session, act }) {
  const [turn, again] = useState(0);
  const { value: snapshots, error } = useAnswer(() => pages(sessionPath(id, "/snapshots"), { limit: 100 }, "snapshots", 500), [session.head, turn]);
  const { value: summary } = useAnswer(async () => session.summary_to === null ? null : get(sessionPath(id, "/summary")), [session.head, turn]);
  const { value: relatives } = useAnswer(async () => {
    const sessions = await pages("/v1/sessions", { limit: 100 }, "sessions", 1_000), parents = [];
    for (let parent = originOf(session); parent && parents.length < 50; parent = originOf(parents[0])) {
      const known = await get(sessionPath(parent.id)).catch(() => null);
      if (!known) break;
      parents.unshift(known);
    }
    return { sessions, parents };
  }, [session.head]);
  const after = () => again(count => count + 1);
  const create = () => act({
    title: t("New snapshot"), text: t("It names this moment, #{n}. A full one outlives the session's expiry.", { n: session.head }), action: t("Create"),
    fields: [{ name: "name", label: t("Name") }, { name: "kind", label: t("Kind"), value: "ref", choices: ["ref", "full"] }],
    run: values => change("POST", sessionPath(id, "/snapshots"), { kind: values.kind, ...(values.name.trim() ? { name: values.name.trim() } : {}) }), onDone: after,
  });
  const restore = snapshot => act({
    title: t("Restore {name}", { name: snapshot.name || `#${snapshot.position}` }), text: t("A fork begins another session with it; a rewind takes this session back to it."), action: t("Restore"),
    fields: [{ name: "as", label: t("As"), value: "fork", choices: ["fork", "rewind"] }],
    run: values => change("POST", sessionPath(id, `/snapshots/${encodeURIComponent(snapshot.snapshot_id)}/restore`), { as: values.as }),
    onDone: answer => answer.session_id && answer.session_id !== id && go(to(answer.session_id)),
  });
  const remove = snapshot => act({
    title: t("Delete {name}", { name: snapshot.name || snapshot.snapshot_id }), text: t("The session stays as it is; the snapshot is gone at once."), action: t("Delete"), danger: true,
    run: () => change("DELETE", sessionPath(id, `/snapshots/${encodeURIComponent(snapshot.snapshot_id)}`)), onDone: after,
  });
  const compress = () => act({ title: t("Summarise closed loops"), text: t("A summary is the log's next commit. Nothing is removed."), action: t("Summarise"), run: () => change("POST", sessionPath(id, "/compress"), { mode: "sync" }), onDone: after });
  const fork = () => act({
    title: t("Fork"), text: t("Another session begins as this one was; they share the log up to there."), action: t("Fork"),
    fields: [{ name: "at", label: t("At position"), value: String(session.head) }, { name: "session_id", label: t("Its id; empty: generated") }, { name: "title", label: t("Title") }],
    run: values => change("POST", "/v1/sessions", { fork: { session_id: id, at: Number(values.at) || session.head }, ...(values.session_id ? { session_id: values.session_id } : {}), ...(values.title ? { title: values.title } : {}) }),
    onDone: answer => go(to(answer.session_id)),
  });
  const children = parent => (relatives?.sessions || []).filter(other => originOf(other)?.id === parent && other.session_id !== parent);
  const node = (other, depth = 0) => html`<li key=${other.session_id}><a href=${to(other.session_id)} aria-current=${other.session_id === id ? "true" : undefined}>${other.title || other.session_id}</a>
    <span class="note">${other.title && html`<code>${other.session_id}</code> `}${other.forked_at ? t("forked at #{n}", { n: other.forked_at }) : originOf(other) ? t("works for the call {ref}", { ref: originOf(other).ref }) : t("{n} messages", { n: number(other.messages) })}</span>
    ${depth < 8 && children(other.session_id).length > 0 && html`<ul>${children(other.session_id).map(child => node(child, depth + 1))}</ul>`}</li>`;
  const root = relatives?.parents[0] || session;
  return html`<div class="columns">
    <section class="card"><div class="bar"><h2>${t("Snapshots")}</h2>${!about.read_only && html`<button type="button" class="primary" onClick=${create}>${t("New snapshot")}</button>`}</div>
      <${Failure} error=${error} />
      ${snapshots && !snapshots.length && html`<${Empty}>${t("No snapshots yet")}</${Empty}>`}
      ${(snapshots || []).map(snapshot => html`<article class="entry" key=${snapshot.snapshot_id}><p><strong>${snapshot.name || t("(unnamed)")}</strong> <${Chip}>${snapshot.kind}</${Chip}> <a href=${to(id, "messages", { at: snapshot.position })}>#${snapshot.position}</a> <time class="note">${time(snapshot.created_at)}</time>
        ${!about.read_only && html` <button type="button" class="quiet" onClick=${() => restore(snapshot)}>${t("Restore")}</button> <button type="button" class="quiet" onClick=${() => remove(snapshot)}>${t("Delete")}</button>`}</p>
        ${snapshot.metadata && html`<${Json} value=${snapshot.metadata} open=${1} />`}</article>`)}
      <div class="bar"><h2>${t("Forks and agents' sessions")}</h2>${!about.read_only && html`<button type="button" class="primary" onClick=${fork}>${t("Fork")}</button>`}</div>
      ${relatives && html`<ul class="tree">${node(root)}</ul>`}
    </section>
    <section class="card"><div class="bar"><h2>${t("Summary")}</h2>${!about.read_only && html`<button type="button" onClick=${compress}>${t("Summarise closed loops")}</button>`}</div>
      ${summary ? html`<p class="facts"><span>${t("loops {first} to {last}", { first: summary.first_loop, last: summary.last_loop })}</span><span>${t("{n} tokens for {all}", { n: number(summary.tokens), all: number(summary.source_tokens) })}</span><span>${summary.summariser}</span></p><${Long} text=${summary.text} />
        ${summary.facts.length > 0 && html`<h3>${t("Values")}</h3><p class="values">${summary.facts.map((fact, index) => html`<a key=${index} href=${to(id, "messages", { at: fact.position })}><code>${fact.value}</code></a> `)}</p>`}` : html`<${Empty}>${t("No summary yet")}</${Empty}>`}
      <h2>${t("Settings of the session")}</h2><${Json} value=${{ policy: session.policy, model: session.model, recall: session.recall, metadata: session.metadata, ttl_days: session.ttl_days, expires_at: session.expires_at, bootstrap: session.bootstrap }} open=${3} />
    </section></div>`;
}
