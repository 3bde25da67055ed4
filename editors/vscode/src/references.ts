/**
 * References of a chat as mentions in a question: `@src/a.py`, `@src/a.py:10-40`, `@"a b.py":7`. Pure.
 *
 * Invariant: a mention is what the server reads as that path and those lines, or there is none and the reason is said.
 */
import * as path from 'node:path';

/** A file or a part of one; lines count from 1, both ends included. */
export interface Reference {
  readonly file: string;
  readonly lines?: readonly [number, number];
}

export interface Mentioned {
  readonly mentions: string[];
  /** One line for each reference that cannot be mentioned. */
  readonly left: string[];
}

export function mention(root: string, reference: Reference): string | undefined {
  const relative = path.relative(root, reference.file);
  const inside =
    relative !== '' && relative !== '..' && !relative.startsWith(`..${path.sep}`) && !path.isAbsolute(relative);
  const said = relative.split(path.sep).join('/');
  if (!inside || /["\n\r]/.test(said)) {
    return undefined;
  }
  const plain = /^[^\s"@`'<>|*]+$/.test(said) && !/[.,;:!?)\]}…]$/.test(said) && !/:\d+(-\d+)?$/.test(said);
  const named = plain ? `@${said}` : `@"${said}"`;
  if (!reference.lines) {
    return named;
  }
  const [first, last] = reference.lines;
  return first === last ? `${named}:${first}` : `${named}:${first}-${last}`;
}

export function mentioned(root: string, references: readonly Reference[]): Mentioned {
  const mentions: string[] = [];
  const left: string[] = [];
  for (const reference of references) {
    const said = mention(root, reference);
    if (said === undefined) {
      left.push(`${path.basename(reference.file)} is not in ${path.basename(root)}, so it was left out.`);
    } else if (!mentions.includes(said)) {
      mentions.push(said);
    }
  }
  return { mentions, left };
}

/** The question with the mentions behind it, less those that it already has. */
export function withMentions(question: string, mentions: readonly string[]): string {
  const words = new Set(question.split(/\s+/));
  const missing = mentions.filter((one) => !words.has(one));
  return missing.length ? `${question}\n\n${missing.join(' ')}` : question;
}

/** Lines of a selection, from 1; a selection that ends before a line's first character does not touch that line. */
export function linesOf(range: {
  readonly start: { line: number; character: number };
  readonly end: { line: number; character: number };
}): [number, number] {
  const last = range.end.character === 0 && range.end.line > range.start.line ? range.end.line - 1 : range.end.line;
  return [range.start.line + 1, last + 1];
}
