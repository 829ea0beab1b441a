/** Numbers and states as text. Nothing here knows JupyterLab. */

import { IDevice, IFinishedCell, IRunningCell } from './protocol';

/** The part of JupyterLab's translation bundle that is used. */
export interface ITranslate {
  __(text: string, ...values: (string | number)[]): string;
}

/** What is known of a kernel, whatever it is. */
export type Knowledge =
  | 'no-kernel'
  | 'starting'
  | 'restarting'
  | 'dead'
  | 'disconnected'
  | 'asking'
  | 'absent'
  | 'foreign'
  | 'present';

const NOT_YET_S = 3;

/** A duration with three significant digits, in the unit that fits: `45.6 ms`. */
export function seconds(value: number | null): string {
  if (value === null) {
    return 'not measured';
  }
  if (value >= 60) {
    return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  }
  for (const [unit, size] of [
    ['s', 1],
    ['ms', 1e-3],
    ['µs', 1e-6]
  ] as const) {
    if (value >= size) {
      return `${significant(value / size)} ${unit}`;
    }
  }
  return value === 0 ? '0 s' : `${significant(value / 1e-9)} ns`;
}

/** Bytes with a binary unit: `15.8 GiB`. */
export function bytes(value: number | null): string {
  if (value === null) {
    return 'not told';
  }
  let amount = value;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (amount < 1024) {
      return `${significant(amount)} ${unit}`;
    }
    amount /= 1024;
  }
  return `${significant(amount)} TiB`;
}

/** Three significant digits without an exponent. */
export function significant(value: number): string {
  if (value === 0) {
    return '0';
  }
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** The device of a kernel; several frameworks may each hold some. */
export function devicesText(devices: IDevice[], t: ITranslate): string {
  const labels = [...new Set(devices.map(device => device.label))];
  return labels.length ? labels.join(', ') : t.__('tpu_magic · not connected');
}

/** How a running cell is going, in a few words. */
export function liveText(cell: IRunningCell, t: ITranslate): string {
  const elapsed = wholeSeconds(cell.elapsed_s);
  if (cell.phase === 'compiling') {
    return t.__('compiling · %1', elapsed);
  }
  if (cell.phase === 'starting') {
    if (cell.magic === '%%tpu_run') {
      return t.__('starting · %1', elapsed);
    }
    // Under `%tpu_run on` a cell need not have to do with the device at all.
    return cell.magic.startsWith('%tpu_run')
      ? t.__('running · %1', elapsed)
      : `${cell.magic} · ${elapsed}`;
  }
  const parts = [];
  if (cell.steps > 0) {
    parts.push(t.__('step %1', cell.steps));
    if (cell.still_s !== null && cell.still_s >= NOT_YET_S) {
      parts.push(t.__('no step for %1', wholeSeconds(cell.still_s)));
    } else if (cell.steps_per_s !== null) {
      parts.push(t.__('%1 it/s', significant(cell.steps_per_s)));
    }
  }
  if (cell.phase === 'input') {
    parts.push(t.__('waiting for input'));
  }
  return parts.length ? parts.join(' · ') : t.__('running · %1', elapsed);
}

/** The parts that the wall time of a cell is cut into, those that are not zero. */
export function wallParts(
  cell: Pick<IFinishedCell, 'trace_s' | 'compile_s' | 'input_wait_s' | 'device_wait_s' | 'other_s'>,
  t: ITranslate
): { name: string; value: number; key: string }[] {
  return [
    { key: 'trace', name: t.__('trace'), value: cell.trace_s },
    { key: 'compile', name: t.__('compile'), value: cell.compile_s },
    { key: 'input', name: t.__('input wait'), value: cell.input_wait_s },
    { key: 'device', name: t.__('device wait'), value: cell.device_wait_s },
    { key: 'other', name: t.__('other'), value: cell.other_s }
  ].filter(
    (part): part is { name: string; value: number; key: string } =>
      typeof part.value === 'number' && part.value > 0
  );
}

/** Why nothing is known of the device, in one sentence; empty when it is. */
export function reason(known: Knowledge, t: ITranslate): string {
  switch (known) {
    case 'no-kernel':
      return t.__('This notebook has no kernel.');
    case 'starting':
      return t.__('The kernel is starting.');
    case 'restarting':
      return t.__('The kernel is restarting; what was on the device is gone.');
    case 'dead':
      return t.__('The kernel died; what was on the device is gone.');
    case 'disconnected':
      return t.__('The connection to the kernel is lost; it may still be running.');
    case 'asking':
      return t.__('The kernel is busy and has not answered yet.');
    case 'absent':
      return t.__('This kernel has not loaded tpu_magic: run %1.', '%load_ext tpu_magic');
    case 'foreign':
      return t.__(
        'tpu_magic in this kernel is of another version than the extension in JupyterLab: update the older one.'
      );
    case 'present':
      return '';
  }
}

/** The same in two or three words, for the status bar; empty without a kernel. */
export function shortReason(known: Knowledge, t: ITranslate): string {
  switch (known) {
    case 'no-kernel':
    case 'present':
      return '';
    case 'starting':
      return t.__('kernel starting');
    case 'restarting':
      return t.__('kernel restarting');
    case 'dead':
      return t.__('kernel died');
    case 'disconnected':
      return t.__('kernel disconnected');
    case 'asking':
      return t.__('tpu_magic: no answer yet');
    case 'absent':
      return t.__('no tpu_magic');
    case 'foreign':
      return t.__('tpu_magic: other version');
  }
}

export function wholeSeconds(value: number): string {
  return value < 60 ? `${Math.floor(value)} s` : seconds(value);
}
