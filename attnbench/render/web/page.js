"use strict";
// Names come from data and reach the page only as textContent or as values of charts.

const byId = (id) => document.getElementById(id);

function made(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  made("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  if (typeof one === typeof other) return one.localeCompare(other, "en", { numeric: true });
  return typeof one === "number" ? -1 : 1;
}

// numbers in full precision where there are any, and what is not measured always last
function sort(body, column, direction) {
  const key = (row) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
  };
  const numeric = [...body.rows].some((row) => "value" in row.cells[column].dataset);
  const signed = (one, other) => {
    const order = compare(one, other);
    return numeric && typeof one !== typeof other ? order : direction * order;
  };
  body.append(...[...body.rows].sort((a, b) => signed(key(a), key(b))));
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  // on a narrow screen each cell names its column
  for (const { cells } of table.tBodies[0].rows) {
    [...cells].forEach((cell, i) => {
      cell.dataset.column = heads[i].textContent.trim();
      cell.classList.toggle("empty", cell.textContent === "–");
    });
  }
  heads.forEach((head, column) => {
    const button = made("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(table.tBodies[0], column, ascending ? 1 : -1);
    });
  });
}

function filterable(table) {
  const rows = [...table.tBodies[0].rows];
  const shown = made("output");
  const input = made("input", { type: "search", placeholder: "text in a row" });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    shown.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  });
  return [made("label", {}, "Filter ", input), shown];
}

function tools(table) {
  const bar = made("div", { className: "tools" });
  if (table.tBodies[0].rows.length > 3) bar.append(...filterable(table));
  if (window.DecompressionStream) {
    const button = made("button", { type: "button", className: "link" }, "CSV");
    button.setAttribute("aria-label", `Download ${table.dataset.file}`);
    button.addEventListener("click", async () => {
      const files = JSON.parse(await unpacked("files"));
      download(table.dataset.file, files[table.dataset.file], "text/csv");
    });
    bar.append(button);
  }
  table.parentElement.before(bar);
}

function downloads() {
  const line = byId("downloads");
  if (!window.DecompressionStream) return;
  const link = (label, file, type, content) => {
    const button = made("button", { type: "button", className: "link" }, label);
    button.addEventListener("click", async () => download(file, await content(), type));
    line.append(button, " ");
  };
  const { cases } = line.dataset;
  if (cases) {
    link("every case (CSV)", cases, "text/csv", async () => JSON.parse(await unpacked("files"))[cases]);
  }
  if (byId("data")) {
    link("charts (JSON)", "charts.json", "application/json", () => unpacked("data"));
  }
  line.hidden = !line.hasChildNodes();
  line.prepend("Download: ");
}

const wide = matchMedia("(min-width: 86rem)");
const contents = () => (document.querySelector("nav details").open = wide.matches);
wide.addEventListener("change", contents);
contents();
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
for (const table of document.querySelectorAll("table")) {
  sortable(table);
  tools(table);
}
downloads();
document.documentElement.classList.add("enhanced");
