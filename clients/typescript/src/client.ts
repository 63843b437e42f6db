/**
 * Client of Turnlog's HTTP API.
 *
 *     const log = new Turnlog("https://…", { sign: signer({ region: "eu-central-1", credentials }) });
 *     const session = log.session("support-42");
 *     await session.append([{ role: "user", content: "Where is my order?" }]);
 *     const window = await session.context({ format: "openai_chat", budget: 8000 });
 *
 * A call is tried again after a failure of the network, 429, 502, 503 and 504. A call that writes has an idempotency key, so a
 * repeated one has one effect. An append that a function on AWS could not take is uploaded first, by an address that the service
 * signs; an answer too large to send is fetched from the address that comes in its place.
 */
import { createHash } from "node:crypto";

import type { components, operations } from "./schema.js";
import { eventBytes } from "./sizes.js";

export type Schemas = components["schemas"];
export type Operations = operations;
export type StoredMessage = Schemas["StoredMessage"];
export type Window = Schemas["WindowAnswer"];
export type Appended = Schemas["Appended"];
export type Session = Schemas["Session"];
type QueryOf<Name extends keyof Operations> = Operations[Name] extends { parameters: { query?: infer Fields } } ? NonNullable<Fields> : never;

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
    /** Milliseconds after which the service takes the call again, as its `Retry-After` says; 0 without one. */
    readonly retryAfterMs = 0,
  ) {
    super(message);
  }
}

const RETRIED = new Set([429, 502, 503, 504]);
const SEE_OTHER = 303;
/** Longest pause between two tries. After a longer `Retry-After` there is no second try. */
const MAX_WAIT_MS = 20_000;
/** Bytes that a request may have at a service on AWS: of the body, and of the body in a function's event, with escapes. */
const MAX_BODY_BYTES = 4.25 * 1024 * 1024;
const MAX_EVENT_BYTES = 6_225_920;
type Query = Record<string, string | number | boolean | undefined | null>;
/** An answer, read to its end. */
interface Answer {
  status: number;
  headers: Headers;
  text: string;
}
/** Options of a call. */
export interface CallOptions {
  /** Key of a call that writes, with which it may be repeated; made when left out. */
  idempotencyKey?: string;
  /** Ends the call, also between two tries: it throws the signal's reason. The service may have taken the call by then. */
  signal?: AbortSignal;
}
interface Call extends CallOptions {
  query?: Query;
  body?: unknown;
  /** Whether the route takes a reference to an uploaded body. */
  mayUpload?: boolean;
}

export class Turnlog {
  readonly #base: URL;
  readonly #options: Options;

