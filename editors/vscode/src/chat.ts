/**
 * The chat participant `@qmlx`: questions, and the commands that work in a chat.
 *
 * It must never send what was said before: the conversation is the project's, lives in the server, and is the same in
 * the chat, the commands and every other editor.
 *
 * Invariant: an error is one line, and a reply that was cancelled is no error.
 */
import * as vscode from 'vscode';
import { ask } from './ask.ts';
import { runJob, type Sink } from './assist.ts';
import type { Parts } from './commands.ts';
import { newConversation, showConversation, statusLines } from './control.ts';
import { oneLine, wasCancelled } from './errors.ts';
import { kindOf } from './kinds.ts';
import { activePlace, rootOf } from './place.ts';
import type { Place } from './protocol.ts';
import { linesOf, mentioned, withMentions, type Reference } from './references.ts';
import { escaped, small } from './status.ts';

const ID = 'qmlx.chat';
const ASSISTING = new Set(['explain', 'fix', 'document', 'rewrite', 'tests']);

export function registerChat(parts: Parts, extension: vscode.Uri): { dispose(): unknown } {
  const participant = vscode.chat.createChatParticipant(ID, (request, _context, stream, token) =>
    answered(parts, request, stream, token),
  );
  participant.iconPath = vscode.Uri.joinPath(extension, 'media', 'icon.png');
  return participant;
}

async function answered(
  parts: Parts,
  request: vscode.ChatRequest,
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<vscode.ChatResult> {
  try {
    await reply(parts, request, stream, token);
    return { metadata: { command: request.command ?? '' } };
  } catch (error) {
    return wasCancelled(error) || token.isCancellationRequested ? {} : { errorDetails: { message: oneLine(error) } };
  }
}

async function reply(
  parts: Parts,
  request: vscode.ChatRequest,
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<void> {
  if (request.command === 'new') {
    stream.markdown((await newConversation(parts)) ? 'A new conversation has begun.' : 'Nothing has begun.');
  } else if (request.command === 'log') {
    await showConversation(parts);
    stream.markdown('The conversation is open in the editor.');
  } else if (request.command === 'status') {
    const lines = await statusLines(parts);
    stream.markdown(lines.map((line) => `- ${escaped(line)}`).join('\n'));
  } else if (request.command !== undefined && ASSISTING.has(request.command)) {
    await assist(parts, request.command, request, stream, token);
  } else {
    await question(parts, request, stream, token);
  }
}

async function question(
  parts: Parts,
  request: vscode.ChatRequest,
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<void> {
  if (!request.prompt.trim()) {
    stream.markdown('Ask something about this project.');
    return;
  }
  const place = await chatPlace();
  const text = said(request, place.root, stream);
  const sink = toChat(stream);
  const answer = await parts.statusBar.during(ask(parts.server, text, place, sink, token));
  if (answer.error !== undefined) {
    throw new Error(answer.error);
  }
  const cut = answer.finish === 'length' ? 'cut off at the longest reply that is allowed; ' : '';
  stream.markdown(`\n\n*${cut}${small(answer.usage)}*`);
}

/** A command about the active document, as a job whose text comes into the chat. */
async function assist(
  parts: Parts,
  command: string,
  request: vscode.ChatRequest,
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<void> {
  const kind = kindOf(command);
  const place = activePlace();
  if (!place) {
    stream.markdown('Open the file that it is about first, and select the lines if it is about some of them.');
    return;
  }
  if (kind.asks && !request.prompt.trim()) {
    stream.markdown(`${kind.asks.prompt} For example: \`/${command} ${kind.asks.placeholder}\``);
    return;
  }
  const text = said(request, await rootOf(place.uri), stream);
  const argument = { ...place, ...(text ? { text } : {}) };
  const work = runJob(parts.server, `qmlx.${command}`, argument, toChat(stream), token);
  const ending = await parts.statusBar.during(work);
  const { usage } = parts.statusBar;
  const how = ending.replace(/^\w+: /, '');
  stream.markdown(`\n\n*${[escaped(how), usage ? small(usage) : ''].filter((part) => part).join('; ')}*`);
}

/** The active document if it lies in a folder of this window, and the folder that the conversation is about. */
async function chatPlace(): Promise<Place> {
  const place = activePlace();
  const uri = place && vscode.Uri.parse(place.uri);
  if (place && uri?.scheme === 'file' && vscode.workspace.getWorkspaceFolder(uri)) {
    const root = await rootOf(place.uri);
    return root === undefined ? place : { ...place, root };
  }
  const root = await rootOf(undefined);
  return root === undefined ? {} : { root };
}

/** The question, with what was attached to it as mentions. */
function said(request: vscode.ChatRequest, root: string | undefined, stream: vscode.ChatResponseStream): string {
  const references = request.references.flatMap((one) => {
    const found = reference(one);
    return found ? [found] : [];
  });
  if (root === undefined || !references.length) {
    return request.prompt;
  }
  const { mentions, left } = mentioned(root, references);
  for (const line of left) {
    stream.markdown(`*${escaped(line)}*\n\n`);
  }
  return withMentions(request.prompt, mentions);
}

function reference(one: vscode.ChatPromptReference): Reference | undefined {
  if (one.id.startsWith('vscode.implicit')) {
    return undefined; // what is active is told with its selection anyway
  }
  if (one.value instanceof vscode.Location && one.value.uri.scheme === 'file') {
    return { file: one.value.uri.fsPath, lines: linesOf(one.value.range) };
  }
  return one.value instanceof vscode.Uri && one.value.scheme === 'file' ? { file: one.value.fsPath } : undefined;
}

function toChat(stream: vscode.ChatResponseStream): Sink {
  let begun = false;
  let step = '';
  return {
    onText: (delta) => {
      begun = true;
      stream.markdown(delta);
    },
    onStep: (message) => {
      const now = /^(?:\w+: )?(reading|restoring|loading)/.exec(message)?.[1];
      if (!begun && now !== undefined && now !== step) {
        step = now;
        stream.progress(message);
      }
    },
  };
}
