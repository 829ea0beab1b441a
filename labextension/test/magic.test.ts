import { describe, expect, it } from 'vitest';

import { afterLoading, applied, IEdit, isOtherMagic, loads } from '../src/magic';
import { removeMagic, turnSwitch, writeMagic } from '../src/magic';

const after = (source: string, edit: IEdit | null): string | null => edit && applied(source, edit);

describe('writing a magic line', () => {
  it.each([
    ['a = 1\n', 'tpu_run', '', '%%tpu_run\na = 1\n'],
    ['', 'tpu_run', '', '%%tpu_run\n'],
    ['%%tpu_timeit -n 3\na', 'tpu_run', '', '%%tpu_run\na'],
    ['%%tpu_run --seed 1\na', 'tpu_check', '--target v5e-1', '%%tpu_check --target v5e-1\na'],
    [
      '%%tpu_check --target v4-1\na',
      'tpu_check',
      '--target v5e-1',
      '%%tpu_check --target v5e-1\na'
    ],
    ['%%tpu_run', 'tpu_timeit', '', '%%tpu_timeit'],
    ['# note\n%%tpu_run\na', 'tpu_run', '', '%%tpu_run\n# note\n%%tpu_run\na']
  ])('%j with %s %s', (source, name, options, wanted) => {
    expect(after(source, writeMagic(source, name, options))).toBe(wanted);
  });

  it.each([
    ['%%tpu_run --seed 1\na', 'tpu_run', ''],
    ['%%tpu_check --target v5e-1 \na', 'tpu_check', '--target v5e-1']
  ])('%j has %s %s already', (source, name, options) => {
    expect(writeMagic(source, name, options)).toBeNull();
  });

  it('leaves the cell of another magic alone', () => {
    expect(writeMagic('%%bash\nls', 'tpu_run')).toBeNull();
    expect(isOtherMagic('%%bash\nls')).toBe(true);
    expect(isOtherMagic('\n%%time\na')).toBe(true);
    expect(isOtherMagic('%%tpu_run\na')).toBe(false);
    expect(isOtherMagic('a % b')).toBe(false);
  });

  it('changes the first line only: a cursor below stays where it is', () => {
    expect(writeMagic('%%tpu_run\nlong\ntext', 'tpu_timeit')).toEqual({
      start: 0,
      end: 9,
      text: '%%tpu_timeit'
    });
  });
});

describe('taking a magic line away', () => {
  it.each([
    ['%%tpu_run --seed 1\na', 'a'],
    ['%%tpu_run', ''],
    ['a', null],
    ['%%time\na', null]
  ])('%j', (source, wanted) => {
    expect(after(source, removeMagic(source))).toBe(wanted);
  });
});

describe('the switch of a notebook', () => {
  it.each([
    ['%load_ext tpu_magic\n%tpu_run on --seed 1\na', false, '%load_ext tpu_magic\n%tpu_run off\na'],
    ['%tpu_run off', true, '%tpu_run on'],
    ['%tpu_run on --seed 1', true, '%tpu_run on --seed 1'],
    ['%%tpu_run on', true, null],
    ['a', true, null]
  ])('%j to %s', (source, on, wanted) => {
    expect(after(source, turnSwitch(source, on))).toBe(wanted);
  });

  it('goes below the line that loads the extension', () => {
    const source = 'import os\n%load_ext tpu_magic\na';
    expect(after(source, afterLoading(source, '%tpu_run on'))).toBe(
      'import os\n%load_ext tpu_magic\n%tpu_run on\na'
    );
    expect(afterLoading('a', '%tpu_run on')).toBeNull();
  });

  it.each([
    ['%load_ext tpu_magic', true],
    ['%reload_ext  tpu_magic', true],
    ['%load_ext tpu_magic_other', false],
    ['# %load_ext tpu_magic', false]
  ])('%j loads it: %s', (source, wanted) => {
    expect(loads(source)).toBe(wanted);
  });
});
