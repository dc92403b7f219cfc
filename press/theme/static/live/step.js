// One step: the target's row and x move toward each other, the other rows move away.
//
// The vectors are the model's own, written in the few directions in which they move (`onematrix.live.step_of`). The last
// row stands for all the rows that are not kept one by one: their average, with a bias that gives it their joint
// score. Each of them gets next to no push, so that row stays where it is.

import { drawing, element, field, head, load, quoted, select, token } from "./shared.js";

export const dot = (a, b) => a.reduce((sum, value, k) => sum + value * b[k], 0);
export const plus = (a, factor, b) => a.map((value, k) => value + factor * b[k]);
const size = (a) => Math.sqrt(dot(a, a));
export const cosine = (a, b) => dot(a, b) / (size(a) * size(b));

/** The vectors before any step. */
export const begin = ({ x, rows, bias }, target) => ({ x, rows, bias, target });

/** p = softmax(W x), the loss -log p_t, and its gradients: dL/dW[i] = factor_i x, and dL/dx. */
export function gradients({ x, rows, bias, target }) {
  const z = rows.map((row) => dot(row, x));
  z[z.length - 1] += bias;
  const most = Math.max(...z);
  const parts = z.map((score) => Math.exp(score - most));
  const sum = parts.reduce((a, b) => a + b, 0);
  const p = parts.map((part) => part / sum);
  const factor = p.map((p_i, i) => p_i - (i === target ? 1 : 0)); // p_i - [i = t]
  const byX = rows.reduce(
    (total, row, i) => plus(total, factor[i], row),
    x.map(() => 0),
  ); // sum p_i W[i] - W[t]
  return { p, loss: Math.log(sum) + most - z[target], factor, byX };
}

/** Learning rates with which a small first step promises this gain in the loss, from the rows and from x. */
export function rates(start, gain) {
  const { factor, byX } = gradients(start);
  const moved = factor.slice(0, -1);
  return { rows: gain / (dot(moved, moved) * dot(start.x, start.x)), x: gain / dot(byX, byX) };
}

/** One step against the gradients, both taken before either moves. A rate of zero leaves that side alone. */
export function step(state, rate) {
  const { factor, byX } = gradients(state);
  const last = state.rows.length - 1;
  const rows = state.rows.map((row, i) => (i === last ? row : plus(row, -rate.rows * factor[i], state.x)));
  return { ...state, rows, x: plus(state.x, -rate.x, byX) };
}

/** The plane of x and the target's row: a function from a vector to its shadow there, [along x, across x]. */
export function plane({ x, rows, target }) {
  const along = x.map((value) => value / size(x));
  const rest = plus(rows[target], -dot(rows[target], along), along);
  const across = rest.map((value) => value / size(rest));
  return (vector) => [dot(vector, along), dot(vector, across)];
}

/** The nearest of 1, 2 and 5 times a power of ten, from below. */
export function round125(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [5, 2, 1].find((n) => n <= (value / power) * 1.0001);
}

/** Places for labels beside their dots, right or left, and no label on an earlier one: a list of {x, y, right}. */
export function apart(dots, wide = (text) => 7.5 * text.length, high = 14) {
  const placed = [];
  const nearest = [...Array(40).keys()].map((n) => high * 0.5 * (n % 2 ? -1 : 1) * Math.ceil(n / 2));
  for (const { x, y, text } of dots) {
    const box = (right, dy) => ({
      right,
      x: x + (right ? 10 : -10),
      y: y + dy,
      from: right ? x : x - wide(text) - 10,
      width: wide(text) + 10,
    });
    const free = (one) =>
      placed.every(
        (other) =>
          Math.abs(one.y - other.y) >= high ||
          one.from >= other.from + other.width ||
          other.from >= one.from + one.width,
      );
    const clear = (one) =>
      dots.every(
        (dot) =>
          (dot.x === x && dot.y === y) ||
          Math.abs(one.y - dot.y) >= 9 ||
          dot.x < one.from ||
          dot.x > one.from + one.width,
      );
    const tries = nearest.flatMap((dy) => [box(true, dy), box(false, dy)]);
    placed.push(tries.find((one) => free(one) && clear(one)) ?? tries[0]);
  }
  return placed;
}

