/**
 * Wiring: what there is, and what listens to what. No logic of its own.
 */
import * as vscode from 'vscode';
import { Answers } from './answers.ts';
import { registerChat } from './chat.ts';
import { toldNow } from './client.ts';
import { registerAssisting, type Parts } from './commands.ts';
import { registerControl } from './control.ts';
import { registerModel } from './model.ts';
import { followEditors } from './place.ts';
import { DID_FOCUS } from './protocol.ts';
import { Server } from './server.ts';
import { withdrawn } from './settings.ts';
import { registerSetup } from './setup.ts';
import { StatusBar } from './statusBar.ts';

export function activate(context: vscode.ExtensionContext): void {
  const server = new Server(context.globalStorageUri);
  const statusBar = new StatusBar(server);
  const parts: Parts = { server, statusBar, answers: new Answers() };
  let told = toldNow();
  context.subscriptions.push(
    server,
    statusBar,
    parts.answers,
    registerAssisting(parts),
    registerControl(parts),
    registerSetup(parts, context.globalStorageUri),
    registerChat(parts, context.extensionUri),
    registerModel(parts),
    followEditors((document) => {
      server.notify(DID_FOCUS, { textDocument: { uri: document.uri.toString() } });
    }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      const before = told;
      told = toldNow();
      if (event.affectsConfiguration('qmlx.server') || withdrawn(before, told)) {
        void server.restart();
      } else if (event.affectsConfiguration('qmlx')) {
        server.notify('workspace/didChangeConfiguration', { settings: null }); // it asks for what it wants
      }
    }),
    // A connection that was told of an untrusted folder stays so: settings cannot give trust.
    vscode.workspace.onDidGrantWorkspaceTrust(() => server.restart()),
  );
  void server.start();
}

/** Everything is disposed of with the context. */
export function deactivate(): void {
  return;
}
