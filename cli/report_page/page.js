// The page is complete without this: it adds sorting and filtering, and opens details for print.
"use strict";

function sortKey(row, column) {
  const cell = row.cells[column];
  return cell.dataset.sort ?? cell.textContent.trim();
}

function sortRows(table, column, descending) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => ({row, key: sortKey(row, column)}));
  const numeric = rows.every(({key}) => key === "" || key === "-" || Number.isFinite(Number(key)));
  const missing = ({key}) => key === "" || key === "-";
  rows.sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);  // last, whatever the direction
    const order = numeric ? Number(a.key) - Number(b.key)
                          : a.key.localeCompare(b.key, "en", {numeric: true});
    return descending ? -order : order;
  });
  body.append(...rows.map(({row}) => row));
}

function makeSortable(table) {
  const headers = Array.from(table.tHead.rows[0].cells);
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const descending = header.getAttribute("aria-sort") === "ascending";
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortRows(table, column, descending);
    });
  });
}

function makeFilterable(table) {
  const rows = Array.from(table.tBodies[0].rows);
  const box = document.createElement("p");
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("span");
  box.className = "filter";
  count.setAttribute("role", "status");
  input.type = "search";
  input.placeholder = "verify d512 stale";
  label.append("Filter", input);
  box.append(label, count);
  table.parentElement.before(box);
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    box.classList.toggle("active", words.length > 0);  // then it stands on paper too
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  input.addEventListener("input", apply);
  apply();
}

for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
for (const table of document.querySelectorAll("table.filterable")) makeFilterable(table);

// For browsers whose print style cannot open them.
let opened = [];
addEventListener("beforeprint", () => {
  opened = Array.from(document.querySelectorAll("details:not([open]):not(.bulk)"));
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
