import { describe, expect, it } from 'vitest';

import {
  bytes,
  devicesText,
  Knowledge,
  liveText,
  reason,
  seconds,
  shortReason,
  significant,
  wallParts
} from '../src/format';
import { IRunningCell } from '../src/protocol';
import { t } from './support';

const cell = (changes: Partial<IRunningCell>): IRunningCell => ({
  id: null,
  magic: '%%tpu_run',
  elapsed_s: 12.7,
  phase: 'running',
  steps: 0,
  steps_per_s: null,
  compiles: null,
  still_s: null,
  ...changes
});

describe('numbers', () => {
  it.each([
    [null, 'not measured'],
    [0, '0 s'],
    [3.2e-9, '3.20 ns'],
    [7.8e-6, '7.80 µs'],
    [0.0456, '45.6 ms'],
    [1.234, '1.23 s'],
    [125, '2 min 5 s']
  ])('%s seconds are %s', (value, text) => {
    expect(seconds(value)).toBe(text);
  });

  it.each([
    [null, 'not told'],
    [512, '512 B'],
    [1536, '1.50 KiB'],
    [16.9e9, '15.7 GiB'],
    [2 ** 41, '2.00 TiB']
  ])('%s bytes are %s', (value, text) => {
    expect(bytes(value)).toBe(text);
  });

  it('three digits, without an exponent', () => {
    expect([0, 0.123, 9.996, 35.04, 1234567].map(significant)).toEqual([
      '0',
      '0.12',
      '10.00',
      '35.0',
      '1234567'
    ]);
  });
});

describe('a running cell', () => {
  it.each([
    [{ phase: 'starting' }, 'starting · 12 s'],
    [{ phase: 'starting', magic: '%%tpu_timeit' }, '%%tpu_timeit · 12 s'],
    [{ phase: 'starting', magic: '%tpu_run on' }, 'running · 12 s'],
    [{ phase: 'compiling', steps: 3 }, 'compiling · 12 s'],
    [{ phase: 'running' }, 'running · 12 s'],
    [{ steps: 120, steps_per_s: 35.04 }, 'step 120 · 35.0 it/s'],
    [{ steps: 120 }, 'step 120'],
    [{ steps: 120, steps_per_s: 0, still_s: 4.2 }, 'step 120 · no step for 4 s'],
    [{ steps: 120, steps_per_s: 35, phase: 'input' }, 'step 120 · 35.0 it/s · waiting for input'],
    [{ phase: 'input' }, 'waiting for input']
  ] as [Partial<IRunningCell>, string][])('%o', (changes, text) => {
    expect(liveText(cell(changes), t)).toBe(text);
  });
});

describe('devices', () => {
  const device = { framework: 'torch', count: 8, on_tpu: true, note: '', memory: [] };

  it('are named once', () => {
    const label = 'TPU v5e × 8';
    expect(
      devicesText(
        [
          { ...device, label },
          { ...device, label }
        ],
        t
      )
    ).toBe(label);
  });

  it('are named each where they differ', () => {
    const labels = ['A', 'B'].map(label => ({ ...device, label }));
    expect(devicesText(labels, t)).toBe('A, B');
  });

  it('that are not connected are said to be so', () => {
    expect(devicesText([], t)).toBe('tpu_magic · not connected');
  });
});

describe('a blank', () => {
  const all: Knowledge[] = [
    'no-kernel',
    'starting',
    'restarting',
    'dead',
    'disconnected',
    'asking',
    'absent',
    'foreign'
  ];

  it('never lacks its reason', () => {
    const reasons = all.map(known => reason(known, t));
    expect(reasons.every(text => text.endsWith('.'))).toBe(true);
    expect(new Set(reasons).size).toBe(all.length);
  });

  it('is short in the status bar, and empty without a kernel only', () => {
    expect(all.filter(known => !shortReason(known, t))).toEqual(['no-kernel']);
  });

  it('never says idle, which others look for in the status bar', () => {
    expect(all.filter(known => /idle/i.test(shortReason(known, t)))).toEqual([]);
  });
});

it('the wall time is cut into what was measured and is not zero', () => {
  const parts = wallParts(
    { trace_s: 1, compile_s: null, input_wait_s: 0, device_wait_s: 2, other_s: 3 },
    t
  );
  expect(parts.map(part => [part.key, part.value])).toEqual([
    ['trace', 1],
    ['device', 2],
    ['other', 3]
  ]);
});
