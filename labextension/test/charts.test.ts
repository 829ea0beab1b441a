import { beforeEach, describe, expect, it } from 'vitest';

import { histogram, ratios, wallBar } from '../src/charts';
import { t } from './support';

const timing = (timings: number[]) => ({
  timings,
  median: 0,
  loops: 1,
  statement: '',
  label: ''
});

const press = (figure: HTMLElement, key: string): string => {
  figure.querySelector('svg')?.dispatchEvent(new KeyboardEvent('keydown', { key }));
  return figure.querySelector('.tpu-Readout')?.textContent ?? '';
};

describe('a histogram', () => {
  let figure: HTMLElement;
  beforeEach(() => {
    figure = histogram(timing([0.001, 0.002, 0.003, 0.003]), t) as HTMLElement;
  });

  it('is told as text, and reached by keyboard', () => {
    const drawn = figure.querySelector('svg');
    expect(drawn?.getAttribute('aria-label')).toContain('Histogram of 4 runs from 1.00 ms to 3.00');
    expect(drawn?.getAttribute('tabindex')).toBe('0');
  });

  it('is read with the arrow keys, which stop at its ends', () => {
    expect(press(figure, 'ArrowRight')).toBe('1 runs from 1.00 ms to 1.50 ms');
    expect(press(figure, 'ArrowLeft')).toBe('1 runs from 1.00 ms to 1.50 ms');
    expect(press(figure, 'End')).toBe('2 runs from 2.50 ms to 3.00 ms');
    expect(press(figure, 'ArrowRight')).toBe('2 runs from 2.50 ms to 3.00 ms');
    expect(figure.querySelectorAll('.tpu-mod-chosen').length).toBe(1);
  });

  it('is read with the pointer', () => {
    figure.querySelectorAll('.tpu-Mark')[2].dispatchEvent(new Event('pointerenter'));
    expect(figure.textContent).toContain('1 runs from 2.00 ms to 2.50 ms'.slice(0, 6));
    figure.querySelector('svg')?.dispatchEvent(new Event('pointerleave'));
    expect(figure.querySelector('.tpu-Readout')?.textContent).toMatch(/^Histogram/);
  });

  it('of nothing to see is none', () => {
    expect(histogram(timing([1, 1, 1]), t)).toBeNull();
  });
});

describe('a comparison', () => {
  const pair = { base: 'a', other: 'b', ratio: 0.5, low: 0.45, high: 0.55, verdict: 'faster' };
  const candidates = ['a', 'b', '<img src=x onerror=alert(1)>'].map(name => ({
    name,
    statement: name,
    median: 1,
    times: [1]
  }));

  it('says ratio, interval and verdict of a pair', () => {
    const figure = ratios({ candidates, pairs: [pair], margin: 0.01 }, t) as HTMLElement;
    expect(press(figure, 'Home')).toBe('b: 0.500 times the time of a (0.450 … 0.550), faster');
  });

  it('says where there is too little to tell', () => {
    const unclear = { ...pair, low: null, high: null, verdict: 'cannot tell' };
    const figure = ratios({ candidates, pairs: [unclear], margin: 0.01 }, t) as HTMLElement;
    expect(press(figure, 'Home')).toContain('(too little to tell), cannot tell');
  });

  it('takes a name as text, whatever it looks like', () => {
    const odd = { ...pair, other: candidates[2].name };
    const figure = ratios({ candidates, pairs: [odd], margin: 0.01 }, t) as HTMLElement;
    expect(figure.querySelector('img')).toBeNull();
    expect(figure.textContent).toContain('<img');
  });

  it('of one candidate is none', () => {
    expect(ratios({ candidates: candidates.slice(0, 1), pairs: [], margin: 0 }, t)).toBeNull();
  });
});

describe('the wall time of a cell', () => {
  const nothing = { compile_s: null, input_wait_s: null, device_wait_s: null };

  it('is drawn in proportion', () => {
    const figure = wallBar({ ...nothing, trace_s: 1, other_s: 3 }, t) as HTMLElement;
    const widths = [...figure.querySelectorAll('rect')].map(r => Number(r.getAttribute('width')));
    expect(widths[1] / widths[0]).toBe(3);
    expect(press(figure, 'Home')).toBe('trace: 1.00 s (25 %)');
  });

  it('of nothing is none', () => {
    expect(wallBar({ ...nothing, trace_s: null, other_s: 0 }, t)).toBeNull();
  });
});
