/**
 * The commands that ask the model, as this extension knows them. Pure: titles, what they need, and how their end reads.
 *
 * Their names are the server's and never change: keys and scripts rely on them.
 */

export interface Kind {
  /** The command's name behind `qmlx.`, which is also what its end begins with. */
  readonly name: string;
  /** How an answer is headed. */
  readonly title: string;
  /** What its user has to be asked for, if a command brings no text. */
  readonly asks?: { readonly prompt: string; readonly placeholder: string };
  /** Whether its answer is read, or changes something. */
  readonly shows: boolean;
}

export const KINDS: readonly Kind[] = [
  {
    name: 'ask',
    title: 'Answer',
    asks: {
      prompt: 'What do you want to know?',
      placeholder: 'Why is this loop needed? Files can be named: @src/lexer.py:10-40',
    },
    shows: true,
  },
  { name: 'explain', title: 'Explanation', shows: true },
  { name: 'fix', title: 'Fix', shows: false },
  {
    name: 'rewrite',
    title: 'Rewrite',
    asks: { prompt: 'How is it to be changed?', placeholder: 'make it iterative' },
    shows: false,
  },
  { name: 'document', title: 'Documentation', shows: false },
  { name: 'tests', title: 'Tests', shows: false },
  { name: 'doComment', title: 'What the comment says', shows: false },
];

export function kindOf(name: string): Kind {
  const kind = KINDS.find((one) => one.name === name);
  if (!kind) {
    throw new Error(`There is no command qmlx.${name}.`);
  }
  return kind;
}

/** Whether the answer of a command that changes something has to be shown, because it has changed nothing. */
export function toBeShown(ending: string): boolean {
  return !/: (applied|cancelled\b.*|.* made|not run: .*)$/.test(ending);
}

/** Where an answer is about, for its heading: `parser.py, lines 3 to 9`. Lines count from 1. */
export function placeTitle(name: string, lines: readonly [number, number] | undefined): string {
  if (!lines) {
    return name;
  }
  const [first, last] = lines;
  return first === last ? `${name}, line ${first}` : `${name}, lines ${first} to ${last}`;
}

/** A part of a file's name: what editors and file systems cannot have in one is a space. */
export function fileName(title: string): string {
  return title
    .replace(/[\\/:*?"<>|\s]+/g, ' ')
    .trim()
    .slice(0, 80);
}
