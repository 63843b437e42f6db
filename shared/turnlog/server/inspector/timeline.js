// The time line: every message of the log in a virtual list by position, with the other events between, and the loops beside it.

import { about, change, get, sessionPath } from "./api.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState, t, to, go, number, short, time, useKeys, useRedraw, Empty } from "./lib.js";
import { Json, Message } from "./messages.js";

const PAGE = 100, ESTIMATE = 96, BEYOND = 600;

// Heights of rows by position, with sums in a Fenwick tree: both changes and look-ups take a logarithm of the rows.
class Heights {
  constructor(count) { this.sizes = new Float64Array(0); this.tree = new Float64Array(1); this.grow(count); }
  grow(count) {
    if (count <= this.sizes.length) return;
    const sizes = new Float64Array(count).fill(ESTIMATE);
    sizes.set(this.sizes);
    this.sizes = sizes;
    this.tree = new Float64Array(count + 1);
    for (let index = 1; index <= count; index += 1) {
      this.tree[index] += sizes[index - 1];
      const parent = index + (index & -index);
      if (parent <= count) this.tree[parent] += this.tree[index];
    }
  }
  set(index, size) {
    const difference = size - this.sizes[index];
    if (Math.abs(difference) < 0.5) return 0;
    this.sizes[index] = size;
    for (let at = index + 1; at < this.tree.length; at += at & -at) this.tree[at] += difference;
    return difference;
  }
  before(index) {
    let sum = 0;
    for (let at = index; at > 0; at -= at & -at) sum += this.tree[at];
    return sum;
  }
  at(offset) {
    let index = 0, bit = 1;
    while (bit * 2 < this.tree.length) bit *= 2;
    for (; bit > 0; bit >>= 1) {
      if (index + bit < this.tree.length && this.tree[index + bit] <= offset) { index += bit; offset -= this.tree[index]; }
    }
    return Math.min(index, this.sizes.length - 1);
  }
  get total() { return this.before(this.sizes.length); }
}

// Messages and events of positions, read in pages as they are seen.
class Rows {
  constructor(id, onChange) { Object.assign(this, { id, onChange, messages: new Map(), events: new Map(), pages: new Map(), rewinds: new Map() }); }
  async need(page, head) {
    const last = Math.min((page + 1) * PAGE, head);
    if ((this.pages.get(page) ?? 0) >= last) return;
    this.pages.set(page, last);
    const after = page * PAGE;
    try {
      const [messages, events] = await Promise.all([this.messagesBetween(after, last + 1), this.eventsBetween(after, last + 1)]);
      for (const message of messages) this.messages.set(message.position, message);
      for (const event of events) this.events.set(Number(event.history_id), event);
      for (const event of events) if (event.metadata.to !== undefined) this.rewinds.set(Number(event.history_id), event.metadata.to);
      this.onChange(null);
    } catch (error) {
      this.pages.delete(page);
      this.onChange(error);
    }
  }
  forget() { this.pages.clear(); this.onChange(null); }
  async messagesBetween(after, before) {
    const messages = [];
    for (let next = after; next !== null;) {
      const page = await get(sessionPath(this.id, "/messages"), { after: next, before, limit: PAGE });
      messages.push(...page.messages);
      next = page.next;
    }
    return messages;
  }
  async eventsBetween(after, before) {
    const events = [];
    for (let next = before; next !== null && next > after + 1;) {
      const page = await get(sessionPath(this.id, "/history"), { before: next, limit: next - after - 1 });
      events.push(...page.entries);
      next = page.next;
    }
    return events;
  }
  isLoaded(position) { return (this.pages.get(Math.floor((position - 1) / PAGE)) ?? 0) >= position && (this.messages.has(position) || this.events.has(position)); }
  // A rewind at position r to t takes what is between out of view, until a later one brings it back.
  isInView(position, head) {
    const rewinds = [...this.rewinds].sort((one, other) => other[0] - one[0]);
    let end = head;
    for (const [at, to] of rewinds) {
      if (at > end) continue;
      if (position >= at) return true;
      if (position > to) return false;
      end = to;
    }
    return true;
  }
}

const QUIET = new Set(["message_added", "tool_call", "tool_result", "tool_recalled"]);

