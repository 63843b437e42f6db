// Calls of the HTTP API that this page comes from. The token stays in this tab; session ids stay in the address's fragment.

const TOKEN = "turnlog-token";
let token = read(TOKEN);
export const about = { version: "", read_only: false, where: "", tenant: null, user: null };
export const counts = { requests: 0 };

export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || `HTTP ${status}`);
    this.status = status;
    this.code = document.code || "";
    this.document = document;
  }
}

// A number that JavaScript would write in other digits, such as one beyond 2^53 or 1.0: it is written as it came.
class Exact extends Number {
  #source;
  constructor(source) { super(source); this.#source = source; }
  toString() { return this.#source; }
  toJSON() { return JSON.rawJSON(this.#source); }
}

// A browser that does not tell the source of a number has only its value.
export const parse = text => JSON.parse(text, (_, value, { source } = {}) =>
  typeof value === "number" && source && source !== String(value) ? new Exact(source) : value);

function read(name) {
  try { return sessionStorage.getItem(name); } catch { return null; }
}

export function setToken(value) {
  token = value;
  try { sessionStorage.setItem(TOKEN, value); } catch { /* a browser without storage asks again */ }
}

// `turnlog inspect` puts the token into the fragment, which no server and no log sees.
const given = /^#token=([\w-]+)$/.exec(location.hash);
if (given) {
  setToken(given[1]);
  history.replaceState(null, "", location.pathname);
}

export const hasToken = () => Boolean(token);

// Values are sent as UTF-8: `fetch` sends one byte a character, and refuses others.
function identity() {
  const values = { Authorization: token && `Bearer ${token}`, "X-Turnlog-Tenant": about.tenant, "X-Turnlog-User": about.user };
  const present = Object.entries(values).filter(([, value]) => value);
  return Object.fromEntries(present.map(([name, value]) => [name, String.fromCharCode(...new TextEncoder().encode(value))]));
}

export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, "0")).join("");
}

// A server works on so much content at once: with few requests of ours under way none is refused for it.
const MOST_AT_ONCE = 3, BUSY_TRIES = 6;
const waiting = [];
let underWay = 0;

async function inTurn(work) {
  if (underWay >= MOST_AT_ONCE) await new Promise(resolve => waiting.push(resolve));
  else underWay += 1;
  try { return await work(); } finally {
    const next = waiting.shift();
    if (next) next();
    else underWay -= 1;
  }
}

export async function send(method, path, { query, body, key, type } = {}) {
  counts.requests += 1;
  const parameters = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const target = parameters.length ? `${path}?${new URLSearchParams(parameters)}` : path;
  const headers = identity();
  if (body !== undefined) headers["Content-Type"] = type || "application/json";
  if (key) headers["Idempotency-Key"] = key;
  return fetch(target, { method, headers, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body) });
}

async function call(method, path, options) {
  let answer, text;
  for (let tries = 0; tries < BUSY_TRIES; tries += 1) {
    try {
      [answer, text] = await inTurn(async () => {
        const response = await send(method, path, options);
        return [response, await response.text()];
      });
    } catch {
      throw new Problem(0, { detail: "the server does not answer", code: "unreachable" });
    }
    if (answer.status !== 503) break;
    await new Promise(resolve => setTimeout(resolve, 1000 * (Number(answer.headers.get("Retry-After")) || 1)));
  }
  let document = {};
  try { document = parse(text); } catch { document = { detail: text.slice(0, 200) }; }
  if (!answer.ok) {
    if (answer.status === 401) dispatchEvent(new Event("turnlog-locked"));
    throw new Problem(answer.status, document);
  }
  return document;
}

export const get = (path, query) => call("GET", path, { query });
export const ask = (path, body) => call("POST", path, { body });
export const change = (method, path, body) => call(method, path, { body, key: newKey() });
// A gateway decodes a path once, so the slash of an id is encoded twice.
export const sessionPath = (id, rest = "") => `/v1/sessions/${encodeURIComponent(id.replaceAll("/", "%2F"))}${rest}`;

export async function load() {
  Object.assign(about, await get("/inspector/about.json"));
}

export async function pages(path, query, field, limit) {
  const rows = [];
  let cursor;
  do {
    const page = await get(path, { ...query, cursor });
    rows.push(...page[field]);
    cursor = page.next_cursor;
  } while (cursor && rows.length < limit);
  return rows;
}
