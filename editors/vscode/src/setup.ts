/**
 * Setting up: finding or installing the server, choosing a model, and what to do when there is no server.
 *
 * Invariant: nothing is installed that its user has not pointed at, and nothing outside this extension's own folder.
 */
import { spawn } from 'node:child_process';
import * as fs from 'node:fs';
import * as path from 'node:path';
import * as vscode from 'vscode';
import { environment } from './client.ts';
import type { Parts } from './commands.ts';
import { restart } from './control.ts';
import { lastLine, oneLine } from './errors.ts';
import { ownVenv } from './executable.ts';
import { newEnough, PYTHON_LOW, PYTHONS, unfit } from './packages.ts';

const WALKTHROUGH = 'qmlx.qmlx#qmlx.setup';

export function registerSetup(parts: Parts, storage: vscode.Uri): vscode.Disposable {
  const commands: Record<string, () => Promise<void>> = {
    'qmlx.install': () => install(parts, storage),
    'qmlx.chooseServer': () => chooseServer(parts),
    'qmlx.chooseModel': () => chooseModel(parts),
    'qmlx.openSetup': async () => {
      await vscode.commands.executeCommand('workbench.action.openWalkthrough', WALKTHROUGH, false);
    },
  };
  const registered = Object.entries(commands).map(([name, run]) =>
    vscode.commands.registerCommand(name, async () => {
      try {
        await run();
      } catch (error) {
        void vscode.window.showErrorMessage(`qmlx: ${oneLine(error)}`);
      }
    }),
  );
  const watching = parts.server.onDidChangeState(({ phase, reason }) => {
    if (phase === 'missing') {
      void offer(reason, {
        'Install…': 'qmlx.install',
        'Choose…': 'qmlx.chooseServer',
        'Open Setup': 'qmlx.openSetup',
      });
    } else if (phase === 'failed') {
      void offer(reason, { Restart: 'qmlx.restart', 'Show Log': 'qmlx.showLog' });
    }
    void vscode.commands.executeCommand('setContext', 'qmlx.running', phase === 'running');
  });
  return vscode.Disposable.from(...registered, watching);
}

async function offer(reason: string | undefined, buttons: Record<string, string>): Promise<void> {
  const picked = await vscode.window.showErrorMessage(
    `qmlx: ${reason ?? 'it does not run.'}`,
    ...Object.keys(buttons),
  );
  const command = picked === undefined ? undefined : buttons[picked];
  if (command !== undefined) {
    await vscode.commands.executeCommand(command);
  }
}

async function chooseServer(parts: Parts): Promise<void> {
  const picked = await vscode.window.showOpenDialog({ title: 'The program qmlx-lsp', canSelectMany: false });
  const file = picked?.[0]?.fsPath;
  if (file !== undefined) {
    const configuration = vscode.workspace.getConfiguration('qmlx');
    await configuration.update('server.path', file, vscode.ConfigurationTarget.Global);
    await parts.server.restart();
  }
}

async function install(parts: Parts, storage: vscode.Uri): Promise<void> {
  const picked = await vscode.window.showOpenDialog({
    title: 'The folder of a clone of qmlx-lsp, or a wheel of it',
    openLabel: 'Install from here',
    canSelectFolders: true,
    canSelectFiles: true,
    canSelectMany: false,
    filters: { Wheels: ['whl'] },
  });
  const source = picked?.[0]?.fsPath;
  if (source === undefined) {
    return;
  }
  const wrong = unfit(source, readText);
  if (wrong !== undefined) {
    throw new Error(wrong);
  }
  const options = { location: vscode.ProgressLocation.Notification, title: 'qmlx: installing', cancellable: true };
  await vscode.window.withProgress(options, async (progress, token) => {
    const log = (line: string): void => {
      parts.server.output.info(line);
      progress.report({ message: line.slice(0, 80) });
    };
    const python = await pythonFound(token);
    const venv = ownVenv(storage.fsPath);
    await fs.promises.mkdir(storage.fsPath, { recursive: true });
    // -I: what PYTHONPATH and its like are set to in a shell is not for this.
    await run(python, ['-I', '-m', 'venv', venv], log, token);
    const pip = ['-I', '-m', 'pip', '--disable-pip-version-check', 'install', '--upgrade', source];
    await run(path.join(venv, 'bin', 'python'), pip, log, token);
  });
  await vscode.workspace.getConfiguration('qmlx').update('server.path', undefined, vscode.ConfigurationTarget.Global);
  await parts.server.restart();
}

