/**
 * A command of the server as a job: given, followed by its stream and its progress until its end.
 *
 * It must never decide where the text goes: that is the `Sink`'s, a document for commands and a chat for the chat.
 *
 * Invariant: a job that its user cancels is cancelled whether or not its id is known yet, by the token of its progress.
 */
import { randomUUID } from 'node:crypto';
import type * as vscode from 'vscode';
import { ServerUnavailable } from './errors.ts';
import type { CommandArgument } from './protocol.ts';
import { CUT_OFF, type Server } from './server.ts';

export interface Sink {
  onText(delta: string): void;
  /** Where it is: reading, waiting, applying. */
  onStep(message: string): void;
}

/** Milliseconds that the end of the progress may take behind the end of the stream. */
const END_MS = 15_000;

/** Runs it; returns how it ended in one line, such as `fix: applied`. Raises ServerUnavailable or the server's error. */
export async function runJob(
  server: Server,
  command: string,
  argument: CommandArgument,
  sink: Sink,
  cancel: vscode.CancellationToken,
): Promise<string> {
  const token = randomUUID();
  let ended: (message: string) => void = () => undefined;
  let failed: (why: Error) => void = () => undefined;
  const end = new Promise<string>((resolve, reject) => {
    ended = resolve;
    failed = reject;
  });
  end.catch(() => undefined); // it is awaited below, or what came first was an error already
  const progress = await server.onProgress(token, (value) => {
    if (value.kind === 'end') {
      ended(value.message ?? '');
    } else if (value.message) {
      sink.onStep(value.message);
    }
  });
  const cancelling = cancel.onCancellationRequested(() => {
    server.notify('window/workDoneProgress/cancel', { token });
  });
  const watching = server.onDidChangeState((state) => {
    if (state.phase !== 'running') {
      failed(new ServerUnavailable(CUT_OFF));
    }
  });
  try {
    const { jobId } = await server.execute<{ jobId: string }>(command, { ...argument, workDoneToken: token });
    if (cancel.isCancellationRequested) {
      server.notify('window/workDoneProgress/cancel', { token });
    }
    await server.jobs.follow(jobId, (delta) => {
      sink.onText(delta);
    });
    return await within(end, END_MS);
  } finally {
    progress.dispose();
    cancelling.dispose();
    watching.dispose();
  }
}

async function within(end: Promise<string>, limitMs: number): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => {
      resolve('');
    }, limitMs);
  });
  try {
    return await Promise.race([end, late]);
  } finally {
    clearTimeout(timer);
  }
}
