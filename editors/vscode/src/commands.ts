/**
 * The commands that ask the model: from the palette, the menus, keys and code actions, whose names they have.
 *
 * Invariant: a command says how it ended, once: an answer in its document, an edit in the text, or one line.
 */
import * as vscode from 'vscode';
import type { Answers } from './answers.ts';
import { runJob, type Sink } from './assist.ts';
import { oneLine } from './errors.ts';
import { KINDS, toBeShown, type Kind } from './kinds.ts';
import { activePlace, named, rootOf } from './place.ts';
import type { CommandArgument } from './protocol.ts';
import type { Server } from './server.ts';
import type { StatusBar } from './statusBar.ts';
import { small } from './status.ts';

export interface Parts {
  readonly server: Server;
  readonly statusBar: StatusBar;
  readonly answers: Answers;
}

export function registerAssisting(parts: Parts): vscode.Disposable {
  const registered = KINDS.map((kind) =>
    vscode.commands.registerCommand(`qmlx.${kind.name}`, (given: unknown) => assist(parts, kind, given)),
  );
  return vscode.Disposable.from(...registered);
}

async function assist(parts: Parts, kind: Kind, given: unknown): Promise<void> {
  const argument = await argumentOf(kind, given);
  if (!argument) {
    return;
  }
  try {
    await (kind.shows ? answer(parts, kind, argument) : change(parts, kind, argument));
  } catch (error) {
    void vscode.window.showErrorMessage(`${kind.name}: ${oneLine(error)}`);
  }
}

/** What is given by a code action or a key, or else what the editor shows; undefined if nothing is to be done. */
async function argumentOf(kind: Kind, given: unknown): Promise<CommandArgument | undefined> {
  const isArgument = typeof given === 'object' && given !== null && !(given instanceof vscode.Uri);
  const own = isArgument ? (given as CommandArgument) : {};
  const place = own.uri === undefined ? activePlace() : undefined;
  const argument: CommandArgument = { ...place, ...own };
  if (argument.uri === undefined && kind.name !== 'ask') {
    void vscode.window.showInformationMessage('Open the file that it is about first.');
    return undefined;
  }
  const said = argument.text ?? argument.instruction;
  if (kind.asks && !said?.trim()) {
    const text = await vscode.window.showInputBox({
      title: `qmlx: ${kind.title}${argument.uri === undefined ? '' : ` of ${named(argument)}`}`,
      prompt: kind.asks.prompt,
      placeHolder: kind.asks.placeholder,
      ignoreFocusOut: true,
    });
    return text?.trim() ? withRoot({ ...argument, text }) : undefined;
  }
  return withRoot(argument);
}

/** A question about no document needs a folder, and only its user knows which. */
async function withRoot(argument: CommandArgument): Promise<CommandArgument> {
  const root = argument.uri === undefined && argument.root === undefined ? await rootOf(undefined) : undefined;
  return root === undefined ? argument : { ...argument, root };
}

/** An answer in a document of its own, which grows. */
async function answer(parts: Parts, kind: Kind, argument: CommandArgument): Promise<void> {
  const about = named(argument);
  const title = kind.name === 'ask' ? (argument.text ?? kind.title) : `${kind.title} of ${about}`;
  const document = parts.answers.begin(title);
  document.wait('waiting');
  await parts.answers.show(document);
  const sink: Sink = {
    onText: (delta) => {
      document.append(delta);
    },
    onStep: (message) => {
      document.wait(message);
    },
  };
  const cancel = new vscode.CancellationTokenSource();
  try {
    const work = runJob(parts.server, `qmlx.${kind.name}`, argument, sink, cancel.token);
    const ending = await parts.statusBar.during(work);
    document.end(note(parts, ending));
  } catch (error) {
    document.end(oneLine(error));
  } finally {
    cancel.dispose();
  }
}

function note(parts: Parts, ending: string): string {
  const { usage } = parts.statusBar;
  const how = ending.replace(/^\w+: /, '');
  const figures = usage ? small(usage) : '';
  return how === 'answered' ? figures : [how, figures].filter((part) => part).join('; ');
}

/** A change of the text, with a progress that can be cancelled; an answer that changed nothing is shown. */
async function change(parts: Parts, kind: Kind, argument: CommandArgument): Promise<void> {
  let text = '';
  const options = { location: vscode.ProgressLocation.Notification, title: `qmlx: ${kind.title}`, cancellable: true };
  const ending = await vscode.window.withProgress(options, (progress, cancel) => {
    const sink: Sink = {
      onText: (delta) => {
        text += delta;
      },
      onStep: (message) => {
        progress.report({ message: message.replace(/^\w+: /, '') });
      },
    };
    return parts.statusBar.during(runJob(parts.server, `qmlx.${kind.name}`, argument, sink, cancel));
  });
  if (text.trim() && toBeShown(ending)) {
    const document = parts.answers.begin(`${kind.title} of ${named(argument)}`);
    document.append(text);
    document.end(ending);
    await parts.answers.show(document);
  }
}
