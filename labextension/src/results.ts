/** The product's JSON results, as far as the pictures and the CSV need them. */

import { wallParts } from './format';

export interface ITimingData {
  timings: number[];
  median: number;
  loops: number;
  statement: string;
  label: string;
}

export interface IPair {
  base: string;
  other: string;
  ratio: number;
  low: number | null;
  high: number | null;
  verdict: string;
}

export interface ICompareData {
  candidates: { name: string; statement: string; median: number; times: number[] }[];
  pairs: IPair[];
  margin: number;
}

export type CellData = Parameters<typeof wallParts>[0] & { wall_s: number };

export const FORMAT_VERSION = 1;
export const MIME_TYPES = ['cell-report', 'timing-result', 'compare-result'].map(
  kind => `application/vnd.tpu-magic.${kind}+json`
);

export interface IBins {
  counts: number[];
  low: number;
  high: number;
  width: number;
  beyond: number;
  highest: number;
}

const MOST_BINS = 40;

/**
 * The bins of a histogram, as `tpu_magic.timing.figure.histogram` makes them: the axis ends
 * at the 98th percentile, and the last bin also counts what lies beyond. Null for too little.
 */
export function bins(samples: readonly number[]): IBins | null {
  const ordered = [...samples].sort((a, b) => a - b);
  const low = ordered[0];
  const high = ordered[Math.max(0, Math.round(ordered.length * 0.98) - 1)];
  if (ordered.length < 3 || !(high > low)) {
    return null;
  }
  const count = Math.min(MOST_BINS, ordered.length);
  const width = (high - low) / count;
  const counts = new Array<number>(count).fill(0);
  for (const sample of ordered) {
    counts[Math.min(count - 1, Math.floor((sample - low) / width))] += 1;
  }
  return {
    counts,
    low,
    high,
    width,
    beyond: ordered.filter(sample => sample > high).length,
    highest: ordered[ordered.length - 1]
  };
}

/** Rows as CSV (RFC 4180). A text that a spreadsheet would run as a formula is quoted off. */
export function csv(rows: (string | number | null)[][]): string {
  const cell = (value: string | number | null): string => {
    if (typeof value !== 'string') {
      return value === null ? '' : String(value);
    }
    const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  return rows.map(row => row.map(cell).join(',') + '\r\n').join('');
}

export function timingCsv(data: ITimingData): string {
  return csv([['run', 'seconds_per_call'], ...data.timings.map((time, run) => [run + 1, time])]);
}

export function compareCsv(data: ICompareData): string {
  const names = data.candidates.map(candidate => candidate.name);
  const rounds = Math.max(0, ...data.candidates.map(candidate => candidate.times.length));
  const rows = Array.from({ length: rounds }, (_, round) => [
    round + 1,
    ...data.candidates.map(candidate => candidate.times[round] ?? null)
  ]);
  return csv([['round', ...names], ...rows]);
}

export function cellCsv(data: CellData): string {
  const parts = wallParts(data, { __: text => text });
  return csv([
    ['part', 'seconds'],
    ...parts.map(part => [part.name, part.value]),
    ['wall', data.wall_s]
  ]);
}

type Check = (value: Record<string, unknown>) => boolean;

const numbers = (value: unknown): boolean =>
  Array.isArray(value) && value.every(item => typeof item === 'number');

const CHECKS: Record<string, Check> = {
  'cell-report': data => typeof data.wall_s === 'number' && typeof data.other_s === 'number',
  'timing-result': data => numbers(data.timings),
  'compare-result': data =>
    typeof data.margin === 'number' &&
    Array.isArray(data.pairs) &&
    Array.isArray(data.candidates) &&
    data.candidates.every(candidate => numbers((candidate as ICompareData['candidates'][0]).times))
};

/**
 * The kind of a result that can be drawn; null for what is damaged, or written by a newer
 * version: a saved notebook is read for years.
 */
export function drawable(data: unknown): string | null {
  if (typeof data !== 'object' || data === null) {
    return null;
  }
  const fields = data as Record<string, unknown>;
  const kind = String(fields.kind);
  const known = Object.prototype.hasOwnProperty.call(CHECKS, kind);
  return known && fields.version === FORMAT_VERSION && CHECKS[kind](fields) ? kind : null;
}
