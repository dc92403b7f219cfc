// Finds the live pieces of a page and starts each when the reader comes near it. Until its numbers are here, and where
// they never come, the text that stands in for a piece stays.

import { element } from "./shared.js";

const MODULES = { lens: "./lens.js", slot: "./slot.js", step: "./step.js" };

async function start(place) {
  const standIn = [...place.childNodes];
  const note = element("p", { class: "om-live-note", role: "status" }, "Loading the numbers …");
  place.append(note);
  try {
    const piece = await import(MODULES[place.dataset.piece]);
    await piece.mount(place);
    place.dataset.ready = "";
  } catch (error) {
    const again = () => {
      place.replaceChildren(...standIn);
      start(place);
    };
    const button = element("button", { type: "button", onclick: again }, "Try again");
    note.replaceChildren(`This piece could not be started: ${error.message} `, button);
    place.replaceChildren(...standIn, note);
  }
}

const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      start(target);
    }
  },
  { rootMargin: "400px" },
);

for (const place of document.querySelectorAll(".om-live")) {
  // A link that names a piece and its state leads to it.
  if (location.hash.startsWith(`#${place.id}?`)) place.scrollIntoView();
  near.observe(place);
}
