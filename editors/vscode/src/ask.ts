/**
 * `qmlx/ask`: a question, answered while it is read, with its text as it comes.
 *
 * Invariant: what has been given to `onText` is a beginning of the answer's text, in order.
 */
import { randomUUID } from 'node:crypto';
import type * as vscode from 'vscode';
import type { Sink } from './assist.ts';
import { ASK, type AskResult, type Place } from './protocol.ts';
import type { Server } from './server.ts';

/** Raises ServerUnavailable, or the server's error: cancelled, it is `REQUEST_CANCELLED`. */
export async function ask(
  server: Server,
  text: string,
  place: Place,
  sink: Sink,
  cancel: vscode.CancellationToken,
): Promise<AskResult> {
  const partialResultToken = randomUUID();
  const workDoneToken = randomUUID();
  const listening = await Promise.all([
    server.onProgress(partialResultToken, (value) => {
      sink.onText(value.delta ?? '');
    }),
    server.onProgress(workDoneToken, (value) => {
      if (value.kind !== 'end' && value.message) {
        sink.onStep(value.message);
      }
    }),
  ]);
  const { uri, range, root } = place;
  const about = {
    ...(uri === undefined ? {} : { textDocument: { uri } }),
    ...(uri === undefined || range === undefined ? {} : { range }),
    ...(root === undefined ? {} : { root }),
  };
  try {
    return await server.request<AskResult>(ASK, { text, ...about, workDoneToken, partialResultToken }, cancel);
  } finally {
    for (const one of listening) {
      one.dispose();
    }
  }
}
