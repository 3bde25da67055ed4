/**
 * The item in the status bar: holds what is known, asks for figures when a turn has ended, shows what `status.ts` says.
 *
 * It must never ask the server for anything while a server is not running: a status bar starts nothing.
 */
import * as vscode from 'vscode';
import { oneLine } from './errors.ts';
import { STATUS, type StatusResult, type Usage } from './protocol.ts';
import type { Server } from './server.ts';
import { lastUsage, render, type State } from './status.ts';

const PRIORITY = 100;

export class StatusBar implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem('qmlx.status', vscode.StatusBarAlignment.Right, PRIORITY);
  private readonly renewed = new vscode.EventEmitter<StatusResult>();
  private readonly watching: vscode.Disposable;
  private state: State = { phase: 'stopped', running: 0, roots: roots() };
  readonly onDidRenew = this.renewed.event;

  constructor(private readonly server: Server) {
    this.item.name = 'qmlx';
    server.onDidChangeState(({ phase, reason }) => {
      // What the last server said of itself is not true of the next one; its figures stay until there are new ones.
      const { status, running } = this.state;
      this.set({ phase, running, roots: roots(), ...(reason ? { reason } : {}), ...(status ? { status } : {}) });
      if (phase === 'running') {
        void this.refresh();
      }
    });
    server.onDidChangeStatus((said) => {
      this.set({ ...this.state, said });
      if (!said.busy) {
        void this.refresh();
      }
    });
    this.set({ ...this.state, ...server.state });
    this.watching = vscode.workspace.onDidChangeWorkspaceFolders(() => {
      this.set({ ...this.state, roots: roots() });
    });
    this.item.show();
  }

  /** The newest status that is known. */
  get status(): StatusResult | undefined {
    return this.state.status;
  }

  /** What the last turn in this window's folders cost. */
  get usage(): Usage | undefined {
    return lastUsage(this.state);
  }

  /** A question or command of this window runs as long as `work` does. */
  async during<T>(work: Promise<T>): Promise<T> {
    this.count(1);
    try {
      return await work;
    } finally {
      this.count(-1);
      await this.refresh();
    }
  }

  async refresh(): Promise<void> {
    if (this.server.state.phase !== 'running') {
      return;
    }
    try {
      const status = await this.server.request<StatusResult>(STATUS, {});
      this.set({ ...this.state, status });
      this.renewed.fire(status);
    } catch (error) {
      this.server.output.debug(oneLine(error)); // it is asked again after the next turn
    }
  }

  dispose(): void {
    this.watching.dispose();
    this.item.dispose();
    this.renewed.dispose();
  }

  private count(by: number): void {
    this.set({ ...this.state, running: this.state.running + by });
    void vscode.commands.executeCommand('setContext', 'qmlx.answering', this.state.running > 0);
  }

  private set(state: State): void {
    this.state = state;
    const shown = render(state);
    this.item.text = shown.text;
    this.item.command = shown.command;
    const tooltip = new vscode.MarkdownString(shown.tooltip, true);
    tooltip.isTrusted = true; // all text of others in it is escaped
    this.item.tooltip = tooltip;
    this.item.backgroundColor = shown.colour && new vscode.ThemeColor(`statusBarItem.${shown.colour}Background`);
  }
}

function roots(): string[] {
  return (vscode.workspace.workspaceFolders ?? []).map((folder) => folder.uri.fsPath);
}
