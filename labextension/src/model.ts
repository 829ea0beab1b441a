/** What is known of the kernel of one notebook, whatever happens to that kernel. */

import { ISessionContext } from '@jupyterlab/apputils';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { Knowledge } from './format';
import { COMM_ID, IStatus, readPacket, TARGET } from './protocol';

/** Packets that may be missed before what is shown is called old. */
const MISSED = 3;
const RETRY_MS = 1000;
const GONE: Kernel.Status[] = ['dead', 'terminating', 'restarting', 'autorestarting'];

/**
 * Follows a session: its kernels, their state, and the packets that they publish.
 *
 * It asks a kernel once after each start, never on a timer: a busy kernel tells by itself.
 */
export class KernelModel implements IDisposable {
  /**
   * @param context - The session of a notebook.
   * @param everySeconds - How often packets are wished for while a cell runs.
   * @param now - A clock in milliseconds.
   */
  constructor(
    private readonly context: ISessionContext,
    private readonly everySeconds: () => number,
    private readonly now: () => number = Date.now
  ) {
    context.kernelChanged.connect(this.onKernelChanged, this);
    context.statusChanged.connect(this.onStatusChanged, this);
    context.connectionStatusChanged.connect(this.onStatusChanged, this);
    context.iopubMessage.connect(this.onMessage, this);
    void this.ask();
  }

  /** Emitted when what is known changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get status(): IStatus | null {
    return this._status;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  get known(): Knowledge {
    const kernel = this.kernel;
    if (!kernel) {
      return this.context.kernelDisplayStatus === 'starting' ? 'starting' : 'no-kernel';
    }
    switch (kernel.status) {
      case 'dead':
      case 'terminating':
        return 'dead';
      case 'restarting':
      case 'autorestarting':
        return 'restarting';
    }
    if (kernel.connectionStatus === 'disconnected') {
      return 'disconnected';
    }
    if (this._presence !== 'asking') {
      return this._presence;
    }
    return kernel.connectionStatus === 'connecting' || kernel.status === 'starting'
      ? 'starting'
      : 'asking';
  }

  /** Seconds since the last packet, while a cell runs and packets are overdue; else null. */
  get staleSeconds(): number | null {
    if (!this._status?.cell) {
      return null;
    }
    const silent = (this.now() - this._heard) / 1000;
    return silent > MISSED * Math.max(1, this._status.every_s) ? silent : null;
  }

  /** Ask the kernel for its state; a kernel without the extension is asked nothing else. */
  async ask(): Promise<void> {
    const kernel = this.kernel;
    // What is sent before the connection stands is lost. A kernel may say "starting" until it
    // is first asked something.
    const listens = kernel?.connectionStatus === 'connected' && !GONE.includes(kernel.status);
    if (!kernel || !listens || this._asked || this._disposed) {
      return;
    }
    this._asked = true;
    try {
      const reply = await kernel.requestCommInfo({ target_name: TARGET });
      if (kernel !== this.kernel || this._disposed) {
        return;
      }
      const comms = reply.content.status === 'ok' ? reply.content.comms : {};
      if (COMM_ID in comms) {
        this.send();
      } else if (this._presence === 'asking') {
        this._presence = 'absent';
        this._changed.emit();
      }
    } catch {
      // The kernel restarted or the connection broke meanwhile.
      this._asked = false;
      window.setTimeout(() => void this.ask(), RETRY_MS);
    }
  }

  /** Ask a kernel that is known to have the extension for one packet. */
  refresh(): void {
    if (this._presence === 'present') {
      this.send();
    }
  }

  dispose(): void {
    this._disposed = true;
    Signal.clearData(this);
  }

  private get kernel(): Kernel.IKernelConnection | null {
    return this.context.session?.kernel ?? null;
  }

  private send(): void {
    const kernel = this.kernel;
    if (kernel) {
      const message = KernelMessage.createMessage<KernelMessage.ICommMsgMsg<'shell'>>({
        msgType: 'comm_msg',
        channel: 'shell',
        session: kernel.clientId,
        username: kernel.username,
        content: { comm_id: COMM_ID, data: { type: 'refresh', every_s: this.everySeconds() } }
      });
      kernel.sendShellMessage(message, false, true);
    }
  }

  private forget(): void {
    this._status = null;
    this._presence = 'asking';
    this._asked = false;
    this._seen = 0;
  }

  private onKernelChanged(): void {
    this.forget();
    void this.ask();
    this._changed.emit();
  }

  private onStatusChanged(): void {
    const known = this.known;
    if (known === 'restarting' || known === 'dead') {
      this.forget();
    } else {
      void this.ask();
    }
    this._changed.emit();
  }

  private onMessage(_: ISessionContext, message: KernelMessage.IMessage): void {
    if (message.header.msg_type !== 'comm_msg') {
      return;
    }
    const content = message.content as { comm_id?: unknown; data?: unknown };
    const packet = content.comm_id === COMM_ID ? readPacket(content.data) : null;
    if (packet === null) {
      return;
    }
    if (packet.type === 'foreign') {
      this._presence = 'foreign';
      this._status = null;
    } else {
      if (packet.seq <= this._seen) {
        return; // overtaken by a newer one
      }
      this._seen = packet.seq;
      this._presence = packet.type === 'gone' ? 'absent' : 'present';
      this._status = packet.type === 'gone' ? null : packet.status;
    }
    this._heard = this.now();
    this._changed.emit();
  }

  private _asked = false;
  private _changed = new Signal<this, void>(this);
  private _disposed = false;
  private _heard = 0;
  private _presence: 'asking' | 'absent' | 'foreign' | 'present' = 'asking';
  private _seen = 0;
  private _status: IStatus | null = null;
}
