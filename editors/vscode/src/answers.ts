/**
 * Answers as read-only Markdown documents that grow while they are written, beside the code.
 *
 * Invariant: an answer that is open is never taken away; of the others the newest `ANSWERS_MAX` are kept.
 */
import * as vscode from 'vscode';
import { fileName } from './kinds.ts';

export const SCHEME = 'qmlx';
const ANSWERS_MAX = 50;
/** Milliseconds between two looks at a growing answer, so that an editor is not redrawn at every word. */
const REDRAW_MS = 60;

export interface Answer {
  readonly uri: vscode.Uri;
  /** What is written behind the heading while there is no text yet. */
  wait(text: string): void;
  append(delta: string): void;
  /** Nothing more comes; `note` is one line below the text. */
  end(note: string): void;
}

export class Answers implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly registered: vscode.Disposable;
  private number = 0;
  readonly onDidChange = this.changed.event;

  constructor() {
    this.registered = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? 'This answer is not kept any more; the conversation has it.\n';
  }

  /** A new answer, not shown yet. */
  begin(title: string): Answer {
    this.number += 1;
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${fileName(title)}.md`, query: String(this.number) });
    const head = `# ${title}\n\n`;
    let body = '';
    let timer: NodeJS.Timeout | undefined;
    const write = (text: string): void => {
      this.texts.set(uri.toString(), text);
      timer ??= setTimeout(() => {
        timer = undefined;
        this.changed.fire(uri);
      }, REDRAW_MS);
    };
    write(head);
    this.tidy();
    return {
      uri,
      wait: (text) => {
        if (!body) {
          write(`${head}*${text}*\n`);
        }
      },
      append: (delta) => {
        body += delta;
        write(head + body);
      },
      end: (note) => {
        const parts = [body.trimEnd(), note ? `*${note}*` : ''].filter((part) => part);
        write(`${head}${parts.join('\n\n')}\n`);
      },
    };
  }

  async show(answer: Answer): Promise<void> {
    const document = await vscode.workspace.openTextDocument(answer.uri);
    const column =
      vscode.window.activeTextEditor?.document.uri.scheme === SCHEME
        ? vscode.ViewColumn.Active
        : vscode.ViewColumn.Beside;
    await vscode.window.showTextDocument(document, { viewColumn: column, preserveFocus: true, preview: false });
  }

  dispose(): void {
    this.registered.dispose();
    this.changed.dispose();
  }

  private tidy(): void {
    const open = new Set(vscode.workspace.textDocuments.map((document) => document.uri.toString()));
    for (const uri of this.texts.keys()) {
      if (this.texts.size <= ANSWERS_MAX) {
        return;
      }
      if (!open.has(uri)) {
        this.texts.delete(uri);
      }
    }
  }
}
