import assert from 'node:assert/strict';
import { test } from 'node:test';
import { escaped, render, small, type State } from '../src/status.ts';
import type { DidChangeStatusParams, StatusResult, Usage } from '../src/protocol.ts';

const usage: Usage = { live: 2_000, restored: 622, prefilled: 20, generated: 24 };
const status: StatusResult = {
  version: '0.1.0',
  clients: 1,
  model: { name: 'embedded', state: 'ready', message: '', percent: 100, context_tokens: 8_192 },
  conversations: [{ root: '/home/a/my_parser', tokens: 2_666, live_tokens: 2_640, usage }],
};
const says = (said: Partial<DidChangeStatusParams>): DidChangeStatusParams => ({
  kind: 'Normal',
  busy: false,
  message: '',
  model: 'embedded',
  root: null,
  ...said,
});
const roots = ['/home/a/my_parser'];
const running: State = { phase: 'running', running: 0, roots, status };

test('at rest it shows what the last turn read and kept', () => {
  const shown = render(running);
  assert.equal(shown.text, '$(sparkle) qmlx · 20 read, 2,622 kept');
  assert.equal(shown.command, 'qmlx.menu');
  assert.equal(shown.colour, undefined);
});

test('before the first turn there are no figures', () => {
  assert.equal(render({ phase: 'running', running: 0, roots }).text, '$(sparkle) qmlx');
  assert.equal(render({ ...running, roots: ['/elsewhere'] }).text, '$(sparkle) qmlx');
});

test('of several folders that one counts of which the server spoke last, and never one of another window', () => {
  const other = {
    root: '/home/a/lexer',
    tokens: 7,
    live_tokens: 7,
    usage: { live: 1, restored: 2, prefilled: 4, generated: 8 },
  };
  const both = { ...status, conversations: [other, ...status.conversations] };
  const said = says({ root: '/home/a/lexer' });
  assert.equal(render({ ...running, said, status: both }).text, '$(sparkle) qmlx · 20 read, 2,622 kept');
  const wide = { ...running, status: both, roots: [...roots, '/home/a/lexer'] };
  assert.equal(render({ ...wide, said }).text, '$(sparkle) qmlx · 4 read, 3 kept');
  assert.equal(
    render({ ...wide, said: says({ root: '/home/a/my_parser' }) }).text,
    '$(sparkle) qmlx · 20 read, 2,622 kept',
  );
  assert.ok(!render({ ...running, status: both }).tooltip.includes('lexer'));
});

test('the tooltip says where the tokens of the last turn were, and of the conversation', () => {
  const { tooltip } = render(running);
  assert.match(tooltip, /20 read, 2,000 in memory, 622 restored, 24 written/);
  assert.match(tooltip, /my\\_parser: 2,666 tokens, 2,640 of them in memory/);
  assert.match(tooltip, /\(command:qmlx\.newConversation\)/);
});

test('an answer of this window spins and is cancelled by a click', () => {
  const shown = render({ ...running, running: 1, said: says({ kind: 'Busy', busy: true, message: 'answering' }) });
  assert.equal(shown.text, '$(loading~spin) qmlx: answering $(stop-circle)');
  assert.equal(shown.command, 'qmlx.cancel');
});

test("another window's answer spins and a click cancels nothing", () => {
  const shown = render({ ...running, said: says({ kind: 'Busy', busy: true, message: 'answering' }) });
  assert.equal(shown.text, '$(loading~spin) qmlx: answering');
  assert.equal(shown.command, 'qmlx.menu');
});

test('while the model comes its own words are shown, though a question waits for it', () => {
  const said = says({ kind: 'Busy', busy: true, message: 'downloading 45 of 98 MB' });
  assert.equal(render({ ...running, running: 1, said }).text, '$(sync~spin) qmlx: downloading 45 of 98 MB');
});

test('long words are cut to one short line', () => {
  const said = says({ kind: 'Busy', busy: true, message: `${'x'.repeat(100)}\nmore` });
  assert.equal(render({ ...running, said }).text, `$(sync~spin) qmlx: ${'x'.repeat(47)}…`);
});

test('a model that cannot be had is an error, and why stands in the tooltip', () => {
  const shown = render({ ...running, said: says({ kind: 'Error', message: 'no such folder' }) });
  assert.equal(shown.colour, 'error');
  assert.match(shown.tooltip, /no such folder/);
});

for (const [phase, text, colour, link] of [
  ['missing', '$(warning) qmlx: not installed', 'warning', 'qmlx.install'],
  ['failed', '$(error) qmlx: failed', 'error', 'qmlx.showLog'],
  ['stopped', '$(debug-disconnect) qmlx: stopped', 'warning', 'qmlx.restart'],
] as const) {
  test(`a server that is ${phase} is coloured, with the reason and what to do`, () => {
    const shown = render({ phase, running: 0, roots, reason: 'because of that', status });
    assert.equal(shown.text, text);
    assert.equal(shown.colour, colour);
    assert.match(shown.tooltip, /because of that/);
    assert.ok(shown.tooltip.includes(`(command:${link})`));
    assert.ok(!shown.tooltip.includes('2,622'), 'figures of a server that does not run');
  });
}

test('a starting server says so', () => {
  assert.equal(render({ phase: 'starting', running: 0, roots }).text, '$(sync~spin) qmlx: starting');
});

test("somebody else's text cannot become a link to a command", () => {
  const { tooltip } = render({ phase: 'failed', running: 0, roots, reason: '[x](command:workbench.action.quit)' });
  assert.ok(!tooltip.includes('](command:workbench'));
  assert.equal(escaped('[x](command:y)'), '\\[x\\]\\(command:y\\)');
});

test('the small print of an answer', () => {
  assert.equal(small(usage), '20 tokens read, 2,622 kept');
});
