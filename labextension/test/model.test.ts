import { ISessionContext } from '@jupyterlab/apputils';
import { Signal } from '@lumino/signaling';
import { beforeEach, describe, expect, it, vi } from 'vitest';

import { KernelModel } from '../src/model';
import { COMM_ID } from '../src/protocol';
import { lineOf, StatusLine } from '../src/status';
import { t } from './support';

vi.mock('@jupyterlab/services', () => ({
  KernelMessage: { createMessage: (options: object) => options }
}));

const DEVICE = {
  framework: 'torch',
  label: 'TPU v5e × 8',
  count: 8,
  on_tpu: true,
  note: '',
  memory: []
};
const CELL = {
  id: 'a',
  magic: '%%tpu_run',
  elapsed_s: 5,
  phase: 'running',
  steps: 120,
  steps_per_s: 35,
  compiles: 1,
  still_s: 0
};

/** A kernel that answers as it is told. */
class FakeKernel {
  status = 'idle';
  connectionStatus = 'connected';
  clientId = 'client';
  username = '';
  comms: Record<string, object> = {};
  asked = 0;
  sent: { content: { data: object } }[] = [];
  answer = Promise.resolve();

  async requestCommInfo(): Promise<object> {
    this.asked += 1;
    await this.answer;
    return { content: { status: 'ok', comms: this.comms } };
  }

  sendShellMessage(message: { content: { data: object } }): void {
    this.sent.push(message);
  }
}

class FakeContext {
  kernelChanged = new Signal<this, unknown>(this);
  statusChanged = new Signal<this, unknown>(this);
  connectionStatusChanged = new Signal<this, unknown>(this);
  iopubMessage = new Signal<this, unknown>(this);
  kernelDisplayStatus = '';
  session: { kernel: FakeKernel | null } | null = null;
}

let context: FakeContext;
let now: number;
let seq: number;

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn++) {
    await Promise.resolve();
  }
};
const model = (): KernelModel =>
  new KernelModel(
    context as unknown as ISessionContext,
    () => 0.5,
    () => now
  );
const packet = (changes: object = {}, data: object = {}): void => {
  const status = {
    package: '0.1.0',
    every_s: 0.5,
    devices: [DEVICE],
    automatic: null,
    host: {},
    cell: null,
    recent: [],
    ...changes
  };
  context.iopubMessage.emit({
    header: { msg_type: 'comm_msg' },
    content: { comm_id: COMM_ID, data: { type: 'state', v: 1, seq: ++seq, status, ...data } }
  });
};
const start = (): FakeKernel => {
  const kernel = new FakeKernel();
  context.session = { kernel };
  return kernel;
};

beforeEach(() => {
  context = new FakeContext();
  now = 1000;
  seq = 0;
});

