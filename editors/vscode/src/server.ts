/**
 * The server as the rest of the extension sees it: started when it is wanted, started again when it has ended, asked.
 *
 * Invariant: there is at most one connection, and a state that says how it is; every way it can be is shown somewhere.
 * Invariant: a request is answered or fails with one line, also when the connection ends meanwhile.
 */
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as vscode from 'vscode';
import { ExecuteCommandRequest, LanguageClient, ProgressType } from 'vscode-languageclient/node';
import { connect, type Connection } from './client.ts';
import { lastLine, oneLine, ServerUnavailable, wasCutOff } from './errors.ts';
import { find, type Found } from './executable.ts';
import { Jobs } from './jobs.ts';
import { DID_CHANGE_STATUS, STREAM, type DidChangeStatusParams, type StreamParams } from './protocol.ts';
import { Restarts } from './restarts.ts';
import type { Phase } from './status.ts';

export interface ServerState {
  readonly phase: Phase;
  readonly reason?: string;
}

/** What comes on a token of ours: of the work, or of the result. */
export interface ProgressValue {
  readonly kind?: 'begin' | 'report' | 'end';
  readonly message?: string;
  readonly delta?: string;
}

export const CUT_OFF = 'The server has ended before the answer; it starts again, and what was answered is kept.';

export class Server implements vscode.Disposable {
  readonly jobs = new Jobs();
  readonly output = vscode.window.createOutputChannel('qmlx', { log: true });
  private readonly changed = new vscode.EventEmitter<ServerState>();
  private readonly said = new vscode.EventEmitter<DidChangeStatusParams>();
  private readonly restarts = new Restarts();
  private connection: Connection | undefined;
  private starting: Promise<void> | undefined;
  private endExpected = false;
  private current: ServerState = { phase: 'stopped' };
  readonly onDidChangeState = this.changed.event;
  readonly onDidChangeStatus = this.said.event;

  constructor(private readonly storage: vscode.Uri) {}

  get state(): ServerState {
    return this.current;
  }

  /** The program that would be started. */
  found(): Found {
    const configured = vscode.workspace.getConfiguration('qmlx').get<string>('server.path') ?? '';
    const around = {
      configured,
      searched: process.env['PATH'] ?? '',
      home: os.homedir(),
      storage: this.storage.fsPath,
    };
    return find(around, isProgram);
  }

  /** Start it, unless it runs. Its user has asked for that, so that former ends do not count. Never throws. */
  async start(): Promise<void> {
    this.restarts.forget();
    await this.begin();
  }

  async restart(): Promise<void> {
    await this.end();
    await this.start();
  }

  /** The connection is about to be ended by the server itself, because we have asked for it. */
  expectEnd(expected: boolean): void {
    this.endExpected = expected;
  }

  notify(method: string, params: unknown): void {
    const client = this.running();
    client?.sendNotification(method, params).catch((error: unknown) => {
      this.output.debug(oneLine(error));
    });
  }

  /** Ask. Raises ServerUnavailable, or the server's own error. */
  async request<R>(method: string, params: unknown, token?: vscode.CancellationToken): Promise<R> {
    const client = await this.ready();
    try {
      // A token that is not there would be taken for a second parameter.
      return await (token ? client.sendRequest<R>(method, params, token) : client.sendRequest<R>(method, params));
    } catch (error) {
      throw wasCutOff(error) ? new ServerUnavailable(CUT_OFF) : error;
    }
  }

  execute<R>(command: string, argument?: unknown): Promise<R> {
    const params = { command, arguments: argument === undefined ? [] : [argument] };
    return this.request<R>(ExecuteCommandRequest.method, params);
  }

  /** Progress on a token of ours. */
  async onProgress(token: string, handler: (value: ProgressValue) => void): Promise<vscode.Disposable> {
    return (await this.ready()).onProgress(new ProgressType<ProgressValue>(), token, handler);
  }

  dispose(): void {
    void this.end();
    this.changed.dispose();
    this.said.dispose();
    this.output.dispose();
  }

  private async ready(): Promise<LanguageClient> {
    await this.begin();
    const client = this.running();
    if (!client) {
      throw new ServerUnavailable(`qmlx does not run: ${this.current.reason ?? 'it was stopped.'}`);
    }
    return client;
  }

  private running(): LanguageClient | undefined {
    return this.current.phase === 'running' ? this.connection?.client : undefined;
  }

  private begin(): Promise<void> {
    if (this.current.phase === 'running') {
      return Promise.resolve();
    }
    this.starting ??= this.open().finally(() => {
      this.starting = undefined;
    });
    return this.starting;
  }

  private async open(): Promise<void> {
    const found = this.found();
    if ('missing' in found) {
      this.become({ phase: 'missing', reason: found.missing });
      return;
    }
    this.become({ phase: 'starting' });
    this.output.info(`starting ${found.program}`);
    this.endExpected = false;
    const connection = connect(found.program, this.output, () => {
      this.closed(connection);
    });
    this.connection = connection;
    const { client } = connection;
    client.onNotification(STREAM, (params: StreamParams) => {
      this.jobs.arrive(params);
    });
    client.onNotification(DID_CHANGE_STATUS, (params: DidChangeStatusParams) => {
      this.said.fire(params);
    });
    try {
      await client.start();
      this.become({ phase: 'running' });
    } catch (error) {
      this.connection = undefined;
      this.become({ phase: 'failed', reason: lastLine(connection.printed()) ?? oneLine(error) });
    }
  }

  /** The connection has ended by itself. */
  private closed(connection: Connection): void {
    if (connection !== this.connection || this.current.phase !== 'running') {
      return;
    }
    this.connection = undefined;
    this.jobs.fail(new ServerUnavailable(CUT_OFF));
    const reason = lastLine(connection.printed()) ?? 'The server has ended.';
    if (this.endExpected || this.restarts.allowed(Date.now())) {
      this.become({ phase: 'starting' });
      void this.begin();
    } else {
      this.become({ phase: 'failed', reason: `${reason} It was started several times and ended each time.` });
    }
  }

  private async end(): Promise<void> {
    await this.starting;
    const connection = this.connection;
    this.connection = undefined;
    this.jobs.fail(new ServerUnavailable(CUT_OFF));
    this.become({ phase: 'stopped' });
    await connection?.client.dispose().catch((error: unknown) => {
      this.output.debug(oneLine(error));
    });
  }

  private become(state: ServerState): void {
    this.current = state;
    if (state.reason) {
      this.output.warn(state.reason);
    }
    this.changed.fire(state);
  }
}

function isProgram(file: string): boolean {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}
