/**
 * What a question or a command is about, from the editor: its document, the selection or the cursor, the folder.
 *
 * Invariant: the folder is that of the active document, else the only one there is, else its user is asked.
 */
import * as path from 'node:path';
import * as vscode from 'vscode';
import { linesOf } from './references.ts';
import { placeTitle } from './kinds.ts';
import type { Place, Range } from './protocol.ts';

const SCHEMES = new Set(['file', 'untitled', 'vscode-notebook-cell']);

/** The active document and what is selected there, if the server can know that document. */
export function activePlace(): { readonly uri: string; readonly range: Range } | undefined {
  const editor = vscode.window.activeTextEditor ?? lastEditor;
  if (!editor || !SCHEMES.has(editor.document.uri.scheme)) {
    return undefined;
  }
  const { selection, document } = editor;
  return { uri: document.uri.toString(), range: plain(selection) };
}

/** The editor that was looked at last: while a chat or an answer has the focus it is what is meant. */
let lastEditor: vscode.TextEditor | undefined;

export function followEditors(onFocus: (document: vscode.TextDocument) => void): vscode.Disposable {
  const take = (editor: vscode.TextEditor | undefined): void => {
    if (editor && SCHEMES.has(editor.document.uri.scheme)) {
      lastEditor = editor;
      onFocus(editor.document);
    } else if (lastEditor && !vscode.window.visibleTextEditors.includes(lastEditor)) {
      lastEditor = undefined;
    }
  };
  take(vscode.window.activeTextEditor);
  return vscode.window.onDidChangeActiveTextEditor(take);
}

export function plain(range: vscode.Range): Range {
  return {
    start: { line: range.start.line, character: range.start.character },
    end: { line: range.end.line, character: range.end.character },
  };
}

/** The folder that is meant, as a path; undefined when there is none or its user has chosen none. */
export async function rootOf(uri: string | undefined): Promise<string | undefined> {
  const own = uri === undefined ? undefined : vscode.workspace.getWorkspaceFolder(vscode.Uri.parse(uri));
  const folders = vscode.workspace.workspaceFolders ?? [];
  if (own !== undefined || folders.length < 2) {
    return (own ?? folders[0])?.uri.fsPath;
  }
  const picked = await vscode.window.showWorkspaceFolderPick({ placeHolder: 'Which folder is it about?' });
  return picked?.uri.fsPath;
}

/** A place in words, for a heading. */
export function named(place: Place): string {
  if (place.uri === undefined) {
    return '';
  }
  const uri = vscode.Uri.parse(place.uri);
  const name = path.basename(uri.path) || uri.path;
  const selected = place.range && !isEmpty(place.range) ? place.range : undefined;
  return placeTitle(name, selected && linesOf(selected));
}

export function isEmpty(range: Range): boolean {
  return range.start.line === range.end.line && range.start.character === range.end.character;
}
