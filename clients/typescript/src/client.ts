/**
 * Client of Turnlog's HTTP API.
 *
 *     const log = new Turnlog("https://…", { sign: signer({ region: "eu-central-1", credentials }) });
 *     const session = log.session("support-42");
 *     await session.append([{ role: "user", content: "Where is my order?" }]);
 *     const window = await session.context({ format: "openai_chat", budget: 8000 });
 *
 * A call is tried again after a failure of the network, 429, 502, 503 and 504. A call that writes has an idempotency key, so a
 * repeated one has one effect.
 */
import type { components, operations } from "./schema.js";

export type Schemas = components["schemas"];
export type Operations = operations;
export type StoredMessage = Schemas["StoredMessage"];
export type Window = Schemas["WindowAnswer"];
export type Appended = Schemas["Appended"];
export type Session = Schemas["Session"];

/** A message in a provider's format, as it is appended. */
export type Message = object;

/** A request before it is sent; a signer returns it with more headers. */
export interface Request {
  method: string;
  url: URL;
  headers: Record<string, string>;
  body: string | undefined;
}

export interface Options {
  /** Bearer token of `turnlog serve --token`, or of an authorizer. */
  token?: string;
  /** Adds the headers of a signature to each try; `signer` of `turnlog/aws` signs for IAM. */
  sign?: (request: Request) => Promise<Record<string, string>>;
  /** Tries of a call, 5 by default. */
  maxTries?: number;
  /** Milliseconds before the second try, 200 by default; each later pause is twice as long. */
  pauseMs?: number;
  /** Milliseconds that a try may take, 30,000 by default. */
  timeoutMs?: number;
  /** Headers of all requests, such as `X-Turnlog-User`. */
  headers?: Record<string, string>;
  fetch?: typeof fetch;
}

/** An answer of the service that is not a success. Switch on its `code`. */
export class TurnlogError extends Error {
  override readonly name = "TurnlogError";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problem: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

const RETRIED = new Set([429, 502, 503, 504]);
type Query = Record<string, string | number | boolean | undefined | null>;
interface Call {
  query?: Query;
  body?: unknown;
  /** Key of a call that writes; made when left out. */
  idempotencyKey?: string;
}

export class Turnlog {
  readonly #base: URL;
  readonly #options: Options;

  constructor(url: string, options: Options = {}) {
    this.#base = new URL(url.endsWith("/") ? url : `${url}/`);
    this.#options = options;
  }

  /** Return a session by its id. Makes no request. */
  session(id: string): SessionClient {
    return new SessionClient(this, id);
  }

  /** Create a session. `settings` may name its id; one that exists is a `TurnlogError` with status 409. */
  async create(settings: Schemas["CreateSession"], options: { idempotencyKey?: string } = {}): Promise<Session> {
    return this.call<Session>("POST", "v1/sessions", { body: settings, ...options });
  }

  /** Yield the caller's sessions, newest activity first, page by page. */
  async *sessions(query: { status?: "active" | "closed"; limit?: number } = {}): AsyncGenerator<Schemas["SessionPage"]["sessions"][number]> {
    let cursor: string | null | undefined;
    do {
      const page: Schemas["SessionPage"] = await this.call("GET", "v1/sessions", { query: { ...query, cursor } });
      yield* page.sessions;
      cursor = page.next_cursor;
    } while (cursor);
  }

  /** Send a request to a path of the API and return its JSON. Throws a `TurnlogError` for any other answer than a success. */
  async call<Answer>(method: string, path: string, call: Call = {}): Promise<Answer> {
    const url = new URL(path, this.#base);
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = { accept: "application/json", ...this.#options.headers };
    if (this.#options.token) headers["authorization"] = `Bearer ${this.#options.token}`;
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    if (body !== undefined) headers["content-type"] = "application/json";
    if (method !== "GET") headers["idempotency-key"] = call.idempotencyKey ?? crypto.randomUUID();
    const response = await this.#tried({ method, url, headers, body });
    const text = await response.text();
    if (response.ok) return JSON.parse(text) as Answer;
    throw errorOf(response.status, text);
  }

  async #tried(request: Request): Promise<Response> {
    const { maxTries = 5, pauseMs = 200, timeoutMs = 30_000, sign } = this.#options;
    const send = this.#options.fetch ?? fetch;
    for (let left = maxTries - 1, pause = pauseMs; ; left -= 1, pause *= 2) {
      try {
        const signed = sign ? { ...request.headers, ...(await sign(request)) } : request.headers;
        const options: RequestInit = { method: request.method, headers: signed, signal: AbortSignal.timeout(timeoutMs) };
        if (request.body !== undefined) options.body = request.body;
        const response = await send(request.url, options);
        if (!RETRIED.has(response.status) || left <= 0) return response;
        const after = Number(response.headers.get("retry-after") ?? 0) * 1000;
        await response.arrayBuffer();
        await sleep(Math.max(after, pause * (0.5 + Math.random() / 2)));
      } catch (error) {
        if (left <= 0) throw new TurnlogError(0, "unreachable", `can't reach ${request.url.origin}: ${String(error)}`);
        await sleep(pause * (0.5 + Math.random() / 2));
      }
    }
  }
}

/** A session of the log. */
export class SessionClient {
  readonly #path: string;

  constructor(
    readonly log: Turnlog,
    readonly id: string,
  ) {
    // A gateway may decode a path once before it looks for the route.
    this.#path = `v1/sessions/${encodeURIComponent(id.replaceAll("/", "%2F"))}`;
  }

  async info(): Promise<Session> {
    return this.log.call<Session>("GET", this.#path);
  }

  /** Create the session, or return the one that exists; settings are of the first call alone. */
  async create(settings: Omit<Schemas["CreateSession"], "session_id"> = {}): Promise<Session> {
    try {
      return await this.log.create({ ...settings, session_id: this.id });
    } catch (error) {
      if (error instanceof TurnlogError && error.code === "session_exists") return this.info();
      throw error;
    }
  }

  /** Append 1 to 25 messages in one commit: all of them are stored, or none. */
  async append(
    messages: readonly Message[],
    fields: Omit<Schemas["AppendMessages"], "messages"> = {},
    options: { idempotencyKey?: string } = {},
  ): Promise<Appended> {
    return this.log.call<Appended>("POST", `${this.#path}/messages`, { body: { ...fields, messages }, ...options });
  }

  /** Build the window for the next model call. */
  async context(request: Schemas["BuildContext"] = {}): Promise<Window> {
    return this.log.call<Window>("POST", `${this.#path}/context`, { body: request });
  }

  /** Yield the messages, oldest first unless `order` is `desc`, page by page. */
  async *messages(
    query: { order?: "asc" | "desc"; limit?: number; format?: string; in_view?: boolean } = {},
  ): AsyncGenerator<StoredMessage> {
    let place: number | null = null;
    do {
      const from: Query = query.order === "desc" ? { before: place } : { after: place };
      const page: Schemas["MessagePage"] = await this.log.call("GET", `${this.#path}/messages`, {
        query: { ...query, ...from },
      });
      yield* page.messages;
      place = page.next;
    } while (place !== null);
  }
}

function errorOf(status: number, text: string): TurnlogError {
  let problem: Record<string, unknown> = {};
  try {
    problem = JSON.parse(text) as Record<string, unknown>;
  } catch {
    // It is no answer of Turnlog: of a proxy, for instance.
  }
  const code = typeof problem["code"] === "string" ? problem["code"] : "not_turnlog";
  const detail = typeof problem["detail"] === "string" ? problem["detail"] : `the service answered ${status}`;
  return new TurnlogError(status, code, detail, problem);
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
