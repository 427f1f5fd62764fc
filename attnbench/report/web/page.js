"use strict";
// Names come from data and reach the page only as values of charts.

const BEYOND = 4; // predictions leave the chart at this factor above or below what was measured
// of lines that show a slope, as shares of the height: room below the curves, and where they begin
const BELOW = 0.14;
const START = 0.08;
const FINE = 60; // points of a line at which its name may stand
const NAMED = { "∝ N": [0.75, 0.9], "∝ N²": [0.3, 0.7] }; // of what is seen of a line: no two meet
const LEAST = 2; // ratio of the ends of a logarithmic axis, so that a flat curve looks flat

const OPTIONS = {
  mode: "vega-lite",
  ast: true,
  actions: false,
  renderer: "svg",
  defaultStyle: false,
  tooltip: { disableDefaultStyle: true },
};

const byId = (id) => document.getElementById(id);

// the ends of an axis for what was measured and for predictions near it
function domain(points, logarithmic) {
  const known = points.filter(({ predicted }) => !predicted);
  const values = (known.length ? known : points).map(({ value }) => value);
  const ends = points.flatMap(({ low, high }) => [low, high]);
  const low = Math.max(Math.min(...values) / BEYOND, Math.min(...ends));
  const high = Math.min(Math.max(...values) * BEYOND, Math.max(...ends));
  if (!logarithmic) return [Math.min(0, ...ends), high || 1];
  const wider = Math.sqrt(Math.max(1, (LEAST * low) / high));
  return [low / wider, high * wider];
}

// the logarithm of a curve's height at a length, between the lengths it is known at; NaN elsewhere
function height(curve, n) {
  const next = curve.findIndex((point) => point.n >= n);
  if (next <= 0) return curve[next]?.n === n ? Math.log(curve[next].value) : NaN;
  const [before, after] = curve.slice(next - 1);
  const share = Math.log(n / before.n) / Math.log(after.n / before.n);
  return Math.log(before.value) * (1 - share) + Math.log(after.value) * share;
}

// where the name of a line is farthest from the curves
function named(text, line, points, high) {
  const curves = Object.values(Object.groupBy(points, ({ name }) => name));
  const [first, last] = [line[0].n, line.at(-1).n];
  const fine = Array.from({ length: FINE }, (_, i) => first * (last / first) ** (i / (FINE - 1)));
  const seen = fine.filter((n) => height(line, n) <= Math.log(high));
  const [from, to] = NAMED[text].map((share) => Math.floor(share * (seen.length - 1)));
  const clearance = (n) =>
    Math.min(...curves.map((curve) => Math.abs(height(curve, n) - height(line, n))).filter(isFinite));
  const [n] = seen.slice(from, to + 1).sort((a, b) => clearance(b) - clearance(a));
  return { n, text, value: Math.exp(height(line, n)) };
}

// lines of costs that grow as N and as N², below the curves where these begin, and their names
function guides(slopes, points, [low, high]) {
  const lengths = points.map(({ n }) => n);
  const [shortest, longest] = [Math.min(...lengths), Math.max(...lengths)];
  const start = low * (high / low) ** START;
  const lines = Object.entries(slopes).flatMap(([text, factors]) => {
    const own = factors.filter(([n]) => n >= shortest && n <= longest);
    const line = own.map(([n, factor]) => ({ n, text, value: (start * factor) / own[0][1] }));
    return line.length > 1 ? [line] : [];
  });
  return [lines.flat(), lines.map((line) => named(line[0].text, line, points, high))];
}

function specification({ spec }, quantity, mode, points, ends, slopes) {
  const made = structuredClone(spec);
  const { y } = made.encoding;
  made.description = `${quantity.label} against sequence length, ${mode}`;
  made.data = { values: points };
  const [lines, names] = guides(slopes, points, ends);
  const values = { slopes: lines, names };
  made.layer = made.layer.filter(({ data }) => !data || values[data.name].length > 0);
  for (const { data } of made.layer) if (data) data.values = values[data.name];
  y.title = quantity.label;
  y.axis.labelExpr = quantity.text;
  y.scale.domain = ends;
  if (quantity.log) Object.assign(y.scale, { type: "log", base: quantity.base });
  return made;
}

class Charts {
  constructor(data) {
    this.data = data;
    this.form = byId("charts");
    this.boxes = [...this.form.querySelectorAll("[name=series]")];
    this.plots = [...this.form.querySelectorAll(".plot")];
    this.views = [];
    this.drawn = Promise.resolve();
    this.form.hidden = false;
    this.form.addEventListener("change", () => this.changed());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.querySelector("button").addEventListener("click", () => {
      const none = this.boxes.every(({ checked }) => checked);
      for (const box of this.boxes) box.checked = !none;
      this.changed();
    });
    for (const { parentElement: label, value } of this.boxes) {
      label.addEventListener("pointerenter", () => this.highlight(value));
      label.addEventListener("pointerleave", () => this.highlight(""));
    }
  }

