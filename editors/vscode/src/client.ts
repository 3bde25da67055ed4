/**
 * One connection to the server: vscode-languageclient, less what does not fit, plus the server's own notifications.
 *
 * It must never restart by itself: `server.ts` decides, with a new client each time.
 *
 * Invariant: commands of the server are not registered here. They exist before there is a server, to start it or to
 * say what is wrong (`commands.ts`).
 * Invariant: a completion for another text than there is now is dropped.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import * as os from 'node:os';
import * as vscode from 'vscode';
import {
  CloseAction,
  ErrorAction,
  ExecuteCommandRequest,
  LanguageClient,
  RevealOutputChannelOn,
  WorkDoneProgressCreateRequest,
  type DynamicFeature,
  type LanguageClientOptions,
  type StaticFeature,
} from 'vscode-languageclient/node';
import { told } from './settings.ts';

/** Characters of what the program prints that are kept, to say why it has ended. */
const STDERR_CHARACTERS_MAX = 8_192;

export const SELECTOR = [{ scheme: 'file' }, { scheme: 'untitled' }, { scheme: 'vscode-notebook-cell' }];

/** Which of the client's own features are left out: commands are ours, and the model's progress is in the status bar. */
const LEFT_OUT: ReadonlySet<string> = new Set([ExecuteCommandRequest.method, WorkDoneProgressCreateRequest.method]);

class Client extends LanguageClient {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- the type that is overridden has it
  override registerFeature(feature: StaticFeature | DynamicFeature<any>): void {
    const method = 'registrationType' in feature ? feature.registrationType.method : undefined;
    const isProgress = feature.constructor.name === 'ProgressFeature';
    if ((method === undefined || !LEFT_OUT.has(method)) && !isProgress) {
      super.registerFeature(feature);
    }
  }
}

export interface Connection {
  readonly client: LanguageClient;
  /** What the program has printed, the end of it. */
  readonly printed: () => string;
}

export function connect(program: string, output: vscode.LogOutputChannel, onClosed: () => void): Connection {
  let printed = '';
  const run = (): Promise<ChildProcess> => {
    const child = spawn(program, ['--stdio'], { cwd: os.homedir(), env: environment() });
    child.stderr.on('data', (chunk: Buffer) => {
      printed = (printed + chunk.toString()).slice(-STDERR_CHARACTERS_MAX);
    });
    return new Promise((resolve, reject) => {
      child.once('spawn', () => {
        resolve(child);
      });
      child.once('error', reject);
    });
  };
  const client = new Client('qmlx', 'qmlx', run, options(output, onClosed));
  client.registerFeature({
    fillClientCapabilities: (capabilities) => {
      capabilities.experimental = { ...(capabilities.experimental as object | undefined), qmlx: { panel: true } };
    },
    initialize: () => undefined,
    getState: () => ({ kind: 'static' }),
    clear: () => undefined,
  });
  return { client, printed: () => printed };
}

export function environment(): NodeJS.ProcessEnv {
  const added = vscode.workspace.getConfiguration('qmlx').get<Record<string, unknown>>('server.env') ?? {};
  const texts = Object.entries(added).map(([name, value]) => [name, String(value)]);
  return { ...process.env, ...(Object.fromEntries(texts) as Record<string, string>) };
}

function options(output: vscode.LogOutputChannel, onClosed: () => void): LanguageClientOptions {
  return {
    documentSelector: SELECTOR,
    outputChannel: output,
    revealOutputChannelOn: RevealOutputChannelOn.Never,
    initializationOptions: section(undefined),
    initializationFailedHandler: () => false,
    errorHandler: {
      error: () => ({ action: ErrorAction.Continue, handled: true }),
      closed: () => {
        onClosed();
        return { action: CloseAction.DoNotRestart, handled: true };
      },
    },
    middleware: {
      provideInlineCompletionItems: async (document, position, context, token, next) => {
        const version = document.version;
        const found = await next(document, position, context, token);
        return document.version === version ? found : null;
      },
      workspace: {
        configuration: (params) =>
          params.items.map((item) =>
            item.section === 'qmlx' ? section(item.scopeUri ? vscode.Uri.parse(item.scopeUri) : undefined) : null,
          ),
      },
    },
  };
}

/** What is told of every folder of this window, by the folder. */
export function toldNow(): Record<string, unknown> {
  const folders = (vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri);
  const named = folders.map((uri): [string, unknown] => [uri.toString(), section(uri)]);
  return { ...Object.fromEntries(named), '': section(undefined) };
}

function section(scope: vscode.Uri | undefined): Record<string, unknown> {
  const configuration = vscode.workspace.getConfiguration('qmlx', scope ?? null);
  return told((key) => configuration.inspect(key), vscode.workspace.isTrusted);
}