  constructor(url: string, options: Options = {}) {
    this.#base = new URL(url.endsWith("/") ? url : `${url}/`);
    // `fetch` would refuse it later, and say it in its error.
    if (this.#base.username || this.#base.password) throw new TypeError("the URL has a user or password: give a token or headers");
    this.#options = options;
  }

  /** Return a session by its id. Makes no request. */
  session(id: string): SessionClient {
    return new SessionClient(this, id);
  }

  /** Create a session. `settings` may name its id; one that exists is a `TurnlogError` with status 409. */
  async create(settings: Schemas["CreateSession"], options: CallOptions = {}): Promise<Session> {
    return this.call<Session>("POST", "v1/sessions", { body: settings, ...options });
  }

  /** Yield the caller's sessions, newest activity first, page by page. */
  async *sessions(
    query: Omit<QueryOf<"list_sessions">, "cursor"> = {},
    options: CallOptions = {},
  ): AsyncGenerator<Schemas["SessionPage"]["sessions"][number]> {
    let cursor: string | null | undefined;
    do {
      const page: Schemas["SessionPage"] = await this.call("GET", "v1/sessions", { ...options, query: { ...query, cursor } });
      yield* page.sessions;
      cursor = page.next_cursor;
    } while (cursor);
  }

  /** Send a request to a path of the API and return its JSON. Throws a `TurnlogError` for any other answer than a success. */
  async call<Result>(method: string, path: string, call: Call = {}): Promise<Result> {
    const url = new URL(path, this.#base);
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = { accept: "application/json", ...this.#options.headers };
    if (this.#options.token) headers["authorization"] = `Bearer ${this.#options.token}`;
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    if (body !== undefined) headers["content-type"] = "application/json";
    if (method !== "GET") headers["idempotency-key"] = call.idempotencyKey ?? crypto.randomUUID();
    const request = { method, url, headers, body };
    const isUploaded = call.mayUpload && body !== undefined && isTooLarge(body);
    const answer = await this.#tried(isUploaded ? await this.#uploaded(request, body, call.signal) : request, call.signal);
    return resultOf<Result>(answer.status === SEE_OTHER ? await this.#stored(answer, call.signal) : answer);
  }

  /** Upload a body, and return the request with a reference to it; the request itself where the service takes it as it is. */
  async #uploaded(request: Request, body: string, signal?: AbortSignal): Promise<Request> {
    const upload = createHash("sha256").update(body).digest("hex");
    const size = Buffer.byteLength(body);
    const asked = await this.#tried({ ...request, body: JSON.stringify({ upload, size_bytes: size }) }, signal);
    const place = resultOf<{ url: string | null }>(asked).url;
    if (place === null) return request;
    const stored = await this.#tried({ method: "PUT", url: new URL(place), headers: {}, body }, signal, false);
    if (!isSuccess(stored)) throw new TurnlogError(stored.status, "upload_failed", `the storage answered ${stored.status} to an upload`);
    return { ...request, body: JSON.stringify({ upload }) };
  }

  /** Fetch an answer that was too large to send. */
  async #stored(answer: Answer, signal?: AbortSignal): Promise<Answer> {
    const place = documentOf(answer) as { url: string; status: number };
    if (!URL.canParse(place.url)) throw notTurnlog(answer);
    const stored = await this.#tried({ method: "GET", url: new URL(place.url), headers: {}, body: undefined }, signal, false);
    if (!isSuccess(stored)) throw new TurnlogError(stored.status, "download_failed", `the storage answered ${stored.status} to a download`);
    return { ...stored, status: place.status };
  }

  /** Send a request until it is answered. One to an address that is signed already takes no signature. */
  async #tried(request: Request, signal?: AbortSignal, isSigned = true): Promise<Answer> {
    const { maxTries = 5, pauseMs = 200, timeoutMs = 30_000 } = this.#options;
    const sign = isSigned ? this.#options.sign : undefined;
    const send = this.#options.fetch ?? fetch;
    for (let left = maxTries - 1, pause = pauseMs; ; left -= 1, pause *= 2) {
      let wait = Math.min(pause, MAX_WAIT_MS) * (0.5 + Math.random() / 2);
      const headers = inUtf8({ ...request.headers, ...(await sign?.(request)) });
      const signals = [AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])];
      const options: RequestInit = { method: request.method, headers, redirect: "manual", signal: AbortSignal.any(signals) };
      if (request.body !== undefined) options.body = request.body;
      try {
        const response = await send(request.url, options);
        const answer = { status: response.status, headers: response.headers, text: await response.text() };
        wait = Math.max(wait, retryAfterMs(answer));
        if (!RETRIED.has(answer.status) || left <= 0 || wait > MAX_WAIT_MS) return answer;
      } catch (error) {
        signal?.throwIfAborted();
        if (left <= 0) throw unreachable(request, error);
      }
      await paused(wait, signal);
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

  async info(options: CallOptions = {}): Promise<Session> {
    return this.log.call<Session>("GET", this.#path, options);
  }

  /** Create the session, or return the one that exists; settings are of the first call alone. */
  async create(settings: Omit<Schemas["CreateSession"], "session_id"> = {}, options: CallOptions = {}): Promise<Session> {
    try {
      return await this.log.create({ ...settings, session_id: this.id }, options);
    } catch (error) {
      if (error instanceof TurnlogError && error.code === "session_exists") return this.info(options);
      throw error;
    }
  }

  /** Append 1 to 25 messages in one commit, 32 MiB at most: all of them are stored, or none. */
  async append(
    messages: readonly Message[],
    fields: Omit<Schemas["AppendMessages"], "messages"> = {},
    options: CallOptions = {},
  ): Promise<Appended> {
    return this.log.call<Appended>("POST", `${this.#path}/messages`, { body: { ...fields, messages }, mayUpload: true, ...options });
  }

  /** Build the window for the next model call. */
  async context(request: Schemas["BuildContext"] = {}, options: CallOptions = {}): Promise<Window> {
    return this.log.call<Window>("POST", `${this.#path}/context`, { ...options, body: request });
  }

  /** Yield the messages, oldest first unless `order` is `desc`, page by page. */
  async *messages(
    query: Omit<QueryOf<"read_messages">, "after" | "before" | "in_view"> & { in_view?: boolean } = {},
    options: CallOptions = {},
  ): AsyncGenerator<StoredMessage> {
    let place: number | null = null;
    do {
      const from: Query = query.order === "desc" ? { before: place } : { after: place };
      const page: Schemas["MessagePage"] = await this.log.call("GET", `${this.#path}/messages`, {
        ...options,
        query: { ...query, ...from },
      });
      yield* page.messages;
      place = page.next;
    } while (place !== null);
  }
}

function isTooLarge(body: string): boolean {
  return Buffer.byteLength(body) > MAX_BODY_BYTES || eventBytes(body) > MAX_EVENT_BYTES;
}

/** Wait, unless the signal ends the call. */
function paused(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** Return headers whose values are sent as UTF-8: `fetch` sends one byte a character. Throws a `TypeError` for an end of line. */
function inUtf8(headers: Record<string, string>): Headers {
  const sent = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (/[\0\r\n]/.test(value.trim())) throw new TypeError(`the header ${name} has an end of line or a null character`);
    sent.set(name, Buffer.from(value).toString("latin1"));
  }
  return sent;
}

/** Return the error of a call without an answer. Its `problem` has the key with which the call may be repeated. */
function unreachable({ url, headers }: Request, error: unknown): TurnlogError {
  // `fetch` says why it has failed in the cause of its error: by a code alone where it has tried several addresses.
  const cause = ((error instanceof Error && error.cause) || error) as { message?: string; code?: string };
  const reason = cause.message || cause.code || String(error);
  const key = headers["idempotency-key"];
  const problem = key === undefined ? {} : { idempotency_key: key };
  return new TurnlogError(0, "unreachable", `can't reach ${url.origin}: ${reason}`, problem);
}

function isSuccess({ status }: Answer): boolean {
  return status >= 200 && status < 300;
}

/** Return the document of an answer. Throws a `TurnlogError` for an answer of something else, such as a proxy's page. */
function documentOf(answer: Answer): Record<string, unknown> {
  try {
    const document: unknown = JSON.parse(answer.text);
    if (typeof document === "object" && document !== null && !Array.isArray(document)) return document as Record<string, unknown>;
  } catch {
    // It is no JSON.
  }
  throw notTurnlog(answer);
}

function notTurnlog(answer: Answer): TurnlogError {
  const message = `the service answered ${answer.status}, but not as Turnlog does`;
  return new TurnlogError(answer.status, "not_turnlog", message, {}, retryAfterMs(answer));
}

/** Return the document of a success. Throws a `TurnlogError` for any other answer. */
function resultOf<Result>(answer: Answer): Result {
  const problem = documentOf(answer);
  if (isSuccess(answer)) return problem as Result;
  const code = typeof problem["code"] === "string" ? problem["code"] : "not_turnlog";
  const detail = typeof problem["detail"] === "string" ? problem["detail"] : `the service answered ${answer.status}`;
  throw new TurnlogError(answer.status, code, detail, problem, retryAfterMs(answer));
}

/** Return the milliseconds of `Retry-After`, which is a number of seconds or a date; 0 without one. */
function retryAfterMs({ headers }: Answer): number {
  const text = headers.get("retry-after") ?? "";
  const wait = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Math.max(0, wait || 0);
}
