/**
 * The model as a language model of the editor, so that its chat works with no account and no other model.
 *
 * It calls no tools and sees no images. What stands before the last reply is in the conversation already and is not
 * sent.
 *
 * Invariant: where there is another model, this one does not claim to call tools. Where it is the only one, it does: in
 * its agent mode the editor asks no participant, not even `@qmlx`, without a model that says so.
 */
import * as vscode from 'vscode';
import { ask } from './ask.ts';
import type { Parts } from './commands.ts';
import { newest, roughTokens, type Message } from './messages.ts';
import { rootOf } from './place.ts';

export const VENDOR = 'qmlx';
/** Tokens that are assumed until the server has said what its model reads and writes. */
const CONTEXT_TOKENS = 32_768;
const REPLY_TOKENS = 4_096;

export function registerModel(parts: Parts): vscode.Disposable {
  const changed = new vscode.EventEmitter<void>();
  let known = '';
  let alone = true;
  const look = async (): Promise<void> => {
    const others = (await vscode.lm.selectChatModels()).some((model) => model.vendor !== VENDOR);
    if (alone === others) {
      alone = !others;
      changed.fire();
    }
  };
  const watching = vscode.lm.onDidChangeChatModels(look);
  const renewed = parts.statusBar.onDidRenew(({ model }) => {
    const now = `${model.name} ${model.context_tokens ?? ''}`;
    if (now !== known) {
      known = now;
      changed.fire();
    }
  });
  const provider: vscode.LanguageModelChatProvider = {
    onDidChangeLanguageModelChatInformation: changed.event,
    provideLanguageModelChatInformation: () => [information(parts, alone)],
    provideLanguageModelChatResponse: (_model, messages, _options, progress, token) =>
      respond(parts, messages, progress, token),
    provideTokenCount: (_model, text) =>
      Promise.resolve(roughTokens(typeof text === 'string' ? text : textOf(text.content))),
  };
  const registered = vscode.lm.registerLanguageModelChatProvider(VENDOR, provider);
  void look(); // which also makes the editor ask for the model, so that it is known before the first question
  return vscode.Disposable.from(registered, renewed, watching, changed);
}

function information(parts: Parts, alone: boolean): vscode.LanguageModelChatInformation {
  const model = parts.statusBar.status?.model;
  const name = model?.name.split('/').pop();
  return {
    id: 'local',
    name: name ? `qmlx: ${name}` : 'qmlx',
    family: 'qmlx',
    version: '1',
    tooltip: 'The model on this machine, with the conversation of this project',
    maxInputTokens: model?.context_tokens ?? CONTEXT_TOKENS,
    maxOutputTokens: REPLY_TOKENS,
    capabilities: { toolCalling: alone },
  };
}

async function respond(
  parts: Parts,
  messages: readonly vscode.LanguageModelChatRequestMessage[],
  progress: vscode.Progress<vscode.LanguageModelResponsePart>,
  token: vscode.CancellationToken,
): Promise<void> {
  const said = messages.map((message): Message => {
    const role = message.role === vscode.LanguageModelChatMessageRole.Assistant ? 'assistant' : 'user';
    return { role, text: textOf(message.content) };
  });
  const root = await rootOf(undefined);
  const sink = {
    onText: (delta: string) => {
      progress.report(new vscode.LanguageModelTextPart(delta));
    },
    onStep: () => undefined,
  };
  const place = root === undefined ? {} : { root };
  const answer = await parts.statusBar.during(ask(parts.server, newest(said), place, sink, token));
  if (answer.error !== undefined) {
    throw new Error(answer.error);
  }
}

function textOf(content: readonly unknown[]): string {
  const texts = content.flatMap((part) => (part instanceof vscode.LanguageModelTextPart ? [part.value] : []));
  return texts.join('');
}