async function pythonFound(token: vscode.CancellationToken): Promise<string> {
  const print = 'import sys; print(*sys.version_info[:2])';
  for (const python of PYTHONS) {
    let printed = '';
    const keep = (line: string): void => {
      printed += line;
    };
    try {
      await run(python, ['-c', print], keep, token);
    } catch {
      continue; // there is no such program here
    }
    if (newEnough(printed)) {
      return python;
    }
  }
  throw new Error(`No Python ${PYTHON_LOW.join('.')} or newer was found: install one, then try again.`);
}

/** Run a program to its end, its lines to `log`. Raises its last line, or that it was cancelled. */
function run(
  program: string,
  args: readonly string[],
  log: (line: string) => void,
  token: vscode.CancellationToken | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env: environment(), stdio: ['ignore', 'pipe', 'pipe'] });
    const cancelling = token?.onCancellationRequested(() => child.kill());
    let printed = '';
    for (const output of [child.stdout, child.stderr]) {
      output.on('data', (chunk: Buffer) => {
        printed += chunk.toString();
        chunk
          .toString()
          .split('\n')
          .filter((line) => line.trim())
          .forEach(log);
      });
    }
    child.once('error', reject);
    child.once('close', (code) => {
      cancelling?.dispose();
      if (code === 0) {
        resolve();
      } else {
        const why = token?.isCancellationRequested ? 'Cancelled.' : lastLine(printed);
        reject(new Error(why ?? `${path.basename(program)} has ended with ${code ?? 'a signal'}.`));
      }
    });
  });
}

function readText(file: string): string | undefined {
  try {
    return fs.readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

const FOLDER = 'A folder…';
const ANOTHER = 'Another Hugging Face id…';

const MODELS: readonly vscode.QuickPickItem[] = [
  { label: 'embedded', description: 'SmolLM2 135M', detail: '98 MB; for trying out, not clever' },
  {
    label: 'mlx-community/Qwen2.5-Coder-3B-Instruct-4bit',
    detail: 'about 2 GB of memory and more for long conversations',
  },
  {
    label: 'mlx-community/Qwen2.5-Coder-7B-Instruct-4bit',
    detail: 'about 4.5 GB of memory; for machines with 16 GB',
  },
  {
    label: 'mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit',
    detail: 'about 17 GB of memory; for machines with 32 GB',
  },
  { label: FOLDER, detail: "in mlx-lm's layout" },
  { label: ANOTHER, detail: 'any model that mlx-lm can run' },
];

async function chooseModel(parts: Parts): Promise<void> {
  const picked = await vscode.window.showQuickPick(MODELS, {
    title: 'qmlx: the model that answers',
    placeHolder: parts.statusBar.status
      ? `Now: ${parts.statusBar.status.model.name}`
      : 'It is fetched at the first question',
    matchOnDetail: true,
  });
  const name = picked && (await modelName(picked.label));
  if (!name) {
    return;
  }
  const found = parts.server.found();
  if ('missing' in found) {
    throw new Error(found.missing);
  }
  await run(
    found.program,
    ['model', 'use', name],
    (line) => {
      parts.server.output.info(line);
    },
    undefined,
  );
  await restart(parts);
}

async function modelName(label: string): Promise<string | undefined> {
  if (label === FOLDER) {
    const picked = await vscode.window.showOpenDialog({
      title: 'The folder of a model',
      canSelectFolders: true,
      canSelectFiles: false,
    });
    return picked?.[0]?.fsPath;
  }
  if (label === ANOTHER) {
    return (
      await vscode.window.showInputBox({ prompt: 'The id of a model', placeHolder: 'mlx-community/…' })
    )?.trim();
  }
  return label;
}
