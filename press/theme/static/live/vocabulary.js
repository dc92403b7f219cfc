// The vocabulary, in files of sorted tokens: search by beginning, find by name, and the input that does both.

import { element, load, token } from "./shared.js";

const SUGGESTIONS = 8;

/** What the order of the vocabulary looks at: spaces and capitals left aside. */
export const sortKey = (text) => text.replace(/^ +/, "").toLowerCase();

/** The file in which tokens with this beginning start: the last one that starts before it. */
export function fileOf(starts, key) {
  let low = 0;
  let high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] < key) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

/** Whether a token answers what was typed; a typed space must be there. */
export function fits(name, typed) {
  return typed.startsWith(" ")
    ? name.toLowerCase().startsWith(typed.toLowerCase())
    : sortKey(name).startsWith(sortKey(typed));
}

/** The first tokens that begin with what was typed, whole words first: a list of {name, file, place}. */
export async function search(index, typed, most, fetchFile = (k) => load(`slot-${k}`)) {
  const key = sortKey(typed);
  const found = [];
  for (let k = fileOf(index.starts, key); k < index.starts.length && index.starts[k].slice(0, key.length) <= key; k++) {
    const file = await fetchFile(k);
    for (let place = 0; place < file.own; place++) {
      const name = file.tokens[place];
      if (fits(name, typed)) found.push({ name, file: k, place });
    }
    if (found.length >= most) break;
  }
  const whole = ({ name }) => (name.trimStart() === typed.trimStart() ? 0 : 1);
  return found.sort((a, b) => whole(a) - whole(b)).slice(0, most);
}

/** Where the token of exactly this name is, as {name, file, place}; null where there is none. */
export async function find(index, name, fetchFile = (k) => load(`slot-${k}`)) {
  const key = sortKey(name);
  for (let k = fileOf(index.starts, key); k < index.starts.length && index.starts[k] <= key; k++) {
    const file = await fetchFile(k);
    const place = file.tokens.slice(0, file.own).indexOf(name);
    if (place >= 0) return { name, file: k, place };
  }
  return null;
}

/** An input with a list of suggestions, by the ARIA pattern of that name; `chosen` gets a {name, file, place}. */
export function combobox(id, index, attempt, chosen) {
  const input = element("input", {
    type: "text",
    role: "combobox",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": id,
    oninput: suggest,
    onkeydown: key,
    onfocus: () => input.select(),
    onblur: close,
  });
  const list = element("ul", {
    onpointerdown: (event) => event.preventDefault(), // the input keeps the focus
    id,
    role: "listbox",
    "aria-label": "Tokens that begin so",
    hidden: true,
  });
  let offered = [];
  let active = 0;

  function suggest() {
    const typed = input.value;
    return attempt(async () => {
      const found = typed.trim() ? await search(index, typed, SUGGESTIONS) : [];
      if (input.value !== typed) return; // an answer that came too late
      offered = found;
      list.replaceChildren(
        ...(typed.trim() && !found.length ? [element("li", { class: "om-live-none" }, "No token begins so.")] : []),
        ...found.map((choice, n) =>
          element("li", { role: "option", id: `${id}-${n}`, onclick: () => take(n) }, token(choice.name)),
        ),
      );
      list.hidden = !list.children.length;
      activate(0);
    });
  }

  function activate(n) {
    active = n;
    for (const k of offered.keys()) list.children[k].setAttribute("aria-selected", k === n);
    input.setAttribute("aria-expanded", !list.hidden);
    if (offered.length && !list.hidden) input.setAttribute("aria-activedescendant", `${id}-${n}`);
    else input.removeAttribute("aria-activedescendant");
  }

  function close() {
    list.hidden = true;
    activate(0);
  }

  async function take(n) {
    const choice = offered[n];
    close();
    if (choice) await chosen(choice);
  }

  async function key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves && !list.hidden && offered.length) {
      event.preventDefault();
      activate((active + moves[event.key] + offered.length) % offered.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (list.hidden) await suggest(); // typed and entered before the list came
      await take(active);
    } else if (event.key === "Escape") close();
  }

  return { input, box: element("div", { class: "om-live-combobox" }, input, list) };
}
