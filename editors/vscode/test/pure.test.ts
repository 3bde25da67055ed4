import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lastLine, oneLine, wasCancelled, wasCutOff } from '../src/errors.ts';
import { candidates, find } from '../src/executable.ts';
import { fileName, KINDS, kindOf, placeTitle, toBeShown } from '../src/kinds.ts';
import { newest, roughTokens } from '../src/messages.ts';
import { newEnough, unfit } from '../src/packages.ts';
import { Restarts, RESTARTS_MAX, RESTARTS_WINDOW_MS } from '../src/restarts.ts';
import { told, withdrawn } from '../src/settings.ts';

const around = { configured: '', searched: '/one:/two', home: '/home/a', storage: '/store' };

test('the program is looked for in PATH first, then in the own environment and the usual places', () => {
  const found = candidates(around);
  assert.deepEqual(found.slice(0, 3), ['/one/qmlx-lsp', '/two/qmlx-lsp', '/store/venv/bin/qmlx-lsp']);
  assert.ok(found.includes('/home/a/.local/bin/qmlx-lsp'));
  assert.ok(found.includes('/opt/homebrew/bin/qmlx-lsp'));
});

test('a folder of PATH that is relative is not looked into: it would be the project', () => {
  assert.deepEqual(candidates({ ...around, searched: '.:node_modules/.bin::/two', configured: 'mine' }), [
    '/two/mine',
  ]);
  assert.ok(candidates({ ...around, searched: '.:./bin' }).every((file) => file.startsWith('/')));
});

test('what is set is the only one that is tried', () => {
  assert.deepEqual(candidates({ ...around, configured: '/x/qmlx-lsp' }), ['/x/qmlx-lsp']);
  assert.deepEqual(candidates({ ...around, configured: '~/bin/q' }), ['/home/a/bin/q']);
  assert.deepEqual(candidates({ ...around, configured: './bin/q' }), []);
  const found = find({ ...around, configured: '/x/nothing' }, (file) => file === '/one/qmlx-lsp');
  assert.deepEqual(found, { missing: 'qmlx.server.path is /x/nothing, but there is no program.' });
});

test('the first that is a program is taken', () => {
  assert.deepEqual(
    find(around, (file) => !file.startsWith('/one')),
    { program: '/two/qmlx-lsp' },
  );
  assert.deepEqual(
    find(around, () => false),
    { missing: 'qmlx-lsp was not found in PATH or the usual places.' },
  );
});

test('a server that ends is started again, but not for ever', () => {
  const restarts = new Restarts();
  for (let n = 0; n < RESTARTS_MAX; n += 1) {
    assert.equal(restarts.allowed(n), true);
  }
  assert.equal(restarts.allowed(RESTARTS_MAX), false);
  assert.equal(restarts.allowed(RESTARTS_MAX + RESTARTS_WINDOW_MS), true, 'what was long ago does not count');
});

test('a start that its user asks for forgets the ends before', () => {
  const restarts = new Restarts();
  for (let n = 0; n <= RESTARTS_MAX; n += 1) {
    restarts.allowed(0);
  }
  restarts.forget();
  assert.equal(restarts.allowed(1), true);
});

test('only what is set is told, in the shape of the section', () => {
  const set: Record<string, object> = {
    exclude: { globalValue: ['*.gen.py'], workspaceFolderValue: ['build/'] },
    'inline.maxLines': { workspaceValue: 3, globalValue: 9 },
    'inline.enable': { globalValue: false },
    'inline.debounceMs': { globalValue: null },
    'server.path': { globalValue: '/x' },
  };
  assert.deepEqual(
    told((key) => set[key], true),
    { exclude: ['build/'], inline: { maxLines: 3, enable: false } },
  );
});

test('an untrusted workspace is told as such, whatever is set', () => {
  assert.deepEqual(
    told(() => undefined, false),
    { trusted: false },
  );
  assert.deepEqual(
    told((key) => (key === 'trusted' ? { globalValue: true } : undefined), false),
    { trusted: false },
  );
  assert.deepEqual(
    told((key) => (key === 'trusted' ? { globalValue: false } : undefined), true),
    { trusted: false },
  );
});

