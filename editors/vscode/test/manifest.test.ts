import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { KINDS } from '../src/kinds.ts';
import { TOLD } from '../src/settings.ts';

interface Manifest {
  contributes: {
    commands: { command: string; title: string; category: string }[];
    menus: Record<string, { command?: string; submenu?: string }[]>;
    configuration: { properties: Record<string, { scope: string; markdownDescription: string }> };
    walkthroughs: { steps: { description: string; media: { markdown: string } }[] }[];
  };
}

const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as Manifest;
const { commands, menus, configuration, walkthroughs } = manifest.contributes;
const declared = new Set(commands.map((one) => one.command));
const source = readdirSync('src')
  .map((file) => readFileSync(`src/${file}`, 'utf8'))
  .join('\n');

test('every command has a title and the category', () => {
  for (const one of commands) {
    assert.ok(one.title && one.category === 'qmlx', one.command);
  }
});

test('every declared command is registered', () => {
  const assisting = new Set(KINDS.map((kind) => `qmlx.${kind.name}`));
  for (const command of declared) {
    assert.ok(assisting.has(command) || source.includes(`'${command}'`), command);
  }
});

test('menus, walkthrough and tooltips name only commands that there are', () => {
  const links = [source, ...walkthroughs.flatMap((one) => one.steps.map((step) => step.description))].flatMap(
    (text) => [...text.matchAll(/\(command:(qmlx\.\w+)\)/g)].map((match) => match[1] ?? ''),
  );
  const inMenus = Object.values(menus)
    .flat()
    .flatMap((item) => (item.command?.startsWith('qmlx.') ? [item.command] : []));
  for (const command of [...links, ...inMenus]) {
    assert.ok(declared.has(command), command);
  }
});

test('every key that the server is told is a setting with a description', () => {
  for (const key of TOLD) {
    assert.ok(configuration.properties[`qmlx.${key}`]?.markdownDescription, key);
  }
});

test('a project cannot choose what is run', () => {
  for (const [key, setting] of Object.entries(configuration.properties)) {
    if (key.startsWith('qmlx.server.')) {
      assert.equal(setting.scope, 'machine', key);
    }
  }
});

test('pages of the walkthrough are there', () => {
  for (const step of walkthroughs.flatMap((one) => one.steps)) {
    assert.ok(readFileSync(step.media.markdown, 'utf8').length > 0);
  }
});
