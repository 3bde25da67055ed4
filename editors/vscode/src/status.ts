/**
 * What the status bar says. Pure: `render` of what is known.
 *
 * Invariant: figures are those that the server counted, and none are shown that it has not said.
 * Invariant: whatever is wrong is a click away from what can be done about it.
 */
import type { ConversationStatus, DidChangeStatusParams, StatusResult, Usage } from './protocol.ts';

export type Phase = 'starting' | 'running' | 'stopped' | 'missing' | 'failed';

export interface State {
  readonly phase: Phase;
  /** One line, of a server that is missing or has failed. */
  readonly reason?: string;
  /** What the server said last by itself. */
  readonly said?: DidChangeStatusParams;
  /** What it answered last when it was asked. */
  readonly status?: StatusResult;
  /** Questions and commands of this window that run. */
  readonly running: number;
  /** The folders of this window, as paths. */
  readonly roots: readonly string[];
}

export interface Shown {
  readonly text: string;
  /** Markdown with links to commands. */
  readonly tooltip: string;
  readonly command: string;
  readonly colour?: 'warning' | 'error';
}

const MENU = 'qmlx.menu';

export function render(state: State): Shown {
  const { phase, said } = state;
  if (phase === 'starting') {
    return { text: '$(sync~spin) qmlx: starting', tooltip: tooltip(state), command: MENU };
  }
  if (phase !== 'running') {
    return unwell(state);
  }
  if (said?.kind === 'Error') {
    return { text: '$(error) qmlx: no model', tooltip: tooltip(state), command: MENU, colour: 'error' };
  }
  if (said?.busy && !answering(said)) {
    return { text: `$(sync~spin) qmlx: ${short(said.message)}`, tooltip: tooltip(state), command: MENU };
  }
  if (state.running > 0) {
    return {
      text: '$(loading~spin) qmlx: answering $(stop-circle)',
      tooltip: tooltip(state),
      command: 'qmlx.cancel',
    };
  }
  if (said?.busy) {
    return { text: '$(loading~spin) qmlx: answering', tooltip: tooltip(state), command: MENU };
  }
  const usage = lastUsage(state);
  const figures = usage ? ` · ${count(usage.prefilled)} read, ${count(kept(usage))} kept` : '';
  return { text: `$(sparkle) qmlx${figures}`, tooltip: tooltip(state), command: MENU };
}

function unwell(state: State): Shown {
  const common = { tooltip: tooltip(state), command: MENU };
  if (state.phase === 'stopped') {
    return { ...common, text: '$(debug-disconnect) qmlx: stopped', colour: 'warning' };
  }
  const text = state.phase === 'missing' ? '$(warning) qmlx: not installed' : '$(error) qmlx: failed';
  return { ...common, text, colour: state.phase === 'missing' ? 'warning' : 'error' };
}

/** Another window's answers as well; everything else that takes time is the model on its way. */
function answering(said: DidChangeStatusParams): boolean {
  return said.message === 'answering';
}

/** Characters of the server's own words in the status bar. */
const SHORT = 48;

function short(message: string): string {
  const line = message.split('\n', 1)[0] ?? '';
  return line.length <= SHORT ? line : `${line.slice(0, SHORT - 1)}…`;
}

/** Of the last turn in this window's folders; of the one that the server spoke of last, where there are several. */
export function lastUsage(state: State): Usage | undefined {
  const ours = conversations(state).filter((one) => one.usage);
  return (ours.find((one) => one.root === state.said?.root) ?? ours[0])?.usage ?? undefined;
}

function conversations(state: State): readonly ConversationStatus[] {
  return (state.status?.conversations ?? []).filter((one) => state.roots.includes(one.root));
}

/** Tokens of a turn's context that did not have to be read. */
export function kept(usage: Usage): number {
  return usage.live + usage.restored;
}

export function count(tokens: number): string {
  return tokens.toLocaleString('en-US');
}

/** One line for the end of an answer. */
export function small(usage: Usage): string {
  return `${count(usage.prefilled)} tokens read, ${count(kept(usage))} kept`;
}

function tooltip(state: State): string {
  const lines: string[] = ['**qmlx**'];
  if (state.reason) {
    lines.push(escaped(state.reason));
  }
  const model = state.status?.model.name ?? state.said?.model;
  if (model && state.phase === 'running') {
    lines.push(`Model: ${escaped(model)}`);
  }
  const wrong = state.said?.kind === 'Error' || state.said?.kind === 'Warning';
  if (state.said?.message && (wrong || state.said.busy)) {
    lines.push(escaped(state.said.message));
  }
  const usage = lastUsage(state);
  if (usage && state.phase === 'running') {
    lines.push(turn(usage));
  }
  for (const conversation of state.phase === 'running' ? conversations(state) : []) {
    lines.push(conversationLine(conversation));
  }
  lines.push(links(state).join(' · '));
  return lines.join('\n\n');
}

function turn(usage: Usage): string {
  const parts = [
    `${count(usage.prefilled)} read`,
    `${count(usage.live)} in memory`,
    `${count(usage.restored)} restored`,
    `${count(usage.generated)} written`,
  ];
  return `Last turn, in tokens: ${parts.join(', ')}`;
}

function conversationLine(conversation: ConversationStatus): string {
  const name = conversation.root.split('/').pop() ?? conversation.root;
  return `${escaped(name)}: ${count(conversation.tokens)} tokens, ${count(conversation.live_tokens)} of them in memory`;
}

function links(state: State): string[] {
  if (state.phase === 'missing') {
    return [
      '[Install](command:qmlx.install)',
      '[Choose the program](command:qmlx.chooseServer)',
      '[Setup](command:qmlx.openSetup)',
    ];
  }
  if (state.phase !== 'running') {
    return ['[Restart](command:qmlx.restart)', '[Show log](command:qmlx.showLog)', '[Setup](command:qmlx.openSetup)'];
  }
  return [
    '[Conversation](command:qmlx.showConversation)',
    '[New conversation](command:qmlx.newConversation)',
    '[Model](command:qmlx.chooseModel)',
    '[Restart](command:qmlx.restart)',
  ];
}

/** Somebody else's text in Markdown, as it is. */
export function escaped(text: string): string {
  return text.replace(/[\\`*_{}[\]()#+!|<>~-]/g, '\\$&');
}
