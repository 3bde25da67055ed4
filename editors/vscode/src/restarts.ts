/**
 * Whether a server that has ended by itself is to be started again. Pure: the clock is the caller's.
 *
 * Invariant: one that ends again and again is left alone after `RESTARTS_MAX` times in `RESTARTS_WINDOW_MS`, so that a
 * server that cannot run does not keep a machine busy.
 */

export const RESTARTS_MAX = 4;
export const RESTARTS_WINDOW_MS = 3 * 60_000;

export class Restarts {
  private times: number[] = [];

  /** It has ended at `nowMs`; whether to start it again. */
  allowed(nowMs: number): boolean {
    this.times = [...this.times.filter((time) => nowMs - time < RESTARTS_WINDOW_MS), nowMs];
    return this.times.length <= RESTARTS_MAX;
  }

  /** Its user has asked for a start: what was before does not count. */
  forget(): void {
    this.times = [];
  }
}
