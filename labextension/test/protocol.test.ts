import { expect, it } from 'vitest';

import { readPacket } from '../src/protocol';

const status = {
  package: '0.1.0',
  every_s: 0.5,
  devices: [],
  automatic: null,
  host: {},
  cell: null,
  recent: []
};
const packet = { type: 'state', v: 1, seq: 3, t: 0, status };

it('a packet is read', () => {
  expect(readPacket(packet)).toEqual({ type: 'state', seq: 3, status });
  expect(readPacket({ type: 'gone', v: 1, seq: 4, status: null })).toEqual({
    type: 'gone',
    seq: 4
  });
});

it('one of another version is known as such, whatever is in it', () => {
  expect(readPacket({ type: 'news', v: 2 })).toEqual({ type: 'foreign', version: 2 });
});

it.each([
  [null],
  ['state'],
  [[packet]],
  [{ ...packet, type: 3 }],
  [{ ...packet, type: 'other' }],
  [{ ...packet, status: null }],
  [{ ...packet, status: { ...status, devices: 'none' } }],
  [{ ...packet, status: { ...status, cell: 'running' } }],
  [{ ...packet, status: { ...status, host: null } }]
])('%j is no packet', data => {
  expect(readPacket(data)).toBeNull();
});
