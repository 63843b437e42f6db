/** Bytes that an event of a Lambda function has with an escape: quotes, backslashes, ends of lines, tabs. */
const ESCAPED = new Set([0x22, 0x5c, 0x0a, 0x0d, 0x09]);

/** Return the bytes that a request's body takes in the event of a Lambda function, with escapes. */
export function eventBytes(body: string): number {
  const bytes = Buffer.from(body);
  let escapes = 0;
  for (const byte of bytes) if (ESCAPED.has(byte)) escapes += 1;
  return bytes.length + escapes;
}
