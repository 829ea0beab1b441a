/** The side panel: devices, the last cells, and advice with a way to the line. */

import { NotebookPanel } from '@jupyterlab/notebook';
import { Widget } from '@lumino/widgets';

import { wallBar } from './charts';
import { button, html } from './dom';
import { bytes, ITranslate, liveText, reason, seconds, wholeSeconds } from './format';
import { KernelModel } from './model';
import { IDevice, IFinishedCell, IHost, IStatus } from './protocol';

/** Shows what a kernel tells, for the notebook in front. */
export class DevicePanel extends Widget {
  constructor(private readonly t: ITranslate) {
    super();
    this.id = 'tpu-magic-panel';
    this.addClass('tpu-Panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', t.__('TPU'));
  }

  /** The notebook that is followed, and what is known of its kernel. */
  follow(notebook: NotebookPanel | null, model: KernelModel | null): void {
    this._model?.changed.disconnect(this.onChanged, this);
    this._notebook = notebook;
    this._model = model;
    model?.changed.connect(this.onChanged, this);
    this._drawn = '';
    this.update();
  }

  protected onAfterShow(): void {
    this.update();
  }

  protected onUpdateRequest(): void {
    if (!this.isVisible || document.hidden) {
      return; // drawn when it is shown
    }
    const model = this._model;
    const status = model?.known === 'present' ? model.status : null;
    const head = [
      html('h2', {}, this._notebook?.title.label ?? this.t.__('No notebook')),
      ...this.live(status)
    ];
    // What is below changes rarely: a focus or a text selection in it must survive packets.
    const rest = JSON.stringify([status?.devices, status?.recent, model?.known, status?.host]);
    if (this._drawn === '' || this._drawn !== rest) {
      this._drawn = rest;
      const focused = this.focusedIndex();
      this.node.replaceChildren(html('header', {}, ...head), ...this.sections(status));
      this.focus(focused);
    } else {
      this.node.firstElementChild?.replaceChildren(...head);
    }
  }

  protected onBeforeDetach(): void {
    this.follow(null, null);
  }

  private onChanged(): void {
    this.update();
  }

  private live(status: IStatus | null): HTMLElement[] {
    if (!status) {
      const why = this._model
        ? reason(this._model.known, this.t)
        : this.t.__('Open a notebook to see the device of its kernel.');
      return [html('p', { class: 'tpu-Panel-reason' }, why)];
    }
    const stale = this._model?.staleSeconds ?? null;
    const parts = [];
    if (status.cell) {
      parts.push(liveText(status.cell, this.t));
    }
    if (status.automatic !== null) {
      parts.push(this.t.__('on for every cell'));
    }
    if (stale !== null) {
      parts.push(this.t.__('no news for %1', wholeSeconds(stale)));
    }
    return parts.length ? [html('p', { class: 'tpu-Panel-live' }, parts.join(' · '))] : [];
  }

  private sections(status: IStatus | null): HTMLElement[] {
    if (!status) {
      return [];
    }
    const t = this.t;
    return [
      html(
        'section',
        {},
        html('h3', {}, t.__('Devices')),
        ...(status.devices.length
          ? status.devices.map(device => this.device(device))
          : [html('p', {}, t.__('Not connected: the first %1 cell connects.', '%%tpu_run'))]),
        this.host(status.host)
      ),
      html(
        'section',
        {},
        html('h3', {}, t.__('Last cells')),
        ...(status.recent.length
          ? status.recent.map(cell => this.cell(cell))
          : [html('p', {}, t.__('No cell has run on the device yet.'))])
      )
    ];
  }

  private device(device: IDevice): HTMLElement {
    const t = this.t;
    const memory = device.memory.map((item, index) =>
      html(
        'div',
        {},
        `${index}: `,
        meter(item.used_bytes, item.limit_bytes, t.__('memory')),
        t.__(
          ' %1 of %2, peak %3',
          bytes(item.used_bytes),
          bytes(item.limit_bytes),
          bytes(item.peak_bytes)
        )
      )
    );
    return html(
      'div',
      { class: 'tpu-Panel-device' },
      html('strong', {}, device.label),
      ...(device.note ? [html('p', {}, device.note)] : []),
      ...(memory.length ? memory : [html('p', {}, t.__('This runtime does not tell its memory.'))])
    );
  }

  private host(host: IHost): HTMLElement {
    return html(
      'p',
      { class: 'tpu-Panel-host' },
      this.t.__(
        'host: processors %1 % busy, %2 of %3',
        Math.round(host.cpu_percent),
        bytes(host.used_bytes),
        bytes(host.total_bytes)
      )
    );
  }

  private cell(cell: IFinishedCell): HTMLElement {
    const t = this.t;
    const name = cell.count === null ? t.__('cell') : `[${cell.count}]`;
    const failed = cell.ok ? '' : ` · ${t.__('failed')}`;
    const bar = wallBar(cell, t, 12);
    return html(
      'article',
      {},
      this.jump(`${name} ${seconds(cell.wall_s)}${failed}`, cell.id, null),
      ...(bar ? [bar] : []),
      ...(cell.reached_device ? [] : [html('p', { class: 'tpu-Panel-warn' }, unreached(cell, t))]),
      html(
        'ul',
        {},
        ...cell.advice.map(item =>
          html(
            'li',
            {},
            item.line === null
              ? item.message
              : this.jump(`${item.message} ${t.__('(line %1)', item.line)}`, cell.id, item.line)
          )
        )
      )
    );
  }

  /** A button that goes to a cell, and to a line in it; a plain text where the cell is gone. */
  private jump(text: string, id: string | null, line: number | null): HTMLElement {
    if (id === null) {
      return html('span', {}, text);
    }
    return button(text, () => {
      const notebook = this._notebook?.content;
      const index = notebook?.widgets.findIndex(cell => cell.model.id === id) ?? -1;
      if (!notebook || index < 0) {
        return;
      }
      notebook.activeCellIndex = index;
      void notebook.scrollToItem(index).then(() => {
        if (line !== null) {
          notebook.mode = 'edit';
          notebook.activeCell?.editor?.setCursorPosition({ line: line - 1, column: 0 });
        }
        notebook.activeCell?.editor?.focus();
      });
    });
  }

  private focusedIndex(): number {
    return this.focusables().indexOf(document.activeElement as HTMLElement);
  }

  private focus(index: number): void {
    this.focusables()[index]?.focus({ preventScroll: true });
  }

  private focusables(): HTMLElement[] {
    return [...this.node.querySelectorAll<HTMLElement>('button, svg[tabindex]')];
  }

  private _drawn = '';
  private _model: KernelModel | null = null;
  private _notebook: NotebookPanel | null = null;
}

function unreached(cell: IFinishedCell, t: ITranslate): string {
  return t.__('Nothing ran on the device: %1', cell.unreached_reason);
}

function meter(used: number | null, limit: number | null, label: string): HTMLElement | string {
  return used === null || !limit
    ? ''
    : html('meter', { min: 0, max: limit, value: used, 'aria-label': label });
}
