/** Magic lines in the text of a cell. Pure: text in, an edit out. */

/** Replace the characters from `start` to `end` by `text`. */
export interface IEdit {
  start: number;
  end: number;
  text: string;
}

const OURS = /^%%tpu_(\w+)([^\n]*)(\n|$)/;
const SWITCH = /^[ \t]*%tpu_run[ \t]+(on|off)\b([^\n]*)$/m;
const LOADED = /^[ \t]*%(?:re)?load_ext[ \t]+tpu_magic\b[^\n]*$/m;

/**
 * The edit that makes `%%name options` the first line of a cell.
 *
 * A line of ours is replaced; one that has this magic already keeps its options where none
 * are given. Null when nothing is to change, or when another cell magic is in the way.
 */
export function writeMagic(source: string, name: string, options = ''): IEdit | null {
  const found = OURS.exec(source);
  const line = `%%${name}${options ? ` ${options}` : ''}`;
  if (found === null) {
    return isOtherMagic(source) ? null : { start: 0, end: 0, text: `${line}\n` };
  }
  if (`tpu_${found[1]}` === name && (!options || found[2].trim() === options)) {
    return null;
  }
  return { start: 0, end: found[0].length - found[3].length, text: line };
}

/** The edit that takes a magic line of ours away; null when there is none. */
export function removeMagic(source: string): IEdit | null {
  const found = OURS.exec(source);
  return found && { start: 0, end: found[0].length, text: '' };
}

/** Whether the cell begins with a cell magic that is not ours. */
export function isOtherMagic(source: string): boolean {
  return /^\s*%%/.test(source) && !OURS.test(source);
}

/** The edit that turns a `%tpu_run on` or `off` line to the other; null without one. */
export function turnSwitch(source: string, on: boolean): IEdit | null {
  const found = SWITCH.exec(source);
  if (found === null) {
    return null;
  }
  const rest = on && found[1] === 'on' ? found[2] : '';
  const text = `%tpu_run ${on ? 'on' : 'off'}${rest}`;
  return { start: found.index, end: found.index + found[0].length, text };
}

/** The edit that adds a line after the one that loads the extension; null without one. */
export function afterLoading(source: string, line: string): IEdit | null {
  const found = LOADED.exec(source);
  if (found === null) {
    return null;
  }
  const at = found.index + found[0].length;
  return { start: at, end: at, text: `\n${line}` };
}

/** Whether the text loads the extension. */
export function loads(source: string): boolean {
  return LOADED.test(source);
}

/** The text after an edit. */
export function applied(source: string, edit: IEdit): string {
  return source.slice(0, edit.start) + edit.text + source.slice(edit.end);
}
