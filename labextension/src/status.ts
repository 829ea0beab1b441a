/** One line: the device of a kernel, and how its cell is going. */

import { Widget } from '@lumino/widgets';

import { devicesText, ITranslate, liveText, reason, shortReason, wholeSeconds } from './format';
import { KernelModel } from './model';

/** What a line says, and how it should look. */
export interface ILine {
  text: string;
  title: string;
  look: 'tpu' | 'other' | 'none' | 'stale';
}

/** The line for what a model knows; its text is empty when there is nothing to say. */
export function lineOf(
  model: Pick<KernelModel, 'known' | 'status' | 'staleSeconds'>,
  t: ITranslate
): ILine {
  const { known, status, staleSeconds } = model;
  if (known !== 'present' || !status) {
    return { text: shortReason(known, t), title: reason(known, t), look: 'none' };
  }
  const parts = [devicesText(status.devices, t)];
  const notes = status.devices.map(device => device.note).filter(note => note);
  if (status.cell) {
    parts.push(liveText(status.cell, t));
  } else if (status.automatic !== null) {
    parts.push(t.__('on for every cell'));
  }
  if (staleSeconds !== null) {
    parts.push(t.__('no news for %1', wholeSeconds(staleSeconds)));
    notes.push(t.__('The kernel has told nothing since; what is shown is old.'));
  }
  const onTpu = status.devices.some(device => device.on_tpu);
  return {
    text: parts.join(' · '),
    title: notes.join('\n') || t.__('The device of this notebook’s kernel; click for more.'),
    look: staleSeconds !== null ? 'stale' : onTpu ? 'tpu' : status.devices.length ? 'other' : 'none'
  };
}

/** A button with the line; it is for the status bar, or for a notebook's toolbar. */
export class StatusLine extends Widget {
  constructor(
    private readonly t: ITranslate,
    onClick: () => void
  ) {
    super();
    this.addClass('tpu-Status');
    const button = document.createElement('button');
    button.type = 'button';
    button.addEventListener('click', onClick);
    this.button = this.node.appendChild(button);
    document.addEventListener('visibilitychange', this.draw);
    this.draw();
  }

  /** The model that is followed; null for none. */
  set model(model: KernelModel | null) {
    if (model !== this._model) {
      this._model?.changed.disconnect(this.draw, this);
      this._model = model;
      model?.changed.connect(this.draw, this);
      this.draw();
    }
  }

  /** Whether the line is shown at all. */
  set enabled(enabled: boolean) {
    this._enabled = enabled;
    this.draw();
  }

  dispose(): void {
    window.clearTimeout(this._timer);
    document.removeEventListener('visibilitychange', this.draw);
    this.model = null;
    super.dispose();
  }

  private draw = (): void => {
    window.clearTimeout(this._timer);
    const model = this._enabled && !this._model?.isDisposed ? this._model : null;
    const line = model ? lineOf(model, this.t) : null;
    this.setHidden(!line?.text);
    if (!line || document.hidden) {
      return;
    }
    this.button.textContent = line.text;
    this.button.title = line.title;
    this.node.dataset.look = line.look;
    if (model?.status?.cell) {
      // Only so that silence is noticed; a packet draws at once.
      this._timer = window.setTimeout(this.draw, 1000);
    }
  };

  private _enabled = true;
  private _model: KernelModel | null = null;
  private _timer = 0;
  private readonly button: HTMLButtonElement;
}
