import assert from "node:assert/strict";
import { test } from "node:test";

import { about, cellAt, depth, sameWord, unrounded, walk } from "../../press/theme/static/live/lens.js";

// Two layers, two positions, lists of one: with the norm first, then without.
const data = {
  positions: [0, 1],
  layers: ["embedding", "block 1"],
  top: [
    [[0], [1], [2], [3]],
    [[4], [5], [6], [7]],
  ],
  p: [
    [[10], [20], [30], [40]],
    [[50], [60], [70], [80]],
  ],
};

test("a cell is found by layer, position and norm", () => {
  assert.deepEqual(cellAt(data, { norm: true, layer: 1, position: 0 }), { list: [{ token: 2, p: 30 }], place: 2 });
  assert.deepEqual(cellAt(data, { norm: false, layer: 0, position: 1 }), { list: [{ token: 5, p: 60 }], place: 5 });
});

test("a walk takes one rank a layer, at one position", () => {
  const ranks = [1, 2, 3, 4, 5, 6, 7, 8];
  assert.deepEqual(walk(data, ranks, true, 1), [2, 4]);
  assert.deepEqual(walk(data, ranks, false, 0), [5, 7]);
});

test("rank one is on top, the last rank at the bottom", () => {
  assert.equal(depth(1, 50000), 0);
  assert.equal(depth(50000, 50000), 1);
  assert.ok(Math.abs(depth(100, 10000) - 0.5) < 1e-12);
});

test("a word is the same with other capitals and spaces", () => {
  assert.ok(sameWord(" Dog", "dog"));
  assert.ok(!sameWord(" dogs", " dog"));
});

test("rounded ranks come back layer by layer, small ones exactly", () => {
  const measure = { size: 49152, steps: 250 };
  const step = (rank) => Math.round((Math.log(rank) / Math.log(measure.size)) * measure.steps);
  const ranks = [...Array(20).keys()].map((n) => n + 1);
  const differences = ranks.map((rank, k) => step(rank) - (k ? step(ranks[k - 1]) : 0));
  assert.deepEqual(unrounded(differences, measure), ranks);
  for (const rank of [21, 208, 999, 12345, 49152]) {
    const [back] = unrounded([step(rank)], measure);
    assert.ok(Math.abs(back / rank - 1) < 0.03, `${rank} came back as ${back}`);
  }
});

test("a rounded rank says so", () => {
  assert.equal(about(7), "7");
  assert.equal(about(12345), "about 12,000");
});
