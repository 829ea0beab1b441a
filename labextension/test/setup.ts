// jsdom lacks it, and Lumino's widgets name it when they are loaded.
globalThis.DragEvent ??= class extends Event {} as typeof DragEvent;
