import assert from "node:assert/strict";
import { test } from "node:test";

import ledger from "../../press/theme/static/ledger.js";

const row = { text: "dog-lens the three likeliest tokens", verdict: "differs", document: "Weight tying, part 2" };
const all = { words: "", verdict: "", document: "" };

test("a row is shown where it holds every word that is asked for, in any case", () => {
  assert.ok(ledger.matches(row, all));
  assert.ok(ledger.matches(row, { ...all, words: "LENS dog" }));
  assert.ok(!ledger.matches(row, { ...all, words: "lens cat" }));
});

test("verdict and document must be those that are asked for", () => {
  assert.ok(ledger.matches(row, { ...all, verdict: "differs", document: "Weight tying, part 2" }));
  assert.ok(!ledger.matches(row, { ...all, verdict: "holds" }));
  assert.ok(!ledger.matches(row, { ...all, document: "Weight tying, part 1" }));
});

test("numbers sort as numbers, the rest as words", () => {
  assert.deepEqual(["10", "9", "b", "a", "1"].sort(ledger.compareKeys), ["1", "9", "10", "a", "b"]);
});
