import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linesOf, mention, mentioned, withMentions } from '../src/references.ts';

const at = (line: number, character: number) => ({ line, character });

test('a file is named from the root', () => {
  assert.equal(mention('/p', { file: '/p/src/a.py' }), '@src/a.py');
});

test('lines stand behind it, one line once', () => {
  assert.equal(mention('/p', { file: '/p/src/a.py', lines: [10, 40] }), '@src/a.py:10-40');
  assert.equal(mention('/p', { file: '/p/src/a.py', lines: [7, 7] }), '@src/a.py:7');
});

test('names that would be read otherwise are quoted', () => {
  assert.equal(mention('/p', { file: '/p/a b.py', lines: [7, 7] }), '@"a b.py":7');
  assert.equal(mention('/p', { file: '/p/what?' }), '@"what?"');
  assert.equal(mention('/p', { file: '/p/odd:12' }), '@"odd:12"');
  assert.equal(mention('/p', { file: "/p/it's.py" }), '@"it\'s.py"');
});

test('what is not in the root, or is the root, or cannot be written, is no mention', () => {
  for (const file of ['/q/a.py', '/p', '/pp/a.py', '/p/a"b.py', '/p/a\nb.py']) {
    assert.equal(mention('/p', { file }), undefined, file);
  }
  assert.equal(mention('/p', { file: '/p/..a.py' }), '@..a.py');
});

test('each reference once, and what was left out is said', () => {
  const found = mentioned('/p', [{ file: '/p/a.py' }, { file: '/q/secret.py' }, { file: '/p/a.py' }]);
  assert.deepEqual(found.mentions, ['@a.py']);
  assert.deepEqual(found.left, ['secret.py is not in p, so it was left out.']);
});

test('mentions stand behind the question, less those that it has', () => {
  assert.equal(withMentions('Why?', ['@a.py', '@b.py:1-2']), 'Why?\n\n@a.py @b.py:1-2');
  assert.equal(withMentions('Why is @a.py so long?', ['@a.py']), 'Why is @a.py so long?');
});

test('lines of a selection count from 1, and one that ends at the start of a line does not touch it', () => {
  assert.deepEqual(linesOf({ start: at(2, 4), end: at(5, 1) }), [3, 6]);
  assert.deepEqual(linesOf({ start: at(2, 0), end: at(5, 0) }), [3, 5]);
  assert.deepEqual(linesOf({ start: at(2, 0), end: at(2, 0) }), [3, 3]);
});
