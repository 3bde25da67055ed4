/**
 * Errors as one line for people. Pure.
 *
 * Invariant: nothing that is shown has a stack, or more than one line.
 */
import { REQUEST_CANCELLED } from './protocol.ts';

/** There is no server to ask, with the reason. */
export class ServerUnavailable extends Error {}

const LINE_CHARACTERS_MAX = 300;

export function oneLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const line =
    text
      .split('\n')
      .map((part) => part.trim())
      .find((part) => part) ?? 'Something went wrong.';
  return line.length <= LINE_CHARACTERS_MAX ? line : `${line.slice(0, LINE_CHARACTERS_MAX - 1)}…`;
}

function codeOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
}

export function wasCancelled(error: unknown): boolean {
  return codeOf(error) === REQUEST_CANCELLED;
}

/** Answers that will never come, as vscode-jsonrpc says it of requests whose connection has ended. */
const CONNECTION_ENDED = new Set([-32097, -32096, -32099, -32098]);

/** Whether the connection ended before the answer. */
export function wasCutOff(error: unknown): boolean {
  const code = codeOf(error);
  return typeof code === 'number' && CONNECTION_ENDED.has(code);
}

/** What a program printed before it ended, as one line: the last one, without the name it begins with. */
export function lastLine(output: string): string | undefined {
  const lines = output
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line);
  return lines.pop()?.replace(/^qmlx-lsp: (error: )?/, '');
}
