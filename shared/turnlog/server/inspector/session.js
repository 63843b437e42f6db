// A session's frame: its head, its tabs, and the poll that keeps it live.

import { about, change, get, sessionPath } from "./api.js";
import { html, plain, useEffect, useRef, useState, t, to, go, originOf, number, short, ago, time, useKeys, usePoll, Failure, Waiting, Chip, Confirm, Dialog, tell } from "./lib.js";
import { Timeline } from "./timeline.js";
import { Windows } from "./windows.js";
import { Compare, Copies, Find, History, State } from "./aside.js";

const TABS = [
  ["messages", "Messages", Timeline], ["window", "Windows", Windows], ["state", "State", State], ["history", "History", History],
  ["find", "Find", Find], ["compare", "Compare", Compare], ["copies", "Snapshots and forks", Copies],
];

export function Session({ id, tab, params }) {
  const [session, set] = useState(null);
  const [error, fail] = useState(null);
  const [asked, askFor] = useState(null);
  const head = useRef(0);
  const read = async () => {
    try {
      const answer = await get(sessionPath(id));
      if (answer.head !== head.current || !session) set(answer);
      head.current = answer.head;
      fail(null);
    } catch (problem) {
      // What is erased leaves the page too.
      if (problem.status === 404) set(null);
      fail(problem);
    }
  };
  const isMissing = error?.status === 404;
  useEffect(() => { read(); }, []);
  usePoll(read, isMissing ? 10 : 1, [isMissing]);
  useEffect(() => { document.title = plain(`${session?.title || id} · Turnlog`); }, [session]);
  useKeys(Object.fromEntries(TABS.map(([name], index) => [String(index + 1), () => go(to(id, name))])));
  if (!session) return html`<main id="main" tabindex="-1"><${Failure} error=${error} /><${Waiting} when=${!error} /></main>`;
  const origin = originOf(session);
  const lease = session.lease && new Date(session.lease.expires_at) > Date.now() ? session.lease : null;
  const [name, label, View] = TABS.find(([name]) => name === tab) || TABS[0];
  const at = Number(params.get("at"));
  const notes = [name !== tab && t("There is no view “{name}”; this is “{shown}”.", { name: tab, shown: t(label) }),
    at > session.head && t("There is no #{n}; the log ends at #{head}.", { n: at, head: session.head })];
  // `act` opens a dialog that asks, then tells what was done and reads the session again.
  const act = dialog => askFor({
    ...dialog,
    onDone: answer => { tell(t("Done")); dialog.onDone?.(answer); read(); },
  });
  const rename = () => act({
    title: t("Rename"), text: t("The change is a commit of the log; it is in the history."), action: t("Rename"),
    fields: [{ name: "title", label: t("Title"), value: session.title || "" }],
    run: values => change("PATCH", sessionPath(id), { title: values.title || null }),
  });
  return html`<main id="main" class=${`session tab-${tab}`} tabindex="-1">
    <header class="sessionhead">
      <h1><bdi>${session.title || id}</bdi>${!about.read_only && html`<button type="button" class="quiet" aria-label=${t("Rename")} title=${t("Rename")} onClick=${rename}>✎</button>`}</h1>
      <p class="facts">${session.title && html`<code>${id}</code>`}
        <${Chip} kind=${session.status === "active" ? "good" : ""}>${t(session.status)}</${Chip}>
        <span>${t("{n} messages", { n: number(session.messages) })}</span><span>${t("{n} loops", { n: number(session.loops) })}</span>
        <span>${t("{n} tokens", { n: short(session.tokens) })}</span>
        <span class="wide">${t("policy")} <code>${typeof session.policy === "string" ? session.policy : t("own")}</code></span>
        ${session.model && html`<span class="wide">${session.model}</span>`}
        ${origin && html`<a href=${to(origin.id, "messages", { at: origin.at })} title=${origin.ref ? t("The call that this agent works for") : t("forked at #{n}", { n: origin.at })}>↳ ${origin.id} ${origin.ref || `#${origin.at}`}</a>`}
        ${lease && html`<${Chip} kind="warn" title=${t("until {time}, unless it appends before", { time: time(lease.expires_at) })}>${t("run by {holder}", { holder: lease.holder })}</${Chip}>`}
        <span class="live" title=${time(session.updated_at)}><i class=${error ? "off" : ""} aria-hidden="true"></i>${error ? t("not reached") : ago(session.updated_at)}</span></p>
      <nav class="tabs" aria-label=${t("Views of the session")}>
        ${TABS.map(([name, label], index) => html`<a key=${name} href=${to(id, name)} aria-current=${name === tab ? "page" : undefined} title=${`${index + 1}`}>${t(label)}</a>`)}
      </nav>
    </header>
    ${notes.filter(Boolean).map(note => html`<p key=${note} class="warning" role="status">${note}</p>`)}
    <${View} id=${id} session=${session} params=${params} act=${act} />
    ${asked && !asked.choices && html`<${Confirm} key=${asked.title} ...${asked} onClose=${() => askFor(null)} />`}
    ${asked?.choices && html`<${Dialog} title=${asked.title} onClose=${() => askFor(current => (current === asked ? null : current))}>
      <div class="choices">${asked.choices.map(choice => html`<button type="button" key=${choice.title} onClick=${() => act(choice)}>${choice.title}<small>${choice.text}</small></button>`)}</div></${Dialog}>`}
  </main>`;
}
