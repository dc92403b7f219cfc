import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHash, look, toHash } from "../../press/theme/static/live/slot.js";

test("a token's record, with names in the place of numbers", () => {
  const file = {
    own: 1,
    tokens: [" x", " y", " z"],
    near: [
      [
        [1, 2],
        [900, 800],
      ],
    ],
    next: [[[7, [3, 4], [2, 1], [500, 20], [3, 2]]]],
  };
  const { name, near, next } = look(file, 0);
  assert.equal(name, " x");
  assert.deepEqual(near[1], { name: " z", cosine: 800, rank: 3 });
  assert.equal(next[0].own, 7);
  assert.deepEqual(next[0].best[0], { name: " z", p: 500, rank: 1, inNear: 3 });
  assert.ok(!look({ ...file, next: [null] }, 0).next);
});

test("a link carries any token there and back", () => {
  for (const token of [" dog", "<script>", "a&b=c", "#", "\\n", "é", "�#187", "+", "%20"]) {
    assert.deepEqual(fromHash(toHash({ token, frame: "She saw the" })), { token, frame: "She saw the" });
  }
  assert.equal(fromHash("#summary"), null);
});