  highlight(name) {
    for (const { view } of this.views) view.signal("highlight", name).runAsync();
  }

  // what is chosen is the state of the form, and the fragment of the address
  changed() {
    history.replaceState(null, "", `#${new URLSearchParams(new FormData(this.form))}`);
    this.draw();
  }

  // what a link chooses; one to a heading chooses nothing
  read() {
    const chosen = new URLSearchParams(location.hash.slice(1));
    this.form.reset();
    const [shown, series] = [chosen.get("show"), chosen.getAll("series")];
    if (this.data.quantities.some(({ key }) => key === shown)) this.form.show.value = shown;
    if (shown) this.form.slopes.checked = chosen.has("slopes");
    if (series.length) for (const box of this.boxes) box.checked = series.includes(box.value);
    return this.draw();
  }

  // one drawing after the other: an older one must not replace a newer
  draw() {
    byId("plots").ariaBusy = "true";
    this.drawn = this.drawn.then(() => this.embed());
    return this.drawn;
  }

  async embed() {
    const { data, form } = this;
    const shown = new FormData(form).getAll("series");
    const quantity = data.quantities.find(({ key }) => key === form.show.value);
    const points = quantity.points
      .map((point) => ({
        ...data.series[point.series],
        measured: point.predicted ? null : point.value,
        low: point.value,
        high: point.value,
        ...point,
      }))
      .filter(({ name }) => shown.includes(name));
    const has = quantity.log && Object.keys(quantity.slopes).length > 0;
    const guided = has && form.slopes.checked;
    const ends = domain(points, quantity.log);
    if (guided) ends[0] *= (ends[0] / ends[1]) ** BELOW;
    form.slopes.parentElement.hidden = !has;
    byId("shown").textContent = guided ? `${quantity.note} ${data.guide}` : quantity.note;
    for (const { finalize } of this.views) finalize();
    this.views = [];
    for (const [mode, plot] of this.plots.entries()) {
      const own = points.filter((point) => point.mode === data.modes[mode]);
      plot.replaceChildren("Nothing was measured.");
      if (own.length) {
        const slopes = (guided && quantity.slopes[data.modes[mode]]) || {};
        const spec = specification(data, quantity, data.modes[mode], own, ends, slopes);
        this.views.push(await vegaEmbed(plot, spec, OPTIONS));
      }
    }
    byId("plots").ariaBusy = "false";
  }
}

// The rows of a table by one of its columns: the smallest first, or the largest. Rows without a
// number keep to the end.
function sorted(rows, column, rising) {
  const signed = rising ? 1 : -1;
  const numbered = rows.some((row) => "value" in row.cells[column].dataset);
  const value = (row) => {
    const { dataset, textContent } = row.cells[column];
    return numbered ? Number(dataset.value ?? NaN) : textContent;
  };
  return rows.toSorted((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (!numbered) return signed * left.localeCompare(right, "en", { numeric: true });
    if (isNaN(left) || isNaN(right)) return isNaN(left) - isNaN(right);
    return signed * (left - right);
  });
}

// Each heading of a table becomes a button that sorts its rows, at first the smallest first. Where
// headings are hidden, on a narrow screen, a menu above the table does the same.
function sortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const written = [...body.rows];
  const menu = document.createElement("select");
  const names = headings.map(({ textContent }) => textContent.trim());
  const show = (column, rising) => {
    body.append(...(column < 0 ? written : sorted([...body.rows], column, rising)));
    for (const heading of headings) heading.removeAttribute("aria-sort");
    if (column >= 0) headings[column].ariaSort = rising ? "ascending" : "descending";
    menu.value = column < 0 ? "" : `${column} ${rising}`;
  };
  menu.append(new Option("as written", ""));
  for (const rising of [true, false]) {
    const group = document.createElement("optgroup");
    group.label = rising ? "smallest first" : "largest first";
    const text = (name) => `${name} ${rising ? "↑" : "↓"}`;
    group.append(...names.map((name, column) => new Option(text(name), `${column} ${rising}`)));
    menu.append(group);
  }
  menu.addEventListener("change", () => {
    const [column, rising] = menu.value.split(" ");
    show(column ? Number(column) : -1, rising === "true");
  });
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => show(column, heading.ariaSort !== "ascending"));
  });
  const label = document.createElement("label");
  label.className = "sort";
  label.append("Sorted by", menu);
  table.before(label);
}
for (const table of document.querySelectorAll("table")) sortable(table);

addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
if (byId("data")) {
  const charts = new Charts(JSON.parse(byId("data").textContent));
  charts.read().then(() => document.documentElement.classList.add("drawn"));
}
