import assert from "node:assert/strict";
import { test } from "node:test";

import { fileOf, find, fits, fromHash, look, search, sortKey, toHash } from "../../press/theme/static/live/slot.js";

const FILES = [
  { own: 3, tokens: [" a", " cat", "Cat", " elsewhere"] },
  { own: 3, tokens: ["catalog", " Do", " dog"] },
  { own: 3, tokens: ["dog", " dogs", " zebra", " cat"] },
];
const INDEX = { starts: ["a", "catalog", "dog"] };
const fetchFile = async (k) => FILES[k];
const found = async (typed, most = 8) => (await search(INDEX, typed, most, fetchFile)).map(({ name }) => name);

test("a beginning is looked for in the last file that starts before it", () => {
  assert.equal(fileOf(INDEX.starts, "a"), 0);
  assert.equal(fileOf(INDEX.starts, "catalog"), 0);
  assert.equal(fileOf(INDEX.starts, "catb"), 1);
  assert.equal(fileOf(INDEX.starts, "zz"), 2);
  assert.equal(fileOf(INDEX.starts, ""), 0);
});

test("a search crosses files, leaves spaces and capitals aside, and puts whole words first", async () => {
  assert.deepEqual(await found("cat"), [" cat", "Cat", "catalog"]);
  assert.deepEqual(await found("dog"), [" dog", "dog", " dogs"]);
  assert.deepEqual(await found("DO"), [" Do", " dog", "dog", " dogs"]);
});

test("a typed space must be there", async () => {
  assert.deepEqual(await found(" dog"), [" dog", " dogs"]);
  assert.ok(fits(" Dog", " d"));
  assert.ok(!fits("Dog", " d"));
});

test("words that a file only mentions are not its own", async () => {
  assert.deepEqual(await found("elsewhere"), []);
  assert.deepEqual(await found("cat", 1), [" cat"]);
});

test("nothing begins so: an empty list, not an error", async () => {
  assert.deepEqual(await found("zzz"), []);
  assert.deepEqual(await found("!"), []);
});

test("sort keys", () => {
  assert.equal(sortKey("  The Dog"), "the dog");
  assert.equal(sortKey(""), "");
});

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

test("a token is found by its exact name, in whichever file it is", async () => {
  assert.deepEqual(await find(INDEX, "dog", fetchFile), { name: "dog", file: 2, place: 0 });
  assert.deepEqual(await find(INDEX, " dog", fetchFile), { name: " dog", file: 1, place: 2 });
  assert.equal(await find(INDEX, " elsewhere", fetchFile), null);
  assert.equal(await find(INDEX, "do", fetchFile), null);
});
