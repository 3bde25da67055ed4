/**
 * What "Install" installs from, and with which Python. Pure.
 *
 * It must never name a package for an index to find: this one is on none, and whoever took its name would be run.
 *
 * Invariant: only a folder or a wheel that says it is this project is installed.
 */
import * as path from 'node:path';

export const PYTHON_LOW: readonly [number, number] = [3, 11];

/** Why nothing can be installed from `chosen`, in one line; undefined if it can. `readText` is undefined for no file. */
export function unfit(chosen: string, readText: (file: string) => string | undefined): string | undefined {
  if (chosen.endsWith('.whl')) {
    const ours = /^qmlx_lsp-[^-]+-.*\.whl$/.test(path.basename(chosen));
    return ours ? undefined : `${path.basename(chosen)} is no wheel of qmlx-lsp.`;
  }
  const project = readText(path.join(chosen, 'pyproject.toml'));
  if (project === undefined) {
    return `${chosen} has no pyproject.toml: choose the folder of a clone of qmlx-lsp, or a wheel.`;
  }
  return /^name\s*=\s*["']qmlx-lsp["']/m.test(project) ? undefined : `${chosen} is another project, not qmlx-lsp.`;
}

/** Programs that may be a Python that is new enough, the likeliest first. */
export const PYTHONS: readonly string[] = ['python3', 'python3.14', 'python3.13', 'python3.12', 'python3.11'];

/** Whether `printed` (`3 12`) names a version that is new enough. */
export function newEnough(printed: string): boolean {
  const [major = 0, minor = 0] = printed.trim().split(/\s+/).map(Number);
  return major > PYTHON_LOW[0] || (major === PYTHON_LOW[0] && minor >= PYTHON_LOW[1]);
}
