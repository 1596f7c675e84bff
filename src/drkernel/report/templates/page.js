// Tables that are sorted by a click on a heading and, where they are long, filtered by a word; links that open what they
// point at. The only script of a page: its policy admits this text by its hash and no other.
"use strict";

function value(row, column) {
  const cell = row.cells[column];
  const text = cell ? (cell.dataset.value || cell.textContent).trim() : "";
  const number = parseFloat(text.replace(/,/g, "").replace("–", ""));
  return { text: text, number: Number.isNaN(number) ? null : number };
}

function order(first, second) {
  if (first.number !== null && second.number !== null) return first.number - second.number;
  if ((first.number === null) !== (second.number === null)) return first.number === null ? 1 : -1;
  return first.text.localeCompare(second.text);
}

function sort(table, heading, column) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  const rows = Array.from(table.rows).slice(1);
  rows.sort((first, second) => order(value(first, column), value(second, column)) * (down ? -1 : 1));
  for (const other of table.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  for (const row of rows) row.parentNode.appendChild(row);
}

for (const table of document.querySelectorAll("table.sortable")) {
  Array.from(table.rows[0].cells).forEach((heading, column) => {
    if (!heading.textContent.trim()) return;
    heading.tabIndex = 0;
    heading.addEventListener("click", () => sort(table, heading, column));
    heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(table, heading, column); });
  });
  if (table.rows.length < 10) continue;
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "filter " + (table.rows.length - 1) + " rows";
  box.className = "filter";
  box.addEventListener("input", () => {
    for (const row of Array.from(table.rows).slice(1))
      row.hidden = !row.textContent.toLowerCase().includes(box.value.toLowerCase());
  });
  (table.closest(".scroll") || table).before(box);
}

function reveal() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target.scrollIntoView();
}
window.addEventListener("hashchange", reveal);
reveal();
