import { ITranslate } from '../src/format';

/** No translation: the places are filled in. */
export const t: ITranslate = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, place) => String(values[Number(place) - 1]))
};
