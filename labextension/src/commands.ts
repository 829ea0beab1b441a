/** Commands that write magic lines: the notebook stays readable wherever it is opened. */

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, InputDialog, Notification } from '@jupyterlab/apputils';
import { ICellModel } from '@jupyterlab/cells';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { LabIcon } from '@jupyterlab/ui-components';

import chip from '../style/chip.svg';
import { ITranslate, Knowledge } from './format';
import {
  afterLoading,
  IEdit,
  isOtherMagic,
  loads,
  removeMagic,
  turnSwitch,
  writeMagic
} from './magic';

export const COMMANDS = {
  run: 'tpu-magic:run',
  time: 'tpu-magic:time',
  check: 'tpu-magic:check',
  plain: 'tpu-magic:plain',
  toggle: 'tpu-magic:toggle-notebook',
  setup: 'tpu-magic:setup',
  panel: 'tpu-magic:show-panel'
};

export const chipIcon = new LabIcon({ name: 'tpu-magic:chip', svgstr: chip });

const LOAD = '%load_ext tpu_magic';
const TARGETS = [
  'v5e-1',
  'v5e-4',
  'v5e-8',
  'v6e-1',
  'v6e-4',
  'v6e-8',
  'v5p-8',
  'v4-8',
  'v3-8',
  'v2-8',
  '7x-2',
  '7x-8'
];

/** The parts of a shared cell that an edit needs; `undoManager` is not in the interface. */
interface IUndoable {
  undoManager?: { stopCapturing(): void } | null;
}

/** Change a cell's text by one edit, which one undo takes back. */
export function edit(model: ICellModel, change: IEdit): void {
  const shared = model.sharedModel;
  const undo = (shared as unknown as IUndoable).undoManager;
  undo?.stopCapturing(); // not together with what was typed just before
  shared.updateSource(change.start, change.end, change.text);
  undo?.stopCapturing();
}

/** Whether notebooks are on, as far as their text says. */
export function isOn(panel: NotebookPanel): boolean {
  const lines = sources(panel).flatMap(
    source => source.match(/^[ \t]*%tpu_run[ \t]+(on|off)\b/gm) ?? []
  );
  return lines[lines.length - 1]?.endsWith('on') ?? false;
}

