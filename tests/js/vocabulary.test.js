import assert from "node:assert/strict";
import { test } from "node:test";

import { fileOf, find, fits, search, sortKey } from "../../press/theme/static/live/vocabulary.js";

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

test("a token is found by its exact name, in whichever file it is", async () => {
  assert.deepEqual(await find(INDEX, "dog", fetchFile), { name: "dog", file: 2, place: 0 });
  assert.deepEqual(await find(INDEX, " dog", fetchFile), { name: " dog", file: 1, place: 2 });
  assert.equal(await find(INDEX, " elsewhere", fetchFile), null);
  assert.equal(await find(INDEX, "do", fetchFile), null);
});
