/**
 * What a kernel tells: the packets of `tpu_magic/lab.py`, checked.
 *
 * A kernel and a front end are installed apart, so a packet is data from a stranger.
 */

export const TARGET = 'tpu_magic';
export const COMM_ID = 'tpu_magic.status';
export const PROTOCOL = 1;

export interface IMemory {
  used_bytes: number | null;
  peak_bytes: number | null;
  limit_bytes: number | null;
}

export interface IDevice {
  framework: string;
  label: string;
  count: number;
  on_tpu: boolean;
  note: string;
  memory: IMemory[];
}

export type Phase = 'starting' | 'compiling' | 'input' | 'running';

export interface IRunningCell {
  id: string | null;
  magic: string;
  elapsed_s: number;
  phase: Phase;
  steps: number;
  steps_per_s: number | null;
  compiles: number | null;
  still_s: number | null;
}

export interface IAdvice {
  code: string;
  message: string;
  line: number | null;
}

export interface IFinishedCell {
  id: string | null;
  count: number | null;
  ok: boolean;
  wall_s: number;
  trace_s: number | null;
  compile_s: number | null;
  input_wait_s: number | null;
  device_wait_s: number | null;
  other_s: number;
  steps: number | null;
  reached_device: boolean;
  unreached_reason: string;
  advice: IAdvice[];
}

export interface IHost {
  cpu_percent: number;
  used_bytes: number;
  total_bytes: number;
}

export interface IStatus {
  package: string;
  every_s: number;
  devices: IDevice[];
  automatic: string | null;
  host: IHost;
  cell: IRunningCell | null;
  recent: IFinishedCell[];
}

export type Packet =
  | { type: 'state'; seq: number; status: IStatus }
  | { type: 'gone'; seq: number }
  | { type: 'foreign'; version: unknown };

type Fields = Record<string, unknown>;

/** Read a packet; null for what is none. */
export function readPacket(data: unknown): Packet | null {
  if (!isFields(data) || typeof data.type !== 'string') {
    return null;
  }
  if (data.v !== PROTOCOL) {
    return { type: 'foreign', version: data.v };
  }
  const seq = typeof data.seq === 'number' ? data.seq : 0;
  if (data.type === 'gone') {
    return { type: 'gone', seq };
  }
  const status = data.status;
  if (
    data.type === 'state' &&
    isFields(status) &&
    Array.isArray(status.devices) &&
    Array.isArray(status.recent) &&
    typeof status.every_s === 'number' &&
    isFields(status.host) &&
    (status.cell === null || isFields(status.cell))
  ) {
    return { type: 'state', seq, status: status as unknown as IStatus };
  }
  return null;
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
