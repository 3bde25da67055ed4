/**
 * The commands that ask nothing of the model: conversations, tools, status, restart, and where to find all of that.
 *
 * Invariant: what cannot be taken back is asked for once more.
 */
import * as vscode from 'vscode';
import { runJob } from './assist.ts';
import type { Parts } from './commands.ts';
import { oneLine } from './errors.ts';
import { activePlace, rootOf } from './place.ts';
import { count, small } from './status.ts';

export function registerControl(parts: Parts): vscode.Disposable {
  const commands: Record<string, (given: unknown) => Promise<unknown>> = {
    'qmlx.cancel': () => cancel(parts),
    'qmlx.newConversation': () => newConversation(parts),
    'qmlx.forgetConversation': () => forgetConversation(parts),
    'qmlx.showConversation': () => showConversation(parts),
    'qmlx.status': () => status(parts),
    'qmlx.runTool': (given) => runTool(parts, given),
    'qmlx.restart': () => restart(parts),
    'qmlx.menu': () => menu(parts),
    'qmlx.openChat': () => openChat(),
  };
  const registered = Object.entries(commands).map(([name, run]) =>
    vscode.commands.registerCommand(name, async (given: unknown) => {
      try {
        await run(given);
      } catch (error) {
        void vscode.window.showErrorMessage(`qmlx: ${oneLine(error)}`);
      }
    }),
  );
  const log = vscode.commands.registerCommand('qmlx.showLog', () => {
    parts.server.output.show();
  });
  return vscode.Disposable.from(...registered, log);
}

async function cancel(parts: Parts): Promise<void> {
  const { cancelled } = await parts.server.execute<{ cancelled: string[] }>('qmlx.cancel');
  if (!cancelled.length) {
    void vscode.window.setStatusBarMessage('qmlx: nothing runs', 3_000);
  }
}

/** The folder whose conversation is meant; undefined if there is none, which is said. */
async function conversationRoot(): Promise<string | undefined> {
  const root = await rootOf(activePlace()?.uri);
  if (root === undefined && !vscode.workspace.workspaceFolders?.length) {
    void vscode.window.showInformationMessage('Open a folder first: a conversation belongs to one.');
  }
  return root;
}

export async function newConversation(parts: Parts): Promise<boolean> {
  const root = await conversationRoot();
  if (root === undefined) {
    return false;
  }
  await parts.server.execute('qmlx.newConversation', { root });
  await parts.statusBar.refresh();
  void vscode.window.setStatusBarMessage('qmlx: a new conversation has begun', 5_000);
  return true;
}

async function forgetConversation(parts: Parts): Promise<void> {
  const root = await conversationRoot();
  if (root === undefined) {
    return;
  }
  const detail = 'Its text, its tokens and its checkpoints are deleted. This cannot be taken back.';
  const question = `Forget the conversation about ${root}?`;
  if ((await vscode.window.showWarningMessage(question, { modal: true, detail }, 'Forget')) !== 'Forget') {
    return;
  }
  const gone = await parts.server.execute<{ turns: number; files: number }>('qmlx.forgetConversation', { root });
  await parts.statusBar.refresh();
  void vscode.window.showInformationMessage(
    `Forgotten: ${count(gone.turns)} turns, ${count(gone.files)} checkpoint files.`,
  );
}

export async function showConversation(parts: Parts): Promise<void> {
  const root = await conversationRoot();
  if (root !== undefined) {
    await parts.server.execute('qmlx.showConversation', { root });
  }
}

/** The status in words, one thing a line. */
export async function statusLines(parts: Parts): Promise<string[]> {
  const found = await parts.server.execute<NonNullable<typeof parts.statusBar.status>>('qmlx.status');
  await parts.statusBar.refresh();
  const { usage } = parts.statusBar;
  return [
    `Model: ${found.model.name} (${found.model.state})`,
    ...(usage ? [`Last turn: ${small(usage)}, ${count(usage.generated)} written`] : []),
    ...found.conversations.map(
      (one) => `${one.root}: ${count(one.tokens)} tokens, ${count(one.live_tokens)} in memory`,
    ),
    `Editors connected: ${count(found.clients)}`,
  ];
}

async function status(parts: Parts): Promise<void> {
  void vscode.window.showInformationMessage((await statusLines(parts)).join(' · '));
}

interface Tool {
  readonly name: string;
  readonly root?: string;
}

