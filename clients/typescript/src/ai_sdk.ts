/**
 * Sessions for Vercel's AI SDK: load the window before a call, append what it said behind it.
 *
 *     await appendMessages(session, [{ role: "user", content: "Where is my order?" }]);
 *     const result = streamText({ model, tools, ...(await loadWindow(session, { budget: 8000 })), onFinish: onFinish(session) });
 */
import type { ModelMessage, UIMessage } from "ai";

import type { Appended, CallOptions, Message, Schemas, SessionClient } from "./client.js";
import { eventBytes } from "./sizes.js";

const FORMAT = "ai_sdk";
const MAX_MESSAGES = 25;
const MAX_BYTES = 4 * 1024 * 1024;

/** Return `system` and `messages` for `generateText` or `streamText`: the session's window, within its budget. */
export async function loadWindow(
  session: SessionClient,
  request: Omit<Schemas["BuildContext"], "format"> = {},
  options: CallOptions = {},
): Promise<{ system?: string; messages: ModelMessage[] }> {
  const window = await session.context({ ...request, format: FORMAT }, options);
  const messages = window.messages as unknown as ModelMessage[];
  return typeof window.system === "string" ? { system: window.system, messages } : { messages };
}

/**
 * Append model messages, or messages of the user interface (`useChat`), in commits of at most 25 messages and 4 MiB; a larger
 * message has one of its own. A repeated `key` appends them once.
 */
export async function appendMessages(
  session: SessionClient,
  messages: readonly (ModelMessage | UIMessage)[],
  options: { key?: string; signal?: AbortSignal } = {},
): Promise<Appended[]> {
  const { key, ...ending } = options;
  const appended: Appended[] = [];
  let start = 0;
  for (const part of parts(messages)) {
    const repeated = key === undefined ? {} : { idempotencyKey: `${key}-${start}` };
    appended.push(await session.append(part, { format: FORMAT }, { ...ending, ...repeated }));
    start += part.length;
  }
  return appended;
}

/** Yield messages as JSON has them, as many together as one append takes, by number and by bytes in a function's event. */
function* parts(messages: readonly object[]): Generator<Message[]> {
  let part: Message[] = [];
  let size = 0;
  for (const source of messages) {
    const message = plain(source) as Message;
    const bytes = eventBytes(JSON.stringify(message));
    if (part.length === MAX_MESSAGES || (part.length > 0 && size + bytes > MAX_BYTES)) {
      yield part;
      part = [];
      size = 0;
    }
    part.push(message);
    size += bytes;
  }
  if (part.length > 0) yield part;
}

/** Return a callback for `onFinish` of `streamText` that appends what the model and its tools said in all steps. */
export function onFinish(session: SessionClient, options: { key?: string } = {}) {
  return async (event: { readonly response: { readonly messages: readonly ModelMessage[] } }): Promise<void> => {
    await appendMessages(session, event.response.messages, options);
  };
}

/** Return a value as JSON has it: bytes in base64, addresses as texts. */
function plain(value: unknown): unknown {
  if (value instanceof ArrayBuffer) return plain(new Uint8Array(value));
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (value instanceof URL) return value.href;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, plain(item)]));
}
