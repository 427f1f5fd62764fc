"use strict";
// Names come from data and reach the page only as values of charts.

const BEYOND = 4; // predictions leave the chart at this factor above or below what was measured
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

function specification({ spec }, quantity, mode, points, ends) {
  const made = structuredClone(spec);
  const { y } = made.encoding;
  made.description = `${quantity.label} against sequence length, ${mode}`;
  made.data = { values: points };
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
    const ends = domain(points, quantity.log);
    byId("shown").textContent = quantity.note;
    for (const { finalize } of this.views) finalize();
    this.views = [];
    for (const [mode, plot] of this.plots.entries()) {
      const own = points.filter((point) => point.mode === data.modes[mode]);
      plot.replaceChildren("Nothing was measured.");
      if (own.length) {
        const spec = specification(data, quantity, data.modes[mode], own, ends);
        this.views.push(await vegaEmbed(plot, spec, OPTIONS));
      }
    }
    byId("plots").ariaBusy = "false";
  }
}

// A heading of a table becomes a button that sorts its rows: at first the smallest first, then the
// largest. Rows without a number keep to the end.
function sortable(heading, column) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => {
    const rising = heading.ariaSort !== "ascending";
    const body = heading.closest("table").tBodies[0];
    const signed = rising ? 1 : -1;
    const numbered = [...body.rows].some((row) => "value" in row.cells[column].dataset);
    const value = (row) => {
      const { dataset, textContent } = row.cells[column];
      return numbered ? Number(dataset.value ?? NaN) : textContent;
    };
    const order = (a, b) => {
      const [left, right] = [value(a), value(b)];
      if (!numbered) return signed * left.localeCompare(right, "en", { numeric: true });
      if (isNaN(left) || isNaN(right)) return isNaN(left) - isNaN(right);
      return signed * (left - right);
    };
    body.append(...[...body.rows].sort(order));
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.ariaSort = rising ? "ascending" : "descending";
  });
}
for (const row of document.querySelectorAll("thead tr")) [...row.cells].forEach(sortable);

addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
if (byId("data")) {
  const charts = new Charts(JSON.parse(byId("data").textContent));
  charts.read().then(() => document.documentElement.classList.add("drawn"));
}
