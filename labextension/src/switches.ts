/** What the renderer needs of the settings: it is loaded apart from the plugin. */

export const switches = { renderer: true };