function EventRow({ event }) {
  const { position, ...metadata } = event.metadata;
  const details = Object.fromEntries(Object.entries(metadata).filter(([name, value]) => value !== null && !name.endsWith("state_keys")));
  const hasMore = event.diff !== null || Object.keys(details).length > 0;
  return html`<div class=${`event ${event.action}`}>
    <span class="position">#${event.history_id}</span> <strong>${t(event.action)}</strong>
    ${event.agent_id && html`<span class="note">${event.agent_id}</span>`}
    ${event.action === "rewind" && html`<span class="note">${t("back to #{n}", { n: event.metadata.to })}</span>`}
    <time class="note" datetime=${event.created_at}>${time(event.created_at)}</time>
    ${hasMore && html`<details><summary>${t("details")}</summary><${Json} value=${{ ...details, ...(event.diff !== null ? { diff: event.diff } : {}) }} open=${3} /></details>`}
  </div>`;
}

function warningsFor(rows, position) {
  for (let at = position; at > Math.max(0, position - 25); at -= 1) {
    const told = rows.events.get(at)?.metadata.warnings;
    if (told) return told.filter(warning => warning.position === position);
    if (at !== position && rows.events.has(at) && !QUIET.has(rows.events.get(at).action)) return [];
  }
  return [];
}

export function Timeline({ id, session, params, act }) {
  const redraw = useRedraw();
  const [error, fail] = useState(null);
  const place = useRef();
  const heights = useMemo(() => new Heights(session.head), []);
  const rows = useMemo(() => new Rows(id, problem => { fail(problem); redraw(); }), []);
  const scroll = useRef({ stick: !params.get("at"), goal: Number(params.get("at")) || null });
  const [selected, select] = useState(Number(params.get("at")) || null);
  heights.grow(session.head);
  const view = place.current ? { top: place.current.scrollTop, height: place.current.clientHeight } : { top: Infinity, height: 800 };
  const total = heights.total;
  const top = view.top === Infinity ? (scroll.current.goal ? heights.before(scroll.current.goal - 1) : Math.max(0, total - view.height)) : view.top;
  const first = heights.at(Math.max(0, top - BEYOND));
  const last = heights.at(Math.min(total - 1, top + view.height + BEYOND));
  const positions = [];
  for (let index = first; index <= last; index += 1) positions.push(index + 1);
  useEffect(() => {
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) rows.need(page, session.head);
  }, [first, last, session.head, rows.pages.size]);
  useLayoutEffect(() => {
    const list = place.current, anchor = list.scrollTop;
    let above = 0;
    for (const row of list.querySelectorAll("[data-row]")) {
      const index = Number(row.dataset.row) - 1;
      const isAbove = heights.before(index) + heights.sizes[index] <= anchor;
      const difference = heights.set(index, row.dataset.loaded ? row.offsetHeight : heights.sizes[index]);
      if (isAbove) above += difference;
    }
    const { goal, stick } = scroll.current;
    if (goal) {
      list.scrollTop = heights.before(goal - 1) - 8;
      if (rows.isLoaded(goal)) scroll.current.goal = null;
    } else if (stick) list.scrollTop = heights.total;
    else if (above) list.scrollTop = anchor + above;
    scroll.current.left = list.scrollTop;
    if (Math.abs(heights.total - total) > 0.5 || (goal && view.top !== list.scrollTop)) redraw();
  });
  const onScroll = event => {
    const list = event.currentTarget; // the event may come when the view has gone, and its reference with it
    if (Math.abs(list.scrollTop - scroll.current.left) < 1.5) return redraw(); // we scrolled, not the reader
    scroll.current.stick = list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
    redraw();
  };
  const reach = position => {
    scroll.current = { stick: false, goal: position };
    select(position);
    go(to(id, "messages", { at: position }), true);
    redraw();
  };
  useEffect(() => {
    const at = Number(params.get("at"));
    if (at && at !== selected) reach(at);
  }, [params.get("at")]);
  const step = by => {
    let position = (selected ?? (by > 0 ? first : last + 1)) + by;
    while (position > 0 && position <= session.head && rows.isLoaded(position) && !rows.messages.has(position)) position += by;
    if (position > 0 && position <= session.head) reach(position);
  };
  useKeys({ ArrowDown: () => step(1), ArrowUp: () => step(-1), j: () => step(1), k: () => step(-1) });
  const actions = message => html`
    <a class="quiet button" href=${to(id, "window", { at: message.position })}>${t("window")}</a>
    ${!about.read_only && html`<button type="button" class="quiet" aria-label=${t("More for message {n}", { n: message.position })} onClick=${() => act(menu(id, message, session, () => rows.forget()))}>⋯</button>`}`;
  return html`<div class="timeline">
    <${Loops} id=${id} session=${session} now=${positions.find(position => heights.before(position) > top)} onReach=${reach} />
    <div class="scroller" ref=${place} onScroll=${onScroll} tabindex="0" role="region" aria-label=${t("Messages")}>
      <div class="canvas" style=${{ height: `${heights.total}px` }}>
        ${positions.map(position => {
          const message = rows.messages.get(position), event = rows.events.get(position), loaded = message || event;
          return html`<div key=${position} data-row=${position} data-loaded=${loaded ? "yes" : undefined} class="row" style=${{ top: `${heights.before(position - 1)}px` }}>
            ${message
              ? html`<${Message} message=${message} warnings=${warningsFor(rows, position)} usage=${event?.metadata.usage} faded=${!rows.isInView(position, session.head)} selected=${position === selected} actions=${actions(message)} />`
              : event ? html`<${EventRow} event=${event} />` : html`<div class="ghost" aria-hidden="true"></div>`}
          </div>`;
        })}
      </div>
      ${!session.messages && html`<${Empty}>${t("No messages yet")}</${Empty}>`}
    </div>
    ${error && html`<p class="failure" role="alert">${error.message}</p>`}
  </div>`;
}

