/**
 * What the server is told when it asks for the section `qmlx` of the settings. Pure: what was set is the caller's to
 * read.
 *
 * Invariant: only what its user has set is told, so that the daemon's own settings hold for the rest.
 * Invariant: an untrusted workspace is never told as trusted.
 */

/** The keys that the server understands. Those of `server.*` and `trace.*` are for this extension alone. */
export const TOLD = [
  'exclude',
  'trusted',
  'inline.enable',
  'inline.debounceMs',
  'inline.maxTokens',
  'inline.maxLines',
  'completion.list',
] as const;

/** One setting as the editor knows it: the value in each place, undefined where nothing was set there. */
export interface Inspected {
  readonly globalValue?: unknown;
  readonly workspaceValue?: unknown;
  readonly workspaceFolderValue?: unknown;
}

export function told(
  inspect: (key: string) => Inspected | undefined,
  workspaceTrusted: boolean,
): Record<string, unknown> {
  const section: Record<string, unknown> = {};
  for (const key of TOLD) {
    const found = inspect(key);
    const value = found?.workspaceFolderValue ?? found?.workspaceValue ?? found?.globalValue;
    if (value !== undefined && value !== null) {
      put(section, key.split('.'), value);
    }
  }
  if (!workspaceTrusted) {
    section['trusted'] = false;
  }
  return section;
}

/**
 * Whether something that was told no longer is, or trust that was taken away is given. A connection keeps what it was
 * told once, so that only a new one forgets it.
 */
export function withdrawn(before: Record<string, unknown>, after: Record<string, unknown>): boolean {
  return Object.entries(before).some(([key, value]) => {
    const now = after[key];
    if (now === undefined || (key === 'trusted' && value !== true && now === true)) {
      return true;
    }
    return isSection(value) && isSection(now) && withdrawn(value, now);
  });
}

function isSection(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function put(section: Record<string, unknown>, parts: string[], value: unknown): void {
  const [first, ...rest] = parts;
  if (first === undefined) {
    return;
  }
  if (!rest.length) {
    section[first] = value;
    return;
  }
  const inner = (section[first] ??= {}) as Record<string, unknown>;
  put(inner, rest, value);
}
