import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Jobs, UNFOLLOWED_MAX } from '../src/jobs.ts';

const delta = (jobId: string, seq: number, text: string) => ({ jobId, seq, delta: text, done: false });
const done = (jobId: string, seq: number) => ({ jobId, seq, delta: '', done: true });

test('text that comes after the follower is given to it as it comes', async () => {
  const jobs = new Jobs();
  const seen: string[] = [];
  const end = jobs.follow('7', (text) => seen.push(text));
  jobs.arrive(delta('7', 0, 'one '));
  jobs.arrive(delta('7', 1, 'two'));
  assert.deepEqual(seen, ['one ', 'two']);
  jobs.arrive(done('7', 2));
  await end;
  assert.deepEqual(seen, ['one ', 'two']);
});

test('text that came before the acknowledgement was seen is not lost, nor given twice', async () => {
  const jobs = new Jobs();
  const seen: string[] = [];
  jobs.arrive(delta('7', 0, 'one '));
  jobs.arrive(delta('7', 1, 'two '));
  const end = jobs.follow('7', (text) => seen.push(text));
  jobs.arrive(delta('7', 2, 'three'));
  jobs.arrive(done('7', 3));
  await end;
  assert.equal(seen.join(''), 'one two three');
});

test('a job that was done before anybody followed it ends at once, with all of its text', async () => {
  const jobs = new Jobs();
  const seen: string[] = [];
  jobs.arrive(delta('7', 0, 'all'));
  jobs.arrive(done('7', 1));
  await jobs.follow('7', (text) => seen.push(text));
  assert.deepEqual(seen, ['all']);
});

test('streams do not mix', async () => {
  const jobs = new Jobs();
  const seen: string[] = [];
  const end = jobs.follow('7', (text) => seen.push(text));
  jobs.arrive(delta('8', 0, 'of another job'));
  jobs.arrive(delta('7', 0, 'mine'));
  jobs.arrive(done('8', 1));
  jobs.arrive(done('7', 1));
  await end;
  assert.deepEqual(seen, ['mine']);
});

test('the end of the connection is the end of every job, with the reason', async () => {
  const jobs = new Jobs();
  const end = jobs.follow('7', () => undefined);
  jobs.fail(new Error('gone'));
  await assert.rejects(end, /gone/);
});

test('what an earlier connection streamed is not taken for a job of the next one, which counts anew', async () => {
  const jobs = new Jobs();
  const seen: string[] = [];
  jobs.arrive(delta('7', 0, 'of the dead'));
  jobs.fail(new Error('gone'));
  const end = jobs.follow('7', (text) => seen.push(text));
  jobs.arrive(delta('7', 0, 'of the living'));
  jobs.arrive(done('7', 1));
  await end;
  assert.deepEqual(seen, ['of the living']);
});

test('streams that nobody follows are bounded, the oldest go first, and followed ones stay', async () => {
  const jobs = new Jobs();
  const followed: string[] = [];
  const end = jobs.follow('mine', (text) => followed.push(text));
  for (let n = 0; n <= UNFOLLOWED_MAX; n += 1) {
    jobs.arrive(delta(String(n), 0, `text ${n}`));
  }
  const oldest: string[] = [];
  void jobs.follow('0', (text) => oldest.push(text));
  const newest: string[] = [];
  void jobs.follow(String(UNFOLLOWED_MAX), (text) => newest.push(text));
  jobs.arrive(delta('mine', 0, 'here'));
  jobs.arrive(done('mine', 1));
  await end;
  assert.deepEqual([oldest, newest, followed], [[], [`text ${UNFOLLOWED_MAX}`], ['here']]);
});
