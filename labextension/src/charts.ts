/** Pictures that can be read with a pointer, with the keyboard, and as text. */

import { html, svg } from './dom';
import { ITranslate, seconds, significant, wallParts } from './format';
import { bins, ICompareData, ITimingData } from './results';

const WIDTH = 480;

/** A mark of a picture, and what it says. */
interface IMark {
  node: SVGElement;
  text: string;
}

/** The histogram of a timing; null where there is nothing to see. */
export function histogram(data: ITimingData, t: ITranslate): HTMLElement | null {
  const found = bins(data.timings);
  if (!found) {
    return null;
  }
  const height = 90;
  const step = WIDTH / found.counts.length;
  const tallest = Math.max(...found.counts);
  const marks = found.counts.map((count, index): IMark => {
    const low = found.low + index * found.width;
    const last = index === found.counts.length - 1;
    const high = last && found.beyond ? found.highest : low + found.width;
    const size = (height * count) / tallest;
    return {
      node: svg(
        'g',
        { class: 'tpu-Mark' },
        svg('rect', {
          class: 'tpu-Mark-area',
          x: index * step,
          y: 0,
          width: step,
          height
        }),
        svg('rect', {
          class: 'tpu-Mark-bar',
          x: index * step,
          y: height - size,
          width: Math.max(1, step - 1),
          height: size
        })
      ),
      text: t.__('%1 runs from %2 to %3', count, seconds(low), seconds(high))
    };
  });
  const lowest = seconds(found.low);
  const highest = seconds(found.high);
  const beyond = found.beyond
    ? t.__(', %1 beyond, to %2', found.beyond, seconds(found.highest))
    : '';
  const axis = svg(
    'g',
    { class: 'tpu-Axis' },
    svg('line', { x1: 0, x2: WIDTH, y1: height, y2: height }),
    svg('text', { x: 0, y: height + 16 }, lowest),
    svg('text', { x: WIDTH, y: height + 16, 'text-anchor': 'end' }, highest + beyond)
  );
  const summary = t.__(
    'Histogram of %1 runs from %2 to %3',
    data.timings.length,
    lowest,
    highest + beyond
  );
  return picture(summary, height + 22, [axis], marks, t);
}

/** The ratios of a comparison with their intervals; null where there are none. */
export function ratios(data: ICompareData, t: ITranslate): HTMLElement | null {
  const base = data.candidates[0]?.name;
  const pairs = data.pairs.filter(pair => pair.base === base);
  if (!pairs.length) {
    return null;
  }
  const band = [1 / (1 + data.margin), 1 + data.margin];
  const ends = pairs.flatMap(pair => [pair.ratio, pair.low ?? pair.ratio, pair.high ?? pair.ratio]);
  const room = (Math.max(...ends, band[1]) - Math.min(...ends, band[0])) * 0.05;
  const left = Math.min(...ends, band[0]) - room;
  const right = Math.max(...ends, band[1]) + room;
  const at = (value: number): number => ((value - left) / (right - left)) * WIDTH;
  const rows = pairs.length;
  const height = rows * 34 + 8;
  const marks = pairs.map((pair, index): IMark => {
    const y = 26 + index * 34;
    const low = at(pair.low ?? pair.ratio);
    const high = at(pair.high ?? pair.ratio);
    const interval =
      pair.low === null || pair.high === null
        ? t.__('too little to tell')
        : `${pair.low.toFixed(3)} … ${pair.high.toFixed(3)}`;
    return {
      node: svg(
        'g',
        { class: 'tpu-Mark' },
        svg('rect', { class: 'tpu-Mark-area', x: 0, y: y - 20, width: WIDTH, height: 34 }),
        svg('text', { x: 2, y: y - 8 }, pair.other),
        svg('line', { class: 'tpu-Mark-line', x1: low, x2: high, y1: y, y2: y }),
        svg('circle', { class: 'tpu-Mark-bar', cx: at(pair.ratio), cy: y, r: 5 })
      ),
      text: t.__(
        '%1: %2 times the time of %3 (%4), %5',
        pair.other,
        pair.ratio.toFixed(3),
        pair.base,
        interval,
        pair.verdict
      )
    };
  });
  const ground = svg(
    'g',
    { class: 'tpu-Axis' },
    svg('rect', {
      class: 'tpu-Axis-band',
      x: at(band[0]),
      y: 0,
      width: at(band[1]) - at(band[0]),
      height
    }),
    svg('line', { x1: at(1), x2: at(1), y1: 0, y2: height }),
    svg('text', { x: 0, y: height + 16 }, `× ${significant(left)}`),
    svg('text', { x: WIDTH, y: height + 16, 'text-anchor': 'end' }, `× ${significant(right)}`)
  );
  const summary = t.__('Time of %1 candidates against %2; shaded: the same', rows, base);
  return picture(summary, height + 22, [ground], marks, t);
}

/** The wall time of a cell, cut into its parts; null where nothing was measured. */
export function wallBar(
  cell: Parameters<typeof wallParts>[0],
  t: ITranslate,
  height = 22
): HTMLElement | null {
  const parts = wallParts(cell, t);
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  if (!total) {
    return null;
  }
  let from = 0;
  const marks = parts.map((part): IMark => {
    const width = (part.value / total) * WIDTH;
    const share = `${Math.round((100 * part.value) / total)} %`;
    const node = svg(
      'g',
      { class: 'tpu-Mark' },
      svg('rect', { class: `tpu-Part tpu-Part-${part.key}`, x: from, y: 0, width, height }),
      ...(width > 60 && height > 16 ? [svg('text', { x: from + 6, y: height - 7 }, part.name)] : [])
    );
    from += width;
    return { node, text: `${part.name}: ${seconds(part.value)} (${share})` };
  });
  const cut = parts.map(part => `${part.name} ${seconds(part.value)}`).join(' + ');
  return picture(t.__('Wall time: %1', cut), height, [], marks, t);
}

/**
 * A figure with a line of text below it: what is pointed at, or moved to with the arrow keys.
 */
function picture(
  summary: string,
  height: number,
  ground: SVGElement[],
  marks: IMark[],
  t: ITranslate
): HTMLElement {
  const readout = html('div', { class: 'tpu-Readout', 'aria-live': 'polite' }, summary);
  const drawn = svg(
    'svg',
    {
      viewBox: `0 0 ${WIDTH} ${height}`,
      tabindex: 0,
      role: 'img',
      'aria-label': `${summary}. ${t.__('Arrow keys read it.')}`
    },
    ...ground,
    ...marks.map(mark => mark.node)
  );
  let chosen = -1;
  const choose = (index: number): void => {
    marks[chosen]?.node.classList.remove('tpu-mod-chosen');
    chosen = index;
    marks[chosen]?.node.classList.add('tpu-mod-chosen');
    readout.textContent = marks[chosen]?.text ?? summary;
  };
  marks.forEach((mark, index) => {
    mark.node.addEventListener('pointerenter', () => choose(index));
  });
  drawn.addEventListener('pointerleave', () => choose(-1));
  drawn.addEventListener('blur', () => choose(-1));
  drawn.addEventListener('keydown', event => {
    const last = marks.length - 1;
    const to = {
      ArrowRight: Math.min(chosen + 1, last),
      ArrowDown: Math.min(chosen + 1, last),
      ArrowLeft: Math.max(chosen - 1, 0),
      ArrowUp: Math.max(chosen - 1, 0),
      Home: 0,
      End: last
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      choose(to);
    }
  });
  return html('figure', { class: 'tpu-Figure' }, drawn, readout);
}
