// What message number `index` looks like, so that a receiver can rebuild it from its number.
'use strict';

const PERIOD = 251; // A prime, so that a body shifted by a power of two shows.

function size(index, count, bodyMax) {
  const fifth = n => Math.floor(n * count / 5);
  if ([ fifth(1), fifth(2) + 1, fifth(3), fifth(4) + 1 ].includes(index)) return bodyMax;
  if (index % 50 === 7) return Math.min(bodyMax, 1024 << (Math.floor(index / 50) % 8));
  return Math.min(bodyMax, 1 + index * 37 % 1024);
}

function content(index, count, bodyMax) {
  const period = Buffer.from(Array.from({ length: PERIOD }, (_, position) => (index + 7 * position) % 256));
  return {
    body: Buffer.alloc(size(index, count, bodyMax), period),
    tag: `tag-${index % 7}`,
    keys: [ `key-${index}`, `shared-${index % 10}` ],
    properties: new Map([
      [ 'index', String(index) ],
      [ 'text', `größe-${index}-完了` ],
      [ 'symbols', `a=b&c;d|e%41 "${index}" 'x'` ],
    ]),
  };
}

module.exports = { content };