describe('what is known of a kernel', () => {
  it('is nothing without one', () => {
    expect(lineOf(model(), t).text).toBe('');
  });

  it('is that it starts', () => {
    context.kernelDisplayStatus = 'starting';
    expect(lineOf(model(), t).text).toBe('kernel starting');
  });

  it('is that it has no extension, once it answered', async () => {
    start();
    const made = model();
    expect(made.known).toBe('asking');
    await settled();
    expect(lineOf(made, t)).toMatchObject({ text: 'no tpu_magic', look: 'none' });
  });

  it('is asked for, once, where the extension is', async () => {
    const kernel = start();
    kernel.comms = { [COMM_ID]: { target_name: 'tpu_magic' } };
    const made = model();
    await settled();
    context.statusChanged.emit('busy');
    context.statusChanged.emit('idle');
    await settled();
    expect(kernel.asked).toBe(1);
    expect(kernel.sent.map(message => message.content.data)).toEqual([
      { type: 'refresh', every_s: 0.5 }
    ]);
    packet();
    expect(lineOf(made, t)).toMatchObject({ text: 'TPU v5e × 8', look: 'tpu' });
  });

  it('is asked for again only where the extension is', async () => {
    const kernel = start();
    const made = model();
    made.refresh();
    await settled();
    made.refresh();
    expect(kernel.sent).toEqual([]);
    packet();
    made.refresh();
    expect(kernel.sent.length).toBe(1);
  });

  it('comes from a packet also while the answer is outstanding', async () => {
    const kernel = start();
    let answer = (): void => undefined;
    kernel.answer = new Promise(resolve => (answer = resolve));
    const made = model();
    packet({ cell: CELL });
    expect(lineOf(made, t).text).toBe('TPU v5e × 8 · step 120 · 35.0 it/s');
    answer();
    await settled();
    expect(made.known).toBe('present');
  });

  it('is not taken back by a packet that was overtaken', () => {
    start();
    const made = model();
    packet({ cell: null }, { seq: 9 });
    packet({ cell: CELL }, { seq: 8 });
    expect(made.status?.cell).toBeNull();
  });

  it.each([
    ['restarting', 'kernel restarting'],
    ['autorestarting', 'kernel restarting'],
    ['dead', 'kernel died']
  ])('is forgotten when it is %s', async (status, text) => {
    const kernel = start();
    const made = model();
    packet();
    kernel.status = status;
    context.statusChanged.emit(status);
    expect(lineOf(made, t).text).toBe(text);
    kernel.status = 'idle';
    context.statusChanged.emit('idle');
    await settled();
    expect(made.known).toBe('absent');
    packet({}, { seq: 1 }); // numbers begin anew in a new process
    expect(made.known).toBe('present');
  });

  it('is asked anew when the kernel restarted before it answered', async () => {
    const kernel = start();
    vi.useFakeTimers();
    kernel.answer = Promise.reject(new Error('Canceled'));
    const made = model();
    await settled();
    expect(made.known).toBe('asking');
    kernel.answer = Promise.resolve();
    vi.advanceTimersByTime(1000);
    await settled();
    expect(made.known).toBe('absent');
    vi.useRealTimers();
  });

  it.each([
    ['restarting', 'connected'],
    ['idle', 'connecting'],
    ['dead', 'connected']
  ])('is not asked of a kernel that is %s and %s', (status, connection) => {
    const kernel = start();
    kernel.status = status;
    kernel.connectionStatus = connection;
    model();
    expect(kernel.asked).toBe(0);
  });

  it('is another kernel’s after a change', async () => {
    start();
    const made = model();
    packet();
    start();
    context.kernelChanged.emit({});
    expect(made.status).toBeNull();
    await settled();
    expect(made.known).toBe('absent');
  });

  it('is kept over a lost connection, and said to be lost', () => {
    const kernel = start();
    const made = model();
    packet();
    kernel.connectionStatus = 'disconnected';
    context.connectionStatusChanged.emit('disconnected');
    expect(lineOf(made, t).text).toBe('kernel disconnected');
    kernel.connectionStatus = 'connected';
    expect(lineOf(made, t).text).toBe('TPU v5e × 8');
  });

  it('is that the extension was unloaded', () => {
    start();
    const made = model();
    packet();
    packet({}, { type: 'gone' });
    expect(made.known).toBe('absent');
  });

  it('is that the versions differ', () => {
    start();
    const made = model();
    packet({}, { v: 2 });
    expect(lineOf(made, t).text).toBe('tpu_magic: other version');
  });

  it('does not come from the comms of others', () => {
    start();
    const made = model();
    context.iopubMessage.emit({
      header: { msg_type: 'comm_msg' },
      content: { comm_id: 'other', data: { type: 'state', v: 1, seq: 1, status: {} } }
    });
    context.iopubMessage.emit({ header: { msg_type: 'stream' }, content: {} });
    expect(made.known).toBe('asking');
  });

  it('is no longer followed when it is disposed', () => {
    start();
    const made = model();
    made.dispose();
    packet();
    expect(made.status).toBeNull();
  });
});

describe('silence', () => {
  it('is noticed while a cell runs', () => {
    start();
    const made = model();
    packet({ cell: CELL });
    now += 2900;
    expect(lineOf(made, t).look).toBe('tpu');
    now += 200;
    expect(lineOf(made, t)).toMatchObject({
      text: 'TPU v5e × 8 · step 120 · 35.0 it/s · no news for 3 s',
      look: 'stale'
    });
    packet({ cell: CELL });
    expect(lineOf(made, t).look).toBe('tpu');
  });

  it('between cells means nothing', () => {
    start();
    const made = model();
    packet();
    now += 3_600_000;
    expect(made.staleSeconds).toBeNull();
  });
});

describe('the line', () => {
  it('says that every cell runs on the device', () => {
    start();
    const made = model();
    packet({ automatic: '' });
    expect(lineOf(made, t).text).toBe('TPU v5e × 8 · on for every cell');
  });

  it('marks what is no TPU, and says why', () => {
    start();
    const made = model();
    const label = 'XLA CPU × 4 · not a TPU';
    packet({ devices: [{ ...DEVICE, label, on_tpu: false, note: 'no TPU here' }] });
    expect(lineOf(made, t)).toEqual({ text: label, title: 'no TPU here', look: 'other' });
  });

  it('is drawn at each packet, hidden without a kernel or when switched off', () => {
    const line = new StatusLine(t, () => undefined);
    expect(line.isHidden).toBe(true);
    start();
    line.model = model();
    packet();
    expect(line.node.textContent).toBe('TPU v5e × 8');
    expect(line.isHidden).toBe(false);
    line.enabled = false;
    expect(line.isHidden).toBe(true);
    line.enabled = true;
    expect(line.isHidden).toBe(false);
    line.model = null;
    expect(line.isHidden).toBe(true);
    line.dispose();
  });

  it('looks again by itself while a cell runs, and only then', () => {
    vi.useFakeTimers();
    const line = new StatusLine(t, () => undefined);
    start();
    line.model = model();
    packet({ cell: CELL });
    now += 9000;
    vi.advanceTimersByTime(1000);
    expect(line.node.textContent).toContain('no news for 9 s');
    packet();
    expect(vi.getTimerCount()).toBe(0);
    packet({ cell: CELL });
    line.dispose();
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it('is a button', () => {
    const click = vi.fn();
    const line = new StatusLine(t, click);
    line.node.querySelector('button')?.click();
    expect(click).toHaveBeenCalledOnce();
    line.dispose();
  });
});
