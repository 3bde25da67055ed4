/**
 * Where the server's program may be. Pure: what is on the disk is asked through `isProgram`.
 *
 * It must never look into the project: a repository must not choose what is run.
 *
 * Invariant: a path that its user has set is the only one that is tried; a wrong one is said, not worked around.
 */
import * as path from 'node:path';

export const PROGRAM = 'qmlx-lsp';

export interface Surroundings {
  /** `qmlx.server.path`, empty where it is not set. */
  readonly configured: string;
  /** The environment's PATH. */
  readonly searched: string;
  readonly home: string;
  /** The folder that this extension may write to. */
  readonly storage: string;
}

export type Found = { readonly program: string } | { readonly missing: string };

/** The programs to try, the first one first; only absolute paths. */
export function candidates(around: Surroundings): string[] {
  const given = around.configured.trim();
  const searched = around.searched.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  if (given) {
    const expanded = given.replace(/^~(?=$|[/\\])/, around.home);
    const bare = !/[/\\]/.test(expanded);
    return bare ? searched.map((folder) => path.join(folder, expanded)) : path.isAbsolute(expanded) ? [expanded] : [];
  }
  const usual = [
    path.join(ownVenv(around.storage), 'bin'),
    path.join(around.home, '.local', 'bin'),
    path.join(around.home, '.local', 'share', 'uv', 'tools', PROGRAM, 'bin'),
    path.join(around.home, '.local', 'pipx', 'venvs', PROGRAM, 'bin'),
    '/opt/homebrew/bin',
    '/usr/local/bin',
  ];
  return [...new Set([...searched, ...usual])].map((folder) => path.join(folder, PROGRAM));
}

/** The virtual environment that "Install" makes. */
export function ownVenv(storage: string): string {
  return path.join(storage, 'venv');
}

export function find(around: Surroundings, isProgram: (file: string) => boolean): Found {
  const program = candidates(around).find(isProgram);
  if (program !== undefined) {
    return { program };
  }
  const given = around.configured.trim();
  return given
    ? { missing: `qmlx.server.path is ${given}, but there is no program.` }
    : { missing: `${PROGRAM} was not found in PATH or the usual places.` };
}