/** Add the commands, and put them into the palette. */
export function addCommands(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  palette: ICommandPalette | null,
  knownOf: (panel: NotebookPanel) => Knowledge,
  showPanel: () => void,
  t: ITranslate
): void {
  const { commands } = app;
  const none = { type: 'object', properties: {} };
  const current = (): NotebookPanel | null => tracker.currentWidget;
  const codeCell = (): ICellModel | null => {
    const model = current()?.content.activeCell?.model;
    return model?.type === 'code' ? model : null;
  };
  const add = (
    id: string,
    label: string | (() => string),
    caption: string,
    execute: () => unknown,
    isEnabled: () => boolean
  ): void => {
    commands.addCommand(id, {
      label,
      caption,
      execute,
      isEnabled,
      describedBy: { args: none },
      icon: id === COMMANDS.run ? chipIcon : undefined
    });
    palette?.addItem({ command: id, category: t.__('TPU') });
  };

  const write = async (name: string, options = ''): Promise<void> => {
    const panel = current();
    const cell = codeCell();
    if (!panel || !cell) {
      return;
    }
    const source = cell.sharedModel.getSource();
    if (isOtherMagic(source)) {
      const other = source.trim().split(/\s/)[0];
      Notification.warning(t.__('This cell begins with %1: take that away first.', other), {
        autoClose: 6000
      });
      return;
    }
    const change = writeMagic(source, name, options);
    if (change) {
      edit(cell, change);
    }
    await panel.sessionContext.ready; // a Run before there is a kernel is dropped
    if (knownOf(panel) === 'absent') {
      await runLoading(panel);
    }
    await commands.execute('notebook:run-cell');
  };

  const onCodeCell = (): boolean => codeCell() !== null;
  const onNotebook = (): boolean => current() !== null;

  add(
    COMMANDS.run,
    t.__('Run Cell on the TPU'),
    t.__('Make %1 the first line of the cell, and run it', '%%tpu_run'),
    () => write('tpu_run'),
    onCodeCell
  );
  add(
    COMMANDS.time,
    t.__('Time Cell on the TPU'),
    t.__('Make %1 the first line of the cell, and run it', '%%tpu_timeit'),
    () => write('tpu_timeit'),
    onCodeCell
  );
  add(
    COMMANDS.check,
    t.__('Check Cell for a TPU…'),
    t.__('Make %1 the first line of the cell, and run it', '%%tpu_check'),
    async () => {
      const target = await InputDialog.getItem({
        title: t.__('Which TPU is the cell for?'),
        items: TARGETS,
        editable: true
      });
      if (target.button.accept && target.value) {
        await write('tpu_check', `--target ${target.value.trim()}`);
      }
    },
    onCodeCell
  );
  add(
    COMMANDS.plain,
    t.__('Take the TPU Magic Line Away'),
    t.__('Make the cell a plain one'),
    () => {
      const cell = codeCell();
      const change = cell && removeMagic(cell.sharedModel.getSource());
      if (cell && change) {
        edit(cell, change);
      }
    },
    () => removeMagic(codeCell()?.sharedModel.getSource() ?? '') !== null
  );
  add(
    COMMANDS.toggle,
    () => {
      const panel = current();
      return panel && isOn(panel)
        ? t.__('Run the Notebook’s Cells Plainly')
        : t.__('Run All Cells of the Notebook on the TPU');
    },
    t.__('Write %1 into a cell at the top, and run it', '%tpu_run on'),
    async () => {
      const panel = current();
      if (panel) {
        const index = writeSwitch(panel, !isOn(panel));
        await runAt(panel, index);
        commands.notifyCommandChanged(COMMANDS.toggle);
      }
    },
    onNotebook
  );
  add(
    COMMANDS.setup,
    t.__('Set Up the TPU for this Notebook'),
    t.__('Write %1 into a cell at the top, and run it', '%tpu_setup'),
    async () => {
      const panel = current();
      if (panel) {
        await runAt(panel, writeLine(panel, '%tpu_setup', /^[ \t]*%tpu_setup\b/m));
      }
    },
    onNotebook
  );
  add(
    COMMANDS.panel,
    t.__('Show the TPU Panel'),
    t.__('Devices, last cells, advice'),
    showPanel,
    () => true
  );

  const changed = (): void => commands.notifyCommandChanged();
  tracker.activeCellChanged.connect(changed);
}

function sources(panel: NotebookPanel): string[] {
  return panel.content.widgets.map(cell =>
    cell.model.type === 'code' ? cell.model.sharedModel.getSource() : ''
  );
}

/** Write `%tpu_run on` or `off`; return the index of the cell that holds it. */
function writeSwitch(panel: NotebookPanel, on: boolean): number {
  const found = sources(panel).map(source => turnSwitch(source, on));
  const index = found.findIndex(change => change !== null);
  const change = found[index];
  if (change) {
    edit(panel.content.widgets[index].model, change);
    return index;
  }
  return writeLine(panel, `%tpu_run ${on ? 'on' : 'off'}`, null);
}

/**
 * Write a line where the extension is loaded, or into a new cell at the top; return the
 * index of the cell. A cell that has the line already (by its pattern) is left as it is.
 */
function writeLine(panel: NotebookPanel, line: string, already: RegExp | null): number {
  const all = sources(panel);
  const there = already ? all.findIndex(source => already.test(source)) : -1;
  if (there >= 0) {
    return there;
  }
  const loading = all.findIndex(source => loads(source));
  if (loading < 0) {
    return insertAtTop(panel, `${LOAD}\n${line}`);
  }
  const change = afterLoading(all[loading], line);
  if (change) {
    edit(panel.content.widgets[loading].model, change);
  }
  return loading;
}

function insertAtTop(panel: NotebookPanel, source: string): number {
  panel.content.model?.sharedModel.insertCell(0, { cell_type: 'code', source, metadata: {} });
  return 0;
}

/** Run the cell that loads the extension, writing one when there is none. */
async function runLoading(panel: NotebookPanel): Promise<void> {
  const index = sources(panel).findIndex(source => loads(source));
  await runAt(panel, index >= 0 ? index : insertAtTop(panel, LOAD));
}

/** Run a cell; the active cell stays active. */
async function runAt(panel: NotebookPanel, index: number): Promise<void> {
  await panel.sessionContext.ready;
  const cell = panel.content.widgets[index];
  await NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
}
