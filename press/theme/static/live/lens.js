// The lens: blocks by positions, what the model's last step reads in each cell, and one token followed through the blocks.
//
// Of some hundreds of tokens a prompt's files hold the rank in every cell. Of every other token of the vocabulary
// they hold its way at the last position, with the norm, in rounded ranks.

import { careful, count, drawing, element, field, head, load, quoted, select, thousandths, token } from "./shared.js";
import { combobox } from "./vocabulary.js";

/** One cell: its list, and its place among all cells. With the norm comes first in the files. */
export function cellAt(data, { norm, layer, position }) {
  const width = data.positions.length;
  const n = layer * width + position;
  const list = data.top[norm ? 0 : 1][n].map((i, k) => ({ token: i, p: data.p[norm ? 0 : 1][n][k] }));
  return { list, place: (norm ? 0 : data.layers.length * width) + n };
}

/** Whether two tokens are one word, whatever their capitals and spaces. */
export const sameWord = (a, b) => a.trim().toLowerCase() === b.trim().toLowerCase();

/** The ranks of a followed token at one position, from the embedding to the last block. */
export function walk(data, ranks, norm, position) {
  return data.layers.map((_, layer) => ranks[cellAt(data, { norm, layer, position }).place]);
}

/** Ranks from the differences, layer by layer, of their rounded logarithms: `steps` of them lead from 1 to `size`. */
export function unrounded(differences, { size, steps }) {
  let step = 0;
  return differences.map((difference) => {
    step += difference;
    return Math.round(size ** (step / steps));
  });
}

/** A rank that may be off by three in a hundred, as text; a small one is exact. */
export const about = (rank) => (rank <= 20 ? count(rank) : `about ${count(Number(rank.toPrecision(2)))}`);

/** Where a rank stands between the first place (0) and the last (1), in logarithms. */
export const depth = (rank, last) => Math.log(rank) / Math.log(last);

