// What the three pieces share: fetching numbers, making elements, showing tokens and figures.

const DATA = new URL("../../live/", import.meta.url); // beside the folder of this script, wherever the site lies
const fetched = new Map();

/** The content of a data file, fetched once. Rejects with a message for the reader. */
export function load(name) {
  if (!fetched.has(name)) {
    const coming = fetchData(name);
    coming.catch(() => fetched.delete(name)); // so that the next try fetches again
    fetched.set(name, coming);
  }
  return fetched.get(name);
}

async function fetchData(name) {
  const response = await fetch(new URL(`${name}.json.gz`, DATA)).catch(() => null);
  if (!response) throw new Error(`the numbers in ${name} could not be fetched. Is there a connection?`);
  if (!response.ok) throw new Error(`the numbers in ${name} are missing on this site (status ${response.status}).`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const packed = bytes[0] === 0x1f && bytes[1] === 0x8b; // some hosts unpack on the way, most do not
  const text = packed ? new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")) : bytes;
  return new Response(text).json();
}

/** An element with attributes, listeners (`onclick: ...`) and children; null children are left out. */
export function element(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** The same for the elements of an SVG. */
export function drawing(tag, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

/** A token as the book shows it: each leading space is a dot. */
export function token(name) {
  const spaces = name.length - name.trimStart().length;
  const dots = spaces ? element("span", { class: "space" }, "·".repeat(spaces)) : null;
  return element("code", { class: "token" }, dots, name.slice(spaces));
}

/** A token where there is only text: an option, a label that is read aloud. */
export const quoted = (name) => `"${name}"`;

/** Thousandths as the chapters print them. */
export const thousandths = (n) => (n / 1000).toFixed(3);

/** A count with its thousands set apart. */
export const count = (n) => n.toLocaleString("en");

let fields = 0;

/** A control under its label; `box` is what holds the control, where that is more than itself. */
export function field(label, control, box = control) {
  fields += 1;
  control.id = `om-field-${fields}`;
  return element("div", { class: "om-live-field" }, element("label", { for: control.id }, label), box);
}

/** A drop-down list: `choices` are [value, text]; `chosen` is called with the value as a string. */
export function select(choices, chosen) {
  const options = choices.map(([value, text]) => element("option", { value }, text));
  return element("select", { onchange: (event) => chosen(event.target.value) }, options);
}

/** A table's head from its column titles; `titles` that end in # hold numbers. */
export function head(titles) {
  const cell = (title) =>
    element("th", { scope: "col", class: title.endsWith("#") && "number" }, title.replace(/#$/, ""));
  return element("thead", {}, element("tr", {}, titles.map(cell)));
}

/** Show a failure inside a piece and let the reader try again; returns a function that runs work under this care. */
export function careful(note) {
  return async function attempt(work) {
    try {
      await work();
      note.replaceChildren();
    } catch (error) {
      const again = element("button", { type: "button", onclick: () => attempt(work) }, "Try again");
      note.replaceChildren(`Nothing changed: ${error.message} `, again);
    }
  };
}
