// The table of "Figure by figure": sort by a column, show only what is asked for. Without this the table is whole.
"use strict";

/** What a cell is sorted by. */
function sortKey(cell) {
  return cell.dataset.sort ?? cell.textContent.trim();
}

/** Order of two keys: numbers as numbers, the rest as words. */
function compareKeys(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

/** Whether a row holds every word of the search and has the verdict and the document that are asked for. */
function matches(row, asked) {
  const words = asked.words.toLowerCase().split(/\s+/).filter(Boolean);
  return (
    words.every((word) => row.text.toLowerCase().includes(word)) &&
    (!asked.verdict || row.verdict === asked.verdict) &&
    (!asked.document || row.document === asked.document)
  );
}

/** Put a button into each heading that sorts by its column, and again the other way. */
function makeSortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => compareKeys(sortKey(a.cells[column]), sortKey(b.cells[column])));
      body.append(...(down ? rows.reverse() : rows));
    });
  });
}

/** A labelled control of the filter bar. */
function control(label, element) {
  const box = document.createElement("label");
  box.append(label, element);
  return box;
}

/** A choice among the values that the rows have. */
function choice(rows, name) {
  const select = document.createElement("select");
  const values = [...new Set(rows.map((row) => row.dataset[name]))];
  select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
  return select;
}

/** Set the filter bar above the table. */
function makeFilterable(table) {
  const rows = [...table.tBodies[0].rows];
  const words = Object.assign(document.createElement("input"), { type: "search" });
  const verdict = choice(rows, "verdict");
  const source = choice(rows, "document");
  const count = document.createElement("span");
  count.setAttribute("role", "status");
  const bar = document.createElement("div");
  bar.className = "om-ledger-filters";
  bar.append(control("Words", words), control("Verdict", verdict), control("Document", source), count);
  bar.addEventListener("input", () => {
    const asked = { words: words.value, verdict: verdict.value, document: source.value };
    for (const row of rows) {
      row.hidden = !matches({ text: row.textContent, ...row.dataset }, asked);
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
  });
  table.parentElement.before(bar);
}

if (typeof document === "undefined") {
  module.exports = { compareKeys, matches };
} else {
  const table = document.querySelector(".om-ledger");
  makeSortable(table);
  makeFilterable(table);
}
