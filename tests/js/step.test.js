import assert from "node:assert/strict";
import { test } from "node:test";

import {
  apart,
  begin,
  cosine,
  dot,
  gradients,
  plane,
  rates,
  round125,
  step,
} from "../../press/theme/static/live/step.js";

// Three rows and one that stands for two more: each of them scores 0.3 with x, so together log(2) + 0.3.
const x = [2, 0, 0];
const all = [
  [0.5, 1, 0],
  [0.2, -1, 0.5],
  [-0.4, 0.3, 0],
  [0.15, 0.6, 0.1],
  [0.15, -0.2, 0.3],
];
const rows = [all[0], all[1], all[2], [0.15, 0.2, 0.2]];
const data = { x, rows, bias: Math.log(2) };

const near = (a, b, slack = 1e-12) => assert.ok(Math.abs(a - b) <= slack, `${a} is not ${b}`);

function lossOf(vectors, at, target) {
  const z = vectors.map((row) => dot(row, at));
  return Math.log(z.reduce((sum, score) => sum + Math.exp(score), 0)) - z[target];
}

test("probabilities sum to one, and the rest counts for all the rows it stands for", () => {
  const { p, loss } = gradients(begin(data, 0));
  near(
    p.reduce((a, b) => a + b, 0),
    1,
  );
  near(loss, lossOf(all, x, 0));
  near(loss, -Math.log(p[0]));
});

test("the factors are p_i, and p_t - 1 for the target; they sum to zero", () => {
  const { p, factor } = gradients(begin(data, 1));
  near(factor[1], p[1] - 1);
  near(factor[2], p[2]);
  near(
    factor.reduce((a, b) => a + b, 0),
    0,
  );
});

test("dL/dx is the slope of the loss over all rows", () => {
  const { byX } = gradients(begin(data, 2));
  for (const k of x.keys()) {
    const h = 1e-6;
    const moved = (sign) => x.map((value, j) => value + (j === k ? sign * h : 0));
    near(byX[k], (lossOf(all, moved(1), 2) - lossOf(all, moved(-1), 2)) / (2 * h), 1e-8);
  }
});

test("the target's row moves exactly along x, the others exactly away", () => {
  const start = begin(data, 0);
  const after = step(start, { rows: 0.1, x: 0 });
  const move = (i) => after.rows[i].map((value, k) => value - start.rows[i][k]);
  near(cosine(move(0), x), 1);
  near(cosine(move(1), x), -1);
  assert.deepEqual(after.rows[3], rows[3]);
  assert.deepEqual(after.x, x);
});

test("a small step gains what the rates promise, from either side", () => {
  const start = begin(data, 0);
  const gain = 1e-5;
  const rate = rates(start, gain);
  for (const only of [
    { rows: rate.rows, x: 0 },
    { rows: 0, x: rate.x },
  ]) {
    const won = gradients(start).loss - gradients(step(start, only)).loss;
    near(won / gain, 1, 1e-3);
  }
});

test("in the plane of x and the target's row both keep their lengths, and a shadow is no longer than its vector", () => {
  const shadow = plane(begin(data, 0));
  near(Math.hypot(...shadow(x)), 2);
  near(shadow(x)[1], 0);
  near(Math.hypot(...shadow(rows[0])), Math.hypot(...rows[0]));
  assert.ok(Math.hypot(...shadow(rows[1])) < Math.hypot(...rows[1]));
});

test("scales are 1, 2 or 5 times a power of ten", () => {
  assert.deepEqual([45, 50, 19, 1, 0.7].map(round125), [20, 50, 10, 1, 0.5]);
});

test("labels stand beside their dots, and none on another", () => {
  const dots = [..."abcdefgh"].map((text) => ({ x: 5, y: 5, text }));
  const placed = apart(dots);
  assert.deepEqual([placed[0].x, placed[0].y], [15, 5]);
  for (const [n, one] of placed.entries()) {
    for (const other of placed.slice(n + 1)) {
      assert.ok(one.right !== other.right || Math.abs(one.y - other.y) >= 14);
    }
  }
});