test('what a connection cannot be told to forget needs a new one', () => {
  const inline = { inline: { enable: false, maxLines: 3 } };
  assert.equal(withdrawn(inline, { inline: { enable: true, maxLines: 9 }, exclude: [] }), false);
  assert.equal(withdrawn(inline, { inline: { enable: false } }), true);
  assert.equal(withdrawn({ exclude: ['a'] }, {}), true);
  assert.equal(withdrawn({ exclude: ['a'] }, { exclude: [] }), false);
  assert.equal(withdrawn({ trusted: false }, { trusted: true }), true);
  assert.equal(withdrawn({ trusted: true }, { trusted: false }), false);
  assert.equal(withdrawn({ 'file:///a': { exclude: ['a'] } }, { 'file:///a': {} }), true);
});

test('of a chat only what stands behind the last reply is asked', () => {
  assert.equal(
    newest([
      { role: 'user', text: 'a' },
      { role: 'assistant', text: 'b' },
      { role: 'user', text: ' c ' },
    ]),
    'c',
  );
  assert.equal(
    newest([
      { role: 'user', text: 'a' },
      { role: 'user', text: '' },
      { role: 'user', text: 'b' },
    ]),
    'a\n\nb',
  );
  assert.equal(
    newest([
      { role: 'user', text: 'a' },
      { role: 'assistant', text: 'b' },
    ]),
    '',
  );
  assert.equal(roughTokens('123456789'), 3);
});

test('an error is one short line', () => {
  assert.equal(oneLine(new Error('\n  first\n    at somewhere (x.js:1)')), 'first');
  assert.equal(oneLine('plain'), 'plain');
  assert.equal(oneLine(new Error('y'.repeat(999))).length, 300);
});

test('a cancel and a connection that has ended are told from errors', () => {
  assert.ok(wasCancelled(Object.assign(new Error('x'), { code: -32800 })));
  assert.ok(!wasCancelled(new Error('x')));
  assert.ok(wasCutOff(Object.assign(new Error('x'), { code: -32097 })));
  assert.ok(!wasCutOff(Object.assign(new Error('x'), { code: -32803 })));
});

test('why a program has ended is its last line', () => {
  assert.equal(
    lastLine('warming up\nqmlx-lsp: config.toml: model.nam is no setting.\n\n'),
    'config.toml: model.nam is no setting.',
  );
  assert.equal(lastLine(''), undefined);
});

test('an answer that changed nothing has to be shown; one that did, or was not wanted any more, has not', () => {
  assert.ok(toBeShown('rewrite: not applied: the lines have changed'));
  assert.ok(toBeShown('tests: no file made: the answer is not one block of code'));
  assert.ok(!toBeShown('fix: applied'));
  assert.ok(!toBeShown('tests: tests/test_parser.py made'));
  assert.ok(!toBeShown('rewrite: cancelled, nothing was changed'));
});

test('kinds have the names of the commands', () => {
  assert.deepEqual(
    KINDS.map((kind) => kind.name),
    ['ask', 'explain', 'fix', 'rewrite', 'document', 'tests', 'doComment'],
  );
  assert.throws(() => kindOf('nothing'), /no command qmlx.nothing/);
});

test('headings and names of files', () => {
  assert.equal(placeTitle('parser.py', [3, 9]), 'parser.py, lines 3 to 9');
  assert.equal(placeTitle('parser.py', [3, 3]), 'parser.py, line 3');
  assert.equal(placeTitle('parser.py', undefined), 'parser.py');
  assert.equal(fileName('Why is a/b\n so "odd"?'), 'Why is a b so odd');
});

test('only what says that it is this project is installed', () => {
  const reads = (text: string) => () => text;
  assert.equal(unfit('/c', reads('[project]\nname = "qmlx-lsp"\n')), undefined);
  assert.match(unfit('/c', reads('[project]\nname = "qmlx-lsp-evil"\n')) ?? '', /another project/);
  assert.match(unfit('/c', () => undefined) ?? '', /no pyproject\.toml/);
  assert.equal(
    unfit('/c/qmlx_lsp-0.1.0-py3-none-any.whl', () => undefined),
    undefined,
  );
  assert.match(unfit('/c/other-0.1.0-py3-none-any.whl', () => undefined) ?? '', /no wheel of qmlx-lsp/);
});

test('which Python is new enough', () => {
  assert.deepEqual(['3 11', '3 14\n', '4 0', '3 10', '2 7', ''].map(newEnough), [
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
});