export async function mount(place) {
  const { prompts, size } = await load("lens-0");
  const vocabulary = await load("slot");
  const state = { prompt: 0, norm: true, layer: 0, position: 0 };
  let data; // of the prompt
  let followed; // a token: its name, its place in the prompt's list, its `way` through the layers, how to `say` a rank
  let cells; // the grid's elements, layer by layer

  const note = element("p", { class: "om-live-note", role: "status" });
  const attempt = careful(note);
  const said = element("p", { class: "om-live-said", "aria-live": "polite" });
  const grid = element("div", { class: "om-live-grid" });
  const panel = element("div", { class: "om-live-panel" });
  const line = element("div", { class: "om-live-line" });
  const chooser = element("select", { onchange: (event) => attempt(() => follow(Number(event.target.value))) });
  const any = combobox("om-lens-tokens", vocabulary, attempt, (choice) => attempt(() => followAny(choice)));
  const norm = element("input", { type: "checkbox", checked: true, onchange: () => change({ norm: norm.checked }) });

  place.replaceChildren(
    element(
      "div",
      { class: "om-live-controls" },
      field(
        "Prompt",
        select(
          prompts.map((text, n) => [n, text]),
          (n) => attempt(() => open(Number(n))),
        ),
      ),
      field("Follow", chooser),
      field("or any token", any.input, any.box),
      element("label", { class: "om-live-check" }, norm, "final norm"),
    ),
    grid,
    element("div", { class: "om-live-lists" }, panel, line),
    said,
    note,
  );
  await open(0);

  async function open(prompt) {
    data = await load(`lens-${prompt}`);
    const last = data.positions.length - 1;
    followed = listed(data.positions[last], data.own);
    Object.assign(state, { prompt, position: last, layer: 0 });
    chooser.replaceChildren(...data.tokens.map((name, i) => element("option", { value: i }, quoted(name))));
    drawGrid();
    change({});
    grid.scrollTop = 0;
  }

  /** A token of the prompt's list, whose rank is known in every cell. */
  function listed(i, ranks) {
    return { name: data.tokens[i], place: i, way: (norm, position) => walk(data, ranks, norm, position), say: count };
  }

  /** Any other token. */
  function unlisted(name, way) {
    const last = data.positions.length - 1;
    return { name, place: -1, way: (norm, position) => (norm && position === last ? way : null), say: about };
  }

  async function ranksOf(i) {
    const file = await load(`lens-${state.prompt}-ranks-${Math.floor(i / data.together)}`);
    return file[i % data.together];
  }

  async function follow(i) {
    followed = listed(i, await ranksOf(i));
    change({});
    tell();
  }

  async function followAny({ name, file, place: n }) {
    const i = data.tokens.indexOf(name);
    if (i >= 0) return follow(i);
    const walks = await load(`walks-${file}`);
    followed = unlisted(name, unrounded(walks[n][state.prompt], data));
    norm.checked = true;
    change({ norm: true, position: data.positions.length - 1 });
    tell();
  }

  function tell() {
    const way = followed.way(state.norm, state.position);
    const [first, last] = [way[0], way.at(-1)].map(followed.say);
    said.textContent = `${quoted(followed.name)}: rank ${first} at the embedding, ${last} at the last block.`;
  }

  /** Change some of the state and show it. */
  function change(some) {
    Object.assign(state, some);
    chooser.selectedIndex = followed.place;
    any.input.value = followed.place < 0 ? followed.name : "";
    if (!("layer" in some)) fillGrid();
    mark();
    showCell();
    showLine();
  }

  function drawGrid() {
    const titles = data.positions.map((i) => element("th", { scope: "col" }, token(data.tokens[i])));
    cells = data.layers.map((_, layer) =>
      data.positions.map((_, position) => {
        const pick = () => change({ layer, position });
        return element("td", {
          role: "gridcell",
          tabindex: -1,
          onpointerenter: pick,
          onfocus: pick,
          onclick: (event) => event.currentTarget.focus(),
        });
      }),
    );
    const rows = cells.map((row, layer) =>
      element("tr", { role: "row" }, element("th", { scope: "row" }, data.layers[layer]), row),
    );
    grid.replaceChildren(
      element(
        "table",
        {
          role: "grid",
          "aria-label": `The lens on ${quoted(data.prompt)}: layers down, positions across`,
          onkeydown: move,
        },
        element("thead", {}, element("tr", { role: "row" }, element("th", { scope: "col" }, "after"), titles)),
        element("tbody", {}, rows),
      ),
    );
  }

  function fillGrid() {
    for (const [layer, row] of cells.entries()) {
      for (const [position, cell] of row.entries()) {
        const [best] = cellAt(data, { norm: state.norm, layer, position }).list;
        const name = data.tokens[best.token];
        cell.replaceChildren(token(name));
        cell.style.setProperty("--p", best.p / 1000);
        cell.classList.toggle("own", sameWord(name, data.tokens[data.positions[position]]));
        cell.setAttribute("aria-label", `${quoted(name)}, ${thousandths(best.p)}`);
      }
    }
  }

  /** The one cell that is shown below is the one that the tab key reaches. */
  function mark() {
    for (const old of grid.querySelectorAll("[aria-selected=true]")) {
      old.setAttribute("aria-selected", "false");
      old.tabIndex = -1;
    }
    const cell = cells[state.layer][state.position];
    cell.setAttribute("aria-selected", "true");
    cell.tabIndex = 0;
  }

  function move(event) {
    const ends = { Home: -Infinity, End: Infinity };
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const [down, right] = event.key in ends ? [ends[event.key], 0] : (steps[event.key] ?? []);
    if (down === undefined) return;
    event.preventDefault();
    const within = (n, length) => Math.min(Math.max(n, 0), length - 1);
    const layer = within(state.layer + down, data.layers.length);
    cells[layer][within(state.position + right, data.positions.length)].focus();
  }

  function showCell() {
    const { list } = cellAt(data, state);
    const here = data.tokens[data.positions[state.position]];
    const way = followed.way(state.norm, state.position);
    const rows = list.map(({ token: i, p }) => {
      const button = element(
        "button",
        { type: "button", title: "follow this token", onclick: () => attempt(() => follow(i)) },
        token(data.tokens[i]),
      );
      return element(
        "tr",
        { class: i === followed.place && "followed" },
        element("th", { scope: "row" }, button),
        element("td", { class: "number" }, thousandths(p)),
      );
    });
    panel.replaceChildren(
      element(
        "table",
        {},
        element("caption", {}, data.layers[state.layer], " at ", token(here)),
        head(["says", "probability#"]),
        element("tbody", {}, rows),
      ),
      element(
        "p",
        {},
        token(followed.name),
        way
          ? ` is at rank ${followed.say(way[state.layer])} here.`
          : " can be followed at the last position, with the norm.",
      ),
    );
  }

  function showLine() {
    const way = followed.way(state.norm, state.position);
    if (!way) return line.replaceChildren();
    const here = data.tokens[data.positions[state.position]];
    const [zero, one, end] = [way[0], way[1], way.at(-1)].map(followed.say);
    line.replaceChildren(
      element("p", { class: "om-live-title" }, token(followed.name), " followed at ", token(here)),
      chart(
        way,
        size,
        state.layer,
        `Rank of ${quoted(followed.name)} at the position of ${quoted(here)}: ${zero} at the embedding, ${one} after block 1, ${end} at the end.`,
      ),
    );
  }
}

const WIDE = 340;
const HIGH = 270;
const MARGIN = { left: 46, right: 10, top: 8, bottom: 34 };

/** The walk of one token: rank one on top, logarithmic. */
function chart(way, size, layer, label) {
  const x = (k) => MARGIN.left + (k / (way.length - 1)) * (WIDE - MARGIN.left - MARGIN.right);
  const y = (rank) => MARGIN.top + depth(rank, size) * (HIGH - MARGIN.top - MARGIN.bottom);
  const marks = [1, 10, 100, 1000, 10000].filter((rank) => rank < size);
  const ticks = [0, Math.round((way.length - 1) / 2), way.length - 1];
  return drawing(
    "svg",
    { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label },
    marks.map((rank) => drawing("path", { class: "rule", d: `M${MARGIN.left} ${y(rank)}H${WIDE - MARGIN.right}` })),
    marks.map((rank) => drawing("text", { x: MARGIN.left - 6, y: y(rank) + 4, "text-anchor": "end" }, count(rank))),
    ticks.map((k) => drawing("text", { x: x(k), y: HIGH - 18, "text-anchor": "middle" }, String(k))),
    drawing(
      "text",
      { x: (MARGIN.left + WIDE) / 2, y: HIGH - 3, "text-anchor": "middle" },
      "block (0 is the embedding)",
    ),
    drawing("polyline", { class: "way", points: way.map((rank, k) => `${x(k)},${y(rank)}`).join(" ") }),
    drawing("circle", { class: "here", cx: x(layer), cy: y(way[layer]), r: 5 }),
  );
}
