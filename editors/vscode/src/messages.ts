/**
 * What of a chat's messages is new to the server. The conversation lives there and is never sent again, so that only
 * what stands behind the last reply is asked. Pure.
 */

export type Role = 'user' | 'assistant';

export interface Message {
  readonly role: Role;
  readonly text: string;
}

/** The texts of the user's messages since the last reply; empty if there are none. */
export function newest(messages: readonly Message[]): string {
  const last = messages.map((message) => message.role).lastIndexOf('assistant');
  return messages
    .slice(last + 1)
    .map((message) => message.text.trim())
    .filter((text) => text)
    .join('\n\n');
}

/** Characters of a token, roughly: a token's true length depends on the model, and only the server knows it. */
export const CHARACTERS_A_TOKEN = 4;

export function roughTokens(text: string): number {
  return Math.ceil(text.length / CHARACTERS_A_TOKEN);
}
