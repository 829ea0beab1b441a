/** The plugin: puts the parts into JupyterLab, and into Notebook 7 where there is a place. */

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { addCommands, chipIcon, COMMANDS } from './commands';
import { KernelModel } from './model';
import { DevicePanel } from './panel';
import { StatusLine } from './status';
import { switches } from './switches';

const ID = 'tpu-magic-lab:plugin';
const settings = { status: true, panel: true, renderer: true, interval: 0.5 };

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Shows the device of a kernel, and how its cells are going.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [
    IStatusBar,
    ICommandPalette,
    IToolbarWidgetRegistry,
    ISettingRegistry,
    ITranslator,
    ILayoutRestorer
  ],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    statusBar: IStatusBar | null,
    palette: ICommandPalette | null,
    toolbars: IToolbarWidgetRegistry | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null
  ): void => {
    const t = (translator ?? nullTranslator).load('tpu_magic');
    const models = new WeakMap<NotebookPanel, KernelModel>();
    const lines = new Set<StatusLine>();
    let side: DevicePanel | null = null;

    const modelOf = (panel: NotebookPanel): KernelModel => {
      let model = models.get(panel);
      if (!model) {
        const made = (model = new KernelModel(panel.sessionContext, () => settings.interval));
        models.set(panel, made);
        panel.disposed.connect(() => made.dispose());
      }
      return model;
    };
    const follow = (): void => {
      const panel = tracker.currentWidget;
      side?.follow(panel, panel && modelOf(panel));
    };
    const showPanel = (): void => {
      if (side) {
        app.shell.activateById(side.id);
      }
    };
    const statusLine = (): StatusLine => {
      const line = new StatusLine(t, showPanel);
      lines.add(line);
      line.disposed.connect(() => lines.delete(line));
      line.enabled = settings.status;
      return line;
    };

    if (statusBar) {
      const line = statusLine();
      const inFront = new Signal<StatusLine, void>(line);
      const isInFront = (): boolean =>
        tracker.currentWidget !== null && app.shell.currentWidget === tracker.currentWidget;
      const look = (): void => {
        line.model = tracker.currentWidget && modelOf(tracker.currentWidget);
        inFront.emit();
      };
      tracker.currentChanged.connect(look);
      app.shell.currentChanged?.connect(look);
      statusBar.registerStatusItem(ID, {
        item: line,
        align: 'left',
        rank: 90,
        isActive: isInFront,
        activeStateChanged: inFront
      });
      look();
    }
    // Notebook 7 has no status bar; its toolbar is the place.
    toolbars?.addFactory<NotebookPanel>('Notebook', 'tpu-status', panel => {
      const line = statusLine();
      line.model = statusBar ? null : modelOf(panel);
      return line;
    });

    addCommands(app, tracker, palette, panel => modelOf(panel).known, showPanel, t);

    const apply = (): void => {
      switches.renderer = settings.renderer;
      lines.forEach(line => (line.enabled = settings.status));
      if (settings.panel && !side) {
        side = new DevicePanel(t);
        side.title.icon = chipIcon;
        side.title.caption = t.__('TPU');
        app.shell.add(side, 'right', { rank: 700 });
        restorer?.add(side, side.id);
        follow();
      } else if (!settings.panel && side) {
        side.dispose();
        side = null;
      }
    };
    tracker.currentChanged.connect(follow);
    tracker.widgetAdded.connect((_, panel) => void modelOf(panel));
    tracker.forEach(panel => void modelOf(panel));

    if (registry) {
      void registry.load(ID).then(
        loaded => {
          const read = (): void => {
            const { interval } = settings;
            Object.assign(settings, loaded.composite);
            apply();
            if (settings.interval !== interval) {
              tracker.forEach(panel => modelOf(panel).refresh());
            }
          };
          loaded.changed.connect(read);
          read();
        },
        () => apply() // no schema on the server: the defaults
      );
    } else {
      apply();
    }
  }
};

export { COMMANDS };
export default plugin;