const GAINS = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2];
const MOVES = { both: "the rows and x", rows: "the rows only", x: "x only" };

export async function mount(place) {
  const { prompts } = await load("step-0");
  const state = { gain: 2, moves: "both", target: 0 };
  let data;
  let start; // before any step
  let now;
  let taken; // steps

  const note = element("p", { class: "om-live-note", role: "status" });
  const said = element("p", { class: "om-live-said", "aria-live": "polite" });
  const board = element("dl", { class: "om-live-board" });
  const picture = element("div", { class: "om-live-plane" });
  const table = element("div", { class: "om-live-rows" });
  const targets = element("select", { onchange: (event) => restart({ target: Number(event.target.value) }) });
  const gain = element("input", {
    type: "range",
    min: 0,
    max: GAINS.length - 1,
    value: state.gain,
    oninput: () => restart({ gain: Number(gain.value) }),
  });
  const rateText = element("p", { class: "om-live-rate" });
  const button = (text, work) => element("button", { type: "button", onclick: work }, text);

  place.replaceChildren(
    element(
      "div",
      { class: "om-live-controls" },
      field(
        "Prompt",
        select(
          prompts.map((text, n) => [n, text]),
          (n) => open(Number(n)).catch(complain),
        ),
      ),
      field("Target", targets),
      field(
        "Move",
        select(Object.entries(MOVES), (moves) => restart({ moves })),
      ),
      field("Learning rate", gain),
    ),
    rateText,
    element(
      "div",
      { class: "om-live-chips" },
      button("Step", () => go(1)),
      button("Ten steps", () => go(10)),
      button("Start again", () => restart({})),
    ),
    said,
    board,
    picture,
    table,
    note,
  );
  await open(0);

  function complain(error) {
    note.textContent = `Nothing changed: ${error.message}`;
  }

  async function open(prompt) {
    data = await load(`step-${prompt}`);
    note.textContent = "";
    targets.replaceChildren(
      ...data.tokens.slice(0, data.targets).map((name, i) => element("option", { value: i }, quoted(name))),
    );
    restart({ target: 0 });
  }

  function restart(some) {
    Object.assign(state, some);
    start = begin(data, state.target);
    now = start;
    taken = 0;
    show();
  }

  function rate() {
    const both = rates(start, GAINS[state.gain]);
    return { rows: state.moves === "x" ? 0 : both.rows, x: state.moves === "rows" ? 0 : both.x };
  }

  function go(steps) {
    const fixed = rate();
    for (let n = 0; n < steps; n++) now = step(now, fixed);
    taken += steps;
    show();
  }

  function show() {
    const before = gradients(start);
    const after = gradients(now);
    const { rows, x } = rates(start, GAINS[state.gain]);
    gain.setAttribute("aria-valuetext", `promises ${GAINS[state.gain]}`);
    rateText.textContent =
      `Rows: ${rows.toPrecision(2)}. x: ${x.toPrecision(2)}. With these, the first step promises to lower the loss by ` +
      `${GAINS[state.gain]} from each side.`;
    const target = data.tokens[state.target];
    const figures = {
      loss: after.loss.toFixed(4),
      [`probability of ${quoted(target)}`]: small(after.p[state.target]),
      "cosine of x and the row": cosine(now.x, now.rows[state.target]).toFixed(3),
      "cosine of the step for x and the row": (-cosine(after.byX, now.rows[state.target])).toFixed(3),
    };
    board.replaceChildren(
      ...Object.entries(figures).map(([name, value]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, value)),
      ),
    );
    said.textContent =
      taken === 0
        ? "No step taken yet."
        : `${taken === 1 ? "1 step" : `${taken} steps`}: the loss went from ${before.loss.toFixed(4)} to ${figures.loss}.`;
    showRows(before, after);
    showPlane();
  }

  /** The drawn rows: the target first, then the most probable. */
  function byWeight(p) {
    return data.tokens.map((_, i) => i).sort((a, b) => (b === state.target) - (a === state.target) || p[b] - p[a]);
  }

  function showRows(before, after) {
    const pull = 1 - after.p[state.target];
    const rows = byWeight(before.p).map((i) =>
      element(
        "tr",
        { class: i === state.target && "om-live-target" },
        element("th", { scope: "row" }, token(data.tokens[i])),
        element("td", { class: "number" }, small(before.p[i])),
        element("td", { class: "number" }, small(after.p[i])),
        element(
          "td",
          { class: "number" },
          i === state.target ? "pull" : `${((100 * after.p[i]) / pull).toPrecision(2)}%`,
        ),
      ),
    );
    table.replaceChildren(
      element(
        "table",
        {},
        element(
          "caption",
          {},
          `Probabilities after “${data.prompt}”, and the next push on each row as a share of the pull`,
        ),
        head(["token", "before#", "now#", "push#"]),
        element("tbody", {}, rows),
      ),
    );
  }

  /** Rows at their true size; x shorter; every move so many times larger than it is, or none could be seen. */
  function showPlane() {
    const shadow = plane(start);
    const reach = Math.max(...data.tokens.map((_, i) => Math.hypot(...shadow(start.rows[i]))));
    const shrink = reach / size(start.x);
    const times = round125(0.5 * size(start.rows[state.target]) * size(start.x));
    const moved = (from, to, scale) => {
      const [a, b] = [shadow(from), shadow(to)];
      return [0, 1].map((k) => scale * (a[k] + times * (b[k] - a[k])));
    };
    const unit = 205 / reach;
    const at = ([along, across]) => [unit * along, -unit * across];
    const order = byWeight(gradients(start).p);
    const ends = order.map((i) => at(moved(start.rows[i], now.rows[i], 1)));
    const word = (i) => data.tokens[i].trim() || data.tokens[i];
    const labels = apart(order.map((i, n) => ({ x: ends[n][0], y: ends[n][1], text: word(i) })));
    const dots = order.map((i, n) => {
      const [x0, y0] = at(shadow(start.rows[i]));
      const [x1, y1] = ends[n];
      const kind = i === state.target ? "target" : "other";
      return drawing(
        "g",
        { class: kind },
        kind === "target" ? drawing("path", { class: "arm", d: `M0 0L${x1} ${y1}` }) : null,
        drawing("path", { class: "trail", d: `M${x0} ${y0}L${x1} ${y1}` }),
        drawing("circle", { class: "from", cx: x0, cy: y0, r: 3 }),
        drawing("circle", { class: "to", cx: x1, cy: y1, r: kind === "target" ? 6 : 4 }),
        drawing("path", { class: "leader", d: `M${x1} ${y1}L${labels[n].x} ${labels[n].y}` }),
        drawing(
          "text",
          { x: labels[n].x, y: labels[n].y + 4, "text-anchor": labels[n].right ? "start" : "end" },
          word(i),
        ),
      );
    });
    const [tipX, tipY] = at(moved(start.x, now.x, shrink));
    const label =
      `The plane of x and the row of ${quoted(data.tokens[state.target])}. x points to the right. ` +
      `${taken} steps taken; moves are drawn ${times} times as large as they are.`;
    picture.replaceChildren(
      drawing(
        "svg",
        { viewBox: "-60 -225 340 305", role: "img", "aria-label": label },
        drawing("path", { class: "rule", d: "M-60 0H280M0 -225V80" }),
        dots,
        drawing("path", { class: "x", d: `M0 0L${tipX} ${tipY}` }),
        drawing("circle", { class: "x", cx: tipX, cy: tipY, r: 5 }),
        drawing("text", { class: "x", x: tipX + 8, y: tipY + 4 }, "x"),
      ),
      element(
        "p",
        {},
        `Across: along x. Up: across x, toward the row. x is drawn at ${(100 * shrink).toPrecision(2)}% of its length, and every move ${times} times as large as it is.`,
      ),
    );
  }
}

/** A probability in three places, or in two significant digits where these would be zeros. */
const small = (p) => (p >= 0.0005 ? p.toFixed(3) : p.toExponential(1));
