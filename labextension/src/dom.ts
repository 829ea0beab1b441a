/** Elements made of text only: nothing here takes markup. */

const SVG = 'http://www.w3.org/2000/svg';

type Attributes = Record<string, string | number>;

/** An HTML element with attributes and children; strings become text. */
export function html<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** A button with a text. */
export function button(text: string, onClick: () => void): HTMLButtonElement {
  const made = html('button', { type: 'button', class: 'tpu-Button' }, text);
  made.addEventListener('click', onClick);
  return made;
}

function filled<T extends Element>(
  element: T,
  attributes: Attributes,
  children: (Node | string)[]
): T {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}
