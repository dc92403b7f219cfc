// Right meaning, wrong slot: any token's nearest rows beside what the model predicts after it.
//
// The vocabulary lies in files of sorted tokens, and a file holds all that is shown of its tokens. So the file that
// answers "which tokens begin so?" also answers "what is near, what comes next?", and one look-up fetches one file.

import { careful, count, element, field, head, load, quoted, thousandths, token } from "./shared.js";
import { combobox, find } from "./vocabulary.js";

const EXAMPLES = [" dog", " king", " water", " happy", " green", " city"];

/** All that is known of the token at a place of a file, with names in the place of numbers. */
export function look(file, place) {
  const [near, cosines] = file.near[place];
  const next = file.next[place];
  const name = (i) => file.tokens[i];
  return {
    name: name(place),
    near: near.map((i, n) => ({ name: name(i), cosine: cosines[n], rank: n + 2 })),
    next: next?.map(([own, ofNear, best, p, inNear]) => ({
      own,
      ofNear,
      best: best.map((i, n) => ({ name: name(i), p: p[n], rank: n + 1, inNear: inNear[n] })),
    })),
  };
}

/** The state in a page's address. */
export const toHash = ({ token: name, frame }) => `#live-slot?${new URLSearchParams({ token: name, frame })}`;

export function fromHash(hash) {
  if (!hash.startsWith("#live-slot?")) return null;
  const given = new URLSearchParams(hash.slice("#live-slot?".length));
  return { token: given.get("token") ?? "", frame: given.get("frame") ?? "" };
}

export async function mount(place) {
  const index = await load("slot");
  const state = { shown: null, frame: 0 };

  const note = element("p", { class: "om-live-note", role: "status" });
  const attempt = careful(note);
  const said = element("p", { class: "om-live-said", "aria-live": "polite" });
  const lists = element("div", { class: "om-live-lists" });
  const frames = index.frames.map((frame, n) =>
    element(
      "label",
      {},
      element("input", { type: "radio", name: "om-frame", value: n, onchange: () => show(state.shown, n, true) }),
      `${frame} …`,
    ),
  );
  const examples = EXAMPLES.map((name) => element("button", { type: "button", onclick: () => go(name) }, token(name)));
  const anyOne = element("button", { type: "button", onclick: any }, "any token");
  const { input, box } = combobox("om-slot-tokens", index, attempt, (choice) =>
    attempt(async () => show(look(await load(`slot-${choice.file}`), choice.place), state.frame, true)),
  );

  place.replaceChildren(
    element("div", { class: "om-live-controls" }, field("A token", input, box)),
    element("div", { class: "om-live-chips" }, examples, anyOne),
    element("fieldset", { class: "om-live-frames" }, element("legend", {}, "Put it after"), frames),
    said,
    lists,
    note,
  );

  function show(looked, frame, keep) {
    Object.assign(state, { shown: looked, frame });
    frames[frame].firstChild.checked = true;
    input.value = looked.name;
    const next = looked.next ? looked.next[frame] : null;
    lists.replaceChildren(nearTable(looked, next), nextTable(looked, next, index, frame));
    said.replaceChildren(...summary(looked, next, index, frame));
    if (keep) history.replaceState(history.state, "", toHash({ token: looked.name, frame: index.frames[frame] }));
  }

  function go(name) {
    return attempt(async () => {
      const found = await find(index, name);
      if (!found) throw new Error(`${quoted(name)} is not one of the model's ${count(index.size)} tokens.`);
      show(look(await load(`slot-${found.file}`), found.place), state.frame, true);
    });
  }

  function any() {
    return attempt(async () => {
      const file = await load(`slot-${Math.floor(Math.random() * index.starts.length)}`);
      show(look(file, Math.floor(Math.random() * file.own)), state.frame, true);
    });
  }

  async function fromAddress() {
    const asked = fromHash(location.hash);
    if (!asked) return;
    place.scrollIntoView();
    await attempt(async () => {
      const found = await find(index, asked.token);
      if (!found) throw new Error(`${quoted(asked.token)} is not one of this model's tokens.`);
      show(look(await load(`slot-${found.file}`), found.place), Math.max(0, index.frames.indexOf(asked.frame)), false);
    });
  }

  window.addEventListener("hashchange", fromAddress);
  const first = (await find(index, EXAMPLES[0])) ?? { file: 0, place: 0 };
  show(look(await load(`slot-${first.file}`), first.place), 0, false);
  await fromAddress();
}

/** The rank of a token among the predictions, or a dash where they were not computed. */
const dash = (rank) => (rank === undefined ? "–" : count(rank));

function nearTable({ name, near }, next) {
  const rows = near.map((row, n) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, token(row.name)),
      element("td", { class: "number" }, thousandths(row.cosine)),
      element("td", { class: "number om-lookup" }, count(row.rank)),
      element("td", { class: "number om-unembed" }, dash(next?.ofNear[n])),
    ),
  );
  const caption = element("caption", {}, element("span", { class: "om-lookup" }, "Nearest rows"), " to ", token(name));
  return element(
    "table",
    {},
    caption,
    head(["token", "cosine#", "as a row#", "as an answer#"]),
    element("tbody", {}, rows),
  );
}

function nextTable({ name }, next, index, frame) {
  const title = [element("span", { class: "om-unembed" }, "Answers"), " to “", index.frames[frame], token(name), "”"];
  if (!next) {
    const why =
      `The page keeps predictions for ${count(index.words)} words: those of a space and letters that the model ` +
      "itself expects most after one of these beginnings. This token is not among them.";
    return element("div", {}, element("p", {}, title), element("p", { class: "om-live-none" }, why));
  }
  const rows = next.best.map((row) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, token(row.name)),
      element("td", { class: "number" }, thousandths(row.p)),
      element("td", { class: "number om-lookup" }, count(row.inNear)),
      element("td", { class: "number om-unembed" }, count(row.rank)),
    ),
  );
  return element(
    "table",
    {},
    element("caption", {}, title),
    head(["token", "probability#", "as a row#", "as an answer#"]),
    element("tbody", {}, rows),
  );
}

function summary({ name, near }, next, index, frame) {
  if (!next)
    return [
      "The row nearest to ",
      token(name),
      " is that of ",
      token(near[0].name),
      `, with cosine ${thousandths(near[0].cosine)}.`,
    ];
  const [answer] = next.best;
  return [
    "The nearest row, ",
    token(near[0].name),
    `, is answer number ${count(next.ofNear[0])} to “${index.frames[frame]}`,
    token(name),
    "”. The first answer, ",
    token(answer.name),
    `, is row number ${count(answer.inNear)}. `,
    token(name),
    ` itself is answer number ${count(next.own)}.`,
  ];
}
