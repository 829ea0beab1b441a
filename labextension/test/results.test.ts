import { describe, expect, it } from 'vitest';

import { bins, cellCsv, compareCsv, csv, drawable, timingCsv } from '../src/results';

describe('bins', () => {
  it('count every sample once', () => {
    const samples = Array.from({ length: 100 }, (_, index) => 1 + index / 100);
    const found = bins(samples);
    expect(found?.counts.reduce((sum, count) => sum + count, 0)).toBe(100);
    expect(found?.counts.length).toBe(40);
    // The axis ends at the 98th of the hundred; two lie beyond.
    expect([found?.low, found?.high, found?.beyond, found?.highest]).toEqual([1, 1.97, 2, 1.99]);
  });

  it('of three are three', () => {
    expect(bins([3, 1, 2])?.counts).toEqual([1, 1, 1]);
  });

  it('of too few, or of all the same, are no picture', () => {
    expect(bins([])).toBeNull();
    expect(bins([1, 2])).toBeNull();
    expect(bins([2, 2, 2, 2])).toBeNull();
  });

  it('do not sort the samples that they are given', () => {
    const samples = [3, 1, 2];
    bins(samples);
    expect(samples).toEqual([3, 1, 2]);
  });
});

describe('CSV', () => {
  it('quotes what would break it, and what a spreadsheet would run', () => {
    expect(csv([['a,b', 'say "x"', 'two\nlines', '=1+1', '-x', null, -1.5]])).toBe(
      '"a,b","say ""x""","two\nlines",\'=1+1,\'-x,,-1.5\r\n'
    );
  });

  it('has a row for each run', () => {
    const data = { timings: [0.5, 0.25], median: 0, loops: 1, statement: '', label: '' };
    expect(timingCsv(data)).toBe('run,seconds_per_call\r\n1,0.5\r\n2,0.25\r\n');
  });

  it('has a column for each candidate, also of unequal rounds', () => {
    const candidate = { statement: '', median: 0 };
    const data = {
      candidates: [
        { ...candidate, name: 'a', times: [1, 2] },
        { ...candidate, name: 'b', times: [3] }
      ],
      pairs: [],
      margin: 0.01
    };
    expect(compareCsv(data)).toBe('round,a,b\r\n1,1,3\r\n2,2,\r\n');
  });

  it('has the parts of a cell and their sum', () => {
    const data = {
      wall_s: 3,
      trace_s: 1,
      compile_s: 2,
      input_wait_s: null,
      device_wait_s: null,
      other_s: 0
    };
    expect(cellCsv(data)).toBe('part,seconds\r\ntrace,1\r\ncompile,2\r\nwall,3\r\n');
  });
});

describe('what can be drawn', () => {
  const timing = { kind: 'timing-result', version: 1, timings: [1, 2] };

  it('is of a known kind and version, and whole', () => {
    expect(drawable(timing)).toBe('timing-result');
    expect(drawable({ kind: 'cell-report', version: 1, wall_s: 1, other_s: 1 })).toBe(
      'cell-report'
    );
    expect(
      drawable({ kind: 'compare-result', version: 1, margin: 0, pairs: [], candidates: [] })
    ).toBe('compare-result');
  });

  it.each([
    [{ ...timing, version: 2 }],
    [{ ...timing, timings: ['1'] }],
    [{ ...timing, timings: undefined }],
    [{ kind: 'toString', version: 1 }],
    [{ kind: 'compare-result', version: 1, margin: 0, pairs: [], candidates: [{}] }],
    ['text'],
    [null]
  ])('is not %j', data => {
    expect(drawable(data)).toBeNull();
  });
});
