/**
 * What travels between the server and this extension, as types: the server's own methods and its commands.
 * Nothing else: it must never hold logic, and names what the server's README names, in the same words.
 */

export const ASK = 'qmlx/ask';
export const STATUS = 'qmlx/status';
export const STREAM = 'qmlx/stream';
export const DID_CHANGE_STATUS = 'qmlx/didChangeStatus';
export const DID_FOCUS = 'qmlx/didFocus';

/** Cancelled by its user (LSP 3.18, `RequestCancelled`). */
export const REQUEST_CANCELLED = -32800;

/** What a turn cost, in tokens. */
export interface Usage {
  readonly live: number;
  readonly restored: number;
  readonly prefilled: number;
  readonly generated: number;
  readonly decode_tps?: number | null;
  readonly ttft_ms?: number | null;
}

export interface Position {
  readonly line: number;
  readonly character: number;
}

export interface Range {
  readonly start: Position;
  readonly end: Position;
}

/** What a question or a command is about. */
export interface Place {
  readonly uri?: string;
  readonly range?: Range;
  readonly root?: string;
}

/** The one argument of the commands that ask the model. */
export interface CommandArgument extends Place {
  readonly text?: string;
  readonly instruction?: string;
  readonly diagnostic?: unknown;
  readonly name?: string;
}

export interface AskResult {
  readonly turnId: number | null;
  readonly text: string;
  readonly finish: 'complete' | 'length' | 'cancelled' | 'error';
  readonly usage: Usage;
  readonly error?: string;
}

export interface StreamParams {
  readonly jobId: string;
  readonly seq: number;
  readonly delta: string;
  readonly done: boolean;
}

export interface DidChangeStatusParams {
  readonly kind: string;
  readonly busy: boolean;
  readonly message: string;
  readonly model: string;
  readonly root: string | null;
}

export interface ConversationStatus {
  readonly root: string;
  readonly tokens: number;
  readonly live_tokens: number;
  /** Of its last turn. */
  readonly usage: Usage | null;
}

export interface StatusResult {
  readonly version: string;
  readonly clients: number;
  readonly model: {
    readonly name: string;
    readonly state: string;
    readonly message: string;
    readonly percent: number | null;
    readonly context_tokens: number | null;
  };
  readonly conversations: readonly ConversationStatus[];
}