// What may be done at a message; each asks before it does it.
function menu(id, message, session, onChange) {
  const { position } = message;
  return {
    title: t("Message #{n}: what to do?", { n: position }),
    choices: [
      {
        title: t("Rewind to here"), text: t("What came after leaves the view. It stays in the log, so a later rewind can bring it back."), action: t("Rewind"),
        run: () => change("POST", sessionPath(id, "/rewind"), { to: position, if_head: session.head }), onDone: onChange,
      },
      {
        title: t("Fork from here"), text: t("Another session begins as this one was; they share the log up to there."), action: t("Fork"),
        fields: [{ name: "title", label: t("Title") }],
        run: values => change("POST", "/v1/sessions", { fork: { session_id: id, at: position }, ...(values.title ? { title: values.title } : {}) }),
        onDone: answer => go(to(answer.session_id)),
      },
      {
        title: t("Redact this message"), text: t("A redaction removes what this message says, for good. Its place, role and calls stay."), action: t("Redact"), danger: true,
        fields: [{ name: "confirm", label: t("To redact, type the position {n}", { n: position }), required: true }],
        run: async values => {
          if (values.confirm.trim() !== String(position)) throw new Error(t("The position is not {n}: nothing was redacted", { n: position }));
          return change("POST", sessionPath(id, `/messages/${position}/redact`));
        },
        onDone: onChange,
      },
    ],
  };
}

function Loops({ id, session, now, onReach }) {
  const [loops, set] = useState([]);
  const [next, more] = useState(undefined);
  const read = async before => {
    const page = await get(sessionPath(id, "/loops"), { limit: 100, before });
    set(known => {
      const numbers = new Set(page.loops.map(loop => loop.loop));
      return [...known.filter(loop => !numbers.has(loop.loop) && loop.loop <= session.loops), ...page.loops].sort((one, other) => one.loop - other.loop);
    });
    if (before || next === undefined) more(page.next);
  };
  useEffect(() => { read().catch(() => {}); }, [session.head]);
  return html`<nav class="outline" aria-label=${t("Run loops")}>
    <h2>${t("Run loops")} <span class="note">${number(session.loops)}</span></h2>
    ${next && html`<button type="button" class="more" onClick=${() => read(next)}>${t("Show earlier loops")}</button>`}
    <ol>${loops.map(loop => html`<li key=${loop.loop}><button type="button" aria-current=${now >= loop.first && now <= loop.last ? "true" : undefined} onClick=${() => onReach(loop.first)}>
      <span class="loop">${loop.loop}</span><span class="said" dir="auto">${(loop.user_message || loop.reply || t("(no text)")).slice(0, 120)}</span>
      <span class="note">${loop.status !== "closed" && html`<em>${t(loop.status)}</em> `}${loop.tool_calls.length > 0 && html`${t("{n} calls", { n: loop.tool_calls.length })} · `}${short(loop.tokens)}</span></button>
      ${loop.nested.map(inner => html`<button type="button" key=${inner.first} class="inner" aria-current=${now >= inner.first && now <= inner.last ? "true" : undefined} title=${inner.user_message} onClick=${() => onReach(inner.first)}>
        <span class="loop">↳</span><span class="said" dir="auto">${inner.agent_id}: ${(inner.user_message || t("(no text)")).slice(0, 80)}</span></button>`)}</li>`)}</ol>
  </nav>`;
}