async function runTool(parts: Parts, given: unknown): Promise<void> {
  if (!vscode.workspace.isTrusted) {
    void vscode.window.showWarningMessage('Tools are not run in a folder that is not trusted.');
    return;
  }
  const isTool = typeof given === 'object' && given !== null && 'name' in given;
  const tool = isTool ? (given as Tool) : await chosenTool();
  if (!tool) {
    return;
  }
  const printed = parts.answers.begin(`What ${tool.name} printed`);
  printed.append('```text\n');
  const options = { location: vscode.ProgressLocation.Notification, title: `qmlx: ${tool.name}`, cancellable: true };
  const ending = await vscode.window.withProgress(options, (progress, token) => {
    const sink = {
      onText: (delta: string) => {
        printed.append(delta);
      },
      onStep: (message: string) => {
        progress.report({ message: message.slice(tool.name.length + 2) });
      },
    };
    return runJob(parts.server, 'qmlx.runTool', { ...tool }, sink, token);
  });
  printed.append('\n```\n');
  printed.end(ending);
  await parts.answers.show(printed);
}

/** The tools that the server offers for the active document, as it offers them in the menu of code actions. */
async function chosenTool(): Promise<Tool | undefined> {
  const place = activePlace();
  if (place) {
    const { start, end } = place.range;
    const found = await vscode.commands.executeCommand<vscode.CodeAction[]>(
      'vscode.executeCodeActionProvider',
      vscode.Uri.parse(place.uri),
      new vscode.Range(start.line, start.character, end.line, end.character),
      'source.runTool',
    );
    const tools = found.filter((action) => action.command?.command === 'qmlx.runTool');
    const items = tools.map((action) => ({ label: action.title, tool: action.command?.arguments?.[0] as Tool }));
    if (items.length) {
      return (await vscode.window.showQuickPick(items, { placeHolder: 'Which tool?' }))?.tool;
    }
  }
  const name = await vscode.window.showInputBox({ prompt: 'Which tool of .qmlx.toml?', placeHolder: 'tests' });
  const root = name?.trim() ? await rootOf(undefined) : undefined;
  return name?.trim() ? { name: name.trim(), ...(root === undefined ? {} : { root }) } : undefined;
}

/** The daemon is asked to end, unless others would be cut off; this window's connection then begins the next one. */
export async function restart(parts: Parts): Promise<void> {
  const { server } = parts;
  if (server.state.phase !== 'running') {
    await server.restart();
    return;
  }
  for (const force of [false, true]) {
    try {
      server.expectEnd(true);
      await server.execute('qmlx.restart', { force });
      return;
    } catch (error) {
      server.expectEnd(false);
      const others = / would be cut off/.test(oneLine(error));
      if (force || !others) {
        throw error;
      }
      const warning = 'Other windows or editors use the same server and would be cut off from it.';
      if ((await vscode.window.showWarningMessage(`qmlx: ${warning}`, 'Restart anyway')) === undefined) {
        return;
      }
    }
  }
}

async function menu(parts: Parts): Promise<void> {
  const running = parts.server.state.phase === 'running';
  const items = [
    ...(running
      ? [
          ['$(comment-discussion) Ask in the chat', 'qmlx.openChat'],
          ['$(question) Ask…', 'qmlx.ask'],
          ['$(stop-circle) Cancel what runs', 'qmlx.cancel'],
          ['$(book) Show the conversation', 'qmlx.showConversation'],
          ['$(add) Begin a new conversation', 'qmlx.newConversation'],
          ['$(info) Status', 'qmlx.status'],
        ]
      : [['$(tools) Open the setup', 'qmlx.openSetup']]),
    ['$(server) Choose a model…', 'qmlx.chooseModel'],
    ['$(debug-restart) Restart the server', 'qmlx.restart'],
    ['$(output) Show the log', 'qmlx.showLog'],
  ].map(([label, command]) => ({ label: label ?? '', command: command ?? '' }));
  const picked = await vscode.window.showQuickPick(items, { placeHolder: parts.server.state.reason ?? 'qmlx' });
  if (picked) {
    await vscode.commands.executeCommand(picked.command);
  }
}

async function openChat(): Promise<void> {
  const disabled = vscode.workspace.getConfiguration('chat').get<boolean>('disableAIFeatures') === true;
  if (!disabled) {
    try {
      await vscode.commands.executeCommand('workbench.action.chat.open', {
        query: '@qmlx ',
        isPartialQuery: true,
        mode: 'ask',
      });
      return;
    } catch {
      // there is no chat in this editor: the question is asked for below
    }
  }
  await vscode.commands.executeCommand('qmlx.ask');
}
