/**
 * Streams of jobs, by the job's id. A command is acknowledged with the id of its job, and text of that job may have
 * come before whoever gave the command has seen the acknowledgement: it is kept until somebody follows the job.
 *
 * It must never know an editor or a connection.
 *
 * Invariant: whoever follows a job is given every delta once, in order, and then one end.
 * Invariant: what nobody follows is bounded: streams of `qmlx/ask` come twice, and only one of the two is looked at.
 */
import type { StreamParams } from './protocol.ts';

/** Streams that are kept for somebody who may still come to follow them. */
export const UNFOLLOWED_MAX = 32;

interface Stream {
  text: string;
  done: boolean;
  follower?: { onDelta: (delta: string) => void; resolve: () => void; reject: (why: Error) => void };
}

export class Jobs {
  private readonly streams = new Map<string, Stream>();

  /** A `qmlx/stream` has come. */
  arrive(params: StreamParams): void {
    const stream = this.streams.get(params.jobId) ?? this.add(params.jobId);
    stream.done ||= params.done;
    if (!stream.follower) {
      stream.text += params.delta;
      return;
    }
    if (params.delta) {
      stream.follower.onDelta(params.delta);
    }
    if (params.done) {
      this.streams.delete(params.jobId);
      stream.follower.resolve();
    }
  }

  /** Call `onDelta` with what has come and what will; resolves when the stream is done, rejects when it never will. */
  follow(jobId: string, onDelta: (delta: string) => void): Promise<void> {
    const stream = this.streams.get(jobId) ?? this.add(jobId);
    if (stream.text) {
      onDelta(stream.text);
      stream.text = '';
    }
    if (stream.done) {
      this.streams.delete(jobId);
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      stream.follower = { onDelta, resolve, reject };
    });
  }

  /** The connection has ended: no more will come, and the next connection counts its ids anew. */
  fail(why: Error): void {
    const streams = [...this.streams.values()];
    this.streams.clear();
    for (const stream of streams) {
      stream.follower?.reject(why);
    }
  }

  private add(jobId: string): Stream {
    const unfollowed = [...this.streams].filter(([, stream]) => !stream.follower);
    if (unfollowed.length >= UNFOLLOWED_MAX && unfollowed[0]) {
      this.streams.delete(unfollowed[0][0]);
    }
    const stream: Stream = { text: '', done: false };
    this.streams.set(jobId, stream);
    return stream;
  }
}
