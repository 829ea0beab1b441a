/** The renderer of the product's JSON results: a picture to read, and the text as it is. */

import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { histogram, ratios, wallBar } from './charts';
import { button, html } from './dom';
import { ITranslate } from './format';
import { switches } from './switches';
import {
  CellData,
  cellCsv,
  compareCsv,
  drawable,
  ICompareData,
  ITimingData,
  MIME_TYPES,
  timingCsv
} from './results';

const PLAIN: ITranslate = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, place) => String(values[Number(place) - 1]))
};

interface IDrawn {
  figure: HTMLElement | null;
  csv: string;
}

const DRAW: Record<string, (data: unknown, t: ITranslate) => IDrawn> = {
  'cell-report': (data, t) => ({
    figure: wallBar(data as CellData, t),
    csv: cellCsv(data as CellData)
  }),
  'timing-result': (data, t) => ({
    figure: histogram(data as ITimingData, t),
    csv: timingCsv(data as ITimingData)
  }),
  'compare-result': (data, t) => ({
    figure: ratios(data as ICompareData, t),
    csv: compareCsv(data as ICompareData)
  })
};

/** An output of the product. */
class ResultWidget extends Widget implements IRenderMime.IRenderer {
  constructor(private readonly options: IRenderMime.IRendererOptions) {
    super();
    this.addClass('tpu-Result');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const t: ITranslate = this.options.translator?.load('tpu_magic') ?? PLAIN;
    const data = model.data[this.options.mimeType];
    const kind = switches.renderer ? drawable(data) : null;
    const drawn = kind ? DRAW[kind](data, t) : null;
    this.node.replaceChildren(this.told(model, drawn?.figure ?? null, t));
    if (drawn?.figure) {
      this.node.append(drawn.figure);
    }
    if (drawn) {
      this.node.append(copyButton(drawn.csv, t));
    }
    return Promise.resolve();
  }

  /** What the output says as HTML (cleaned, without its own picture), or as text. */
  private told(
    model: IRenderMime.IMimeModel,
    figure: HTMLElement | null,
    t: ITranslate
  ): HTMLElement {
    const text = model.data['text/plain'];
    const markup = model.data['text/html'];
    if (typeof markup === 'string') {
      // Parsed in a document that runs and loads nothing, and cleaned before it is shown.
      const page = new DOMParser().parseFromString(markup, 'text/html');
      if (figure) {
        page.querySelectorAll('[role="img"]').forEach(node => node.remove());
      }
      const body = html('div', { class: 'tpu-Result-text' });
      body.innerHTML = this.options.sanitizer.sanitize(page.body.innerHTML);
      return body;
    }
    return html(
      'pre',
      { class: 'tpu-Result-text' },
      typeof text === 'string'
        ? text
        : t.__('This result cannot be shown: it was written by another version of tpu_magic.')
    );
  }
}

function copyButton(text: string, t: ITranslate): HTMLElement {
  const label = t.__('Copy as CSV');
  const made = button(label, () => {
    const say = (said: string): void => {
      made.textContent = said;
      window.setTimeout(() => (made.textContent = label), 1500);
    };
    copy(text).then(
      () => say(t.__('Copied')),
      () => say(t.__('The browser did not let it copy'))
    );
  });
  made.setAttribute('aria-live', 'polite');
  return html('div', { class: 'tpu-Result-tools' }, made);
}

/** Copy; a page that is not secure has no clipboard but can still copy a selection. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text);
  }
  const area = html('textarea', { 'aria-hidden': 'true' }, text);
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  if (!copied) {
    throw new Error('not copied');
  }
}

const extension: IRenderMime.IExtension = {
  id: 'tpu-magic-lab:renderer',
  description: 'Shows the results of tpu_magic.',
  rendererFactory: {
    safe: true,
    mimeTypes: MIME_TYPES,
    createRenderer: options => new ResultWidget(options)
  },
  rank: 0,
  dataType: 'json'
};

export default extension;
