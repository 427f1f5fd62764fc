"use strict";
// The charts of a page, after page.js.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const SPARSE = { labelOverlap: "greedy" };
const MULTIPLES = {
  10: [[5, [1]], [2.5, [1, 3]], [1, [1, 2, 5]], [0, [1, 1.5, 2, 3, 4, 5, 6, 8]]],
  2: [[2, [1]], [0, [1, 1.25, 1.5, 1.75]]],
};
const SVG = "http://www.w3.org/2000/svg";

function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    ["ink", "paper", "soft", "line"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
  );
}

const colour = (series) => (DARK.matches ? series.dark : series.light);

function config() {
  const { ink, paper, soft, line } = colours();
  const axis = { labelColor: ink, titleColor: ink, gridColor: line, domainColor: soft, tickColor: soft };
  const font = getComputedStyle(document.body).fontFamily.replaceAll('"', "'");
  return {
    background: paper,
    font,
    view: { stroke: null },
    axis: { ...axis, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 },
  };
}

function swatch(series) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "-22 -9 44 18");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "path");
  const marker = document.createElementNS(SVG, "path");
  line.setAttribute("d", "M-22,0L22,0");
  line.setAttribute("stroke-dasharray", series.dash.join(" "));
  marker.setAttribute("d", series.shape);
  marker.setAttribute("transform", "scale(5)");
  marker.setAttribute("vector-effect", "non-scaling-stroke");
  for (const part of [line, marker]) {
    part.setAttribute("stroke", colour(series));
    part.setAttribute("stroke-width", part === line ? 3 : 0.4);
    part.setAttribute("fill", colour(series));
  }
  svg.append(line, marker);
  return svg;
}

// a chart of these layers; series keep their looks whichever of them are shown
function drawing({ series, spec }, layers, { x, y, description }) {
  const made = structuredClone(spec);
  const theme = colours();
  const domain = series.map(({ name }) => name);
  const looks = {
    color: series.map(colour),
    fill: series.map(colour),
    shape: series.map(({ shape }) => shape),
    strokeDash: series.map(({ dash }) => dash),
  };
  made.description = description;
  made.layer = made.layer.filter(({ name }) => layers.includes(name));
  Object.assign(made.encoding.x, x);
  for (const { encoding } of made.layer) if (encoding.y) Object.assign(encoding.y, y);
  for (const { encoding } of [made, ...made.layer]) {
    for (const [channel, range] of Object.entries(looks)) {
      const own = encoding[channel];
      if (own?.field) own.scale = { domain, range };
      for (const one of [own, own?.condition]) if (theme[one?.value]) one.value = theme[one.value];
    }
  }
  return made;
}

function extent(points) {
  const ends = points.flatMap(({ value, low = value, high = value }) => [value, low, high]);
  return [Math.min(...ends), Math.max(...ends)];
}

// round values: powers of the base on a logarithmic axis, with others between if there are few;
// on a linear one multiples of a power of two, or whatever Vega takes
function ticks(points, type, base) {
  const [low, high] = extent(points);
  if (type === "linear") {
    const step = 2 ** Math.floor(Math.log2(high / 3));
    return base === 2 && step > 0 ? Array.from({ length: 8 }, (_, i) => i * step) : undefined;
  }
  const span = Math.log(high / low) / Math.log(base);
  if (!(span > 0.5)) return undefined;
  const step = base === 2 ? Math.ceil(span / 7) : 1;
  const first = step * (Math.floor(Math.log(low) / Math.log(base) / step) - 1);
  const powers = Array.from({ length: Math.ceil(span / step) + 3 }, (_, i) => first + i * step);
  // the finest multiples are taken of the shortest span
  const [, factors] = MULTIPLES[base].find(([longer]) => span > longer);
  return powers.flatMap((power) =>
    factors.map((factor) => (base === 2 ? factor * 2 ** power : Number(`${factor}e${power}`))));
}

// `300 ms`, `1 GiB`: each label in the largest unit that it reaches
function axis(points, type, base, units) {
  const values = ticks(points, type, base);
  const labelExpr = units.reduce(
    (smaller, [name, size]) =>
      `datum.value >= ${0.999 * size} ? format(datum.value / ${size}, ',~r') + ' ${name}' : ${smaller}`,
    "format(datum.value, ',~r')",
  );
  return { ...SPARSE, values, labelExpr, tickCount: values?.length ?? 6 };
}

// Vega-Lite 6.4 reads text one level too high in the cells that select the nearest point
function patch(spec) {
  for (const { encode } of spec.marks.filter((mark) => mark.name?.endsWith("_voronoi"))) {
    const { tooltip } = encode.update;
    tooltip.signal = tooltip.signal.replaceAll(/(?<!datum\.)datum\["/g, 'datum.datum["');
  }
  return spec;
}

class Chart {
  constructor(title) {
    this.plot = made("div", { className: "plot", tabIndex: 0, role: "group" });
    this.plot.setAttribute("aria-describedby", "keys");
    this.output = made("output");
    this.figure = made("figure", {}, made("figcaption", {}, title), this.plot, this.output);
    this.points = [];
    this.order = Promise.resolve();
    this.plot.addEventListener("keydown", (event) => this.step(event));
    this.plot.addEventListener("blur", () => this.go(null));
  }

  // one drawing after the other: an older one must not replace a newer
  draw(spec, points) {
    const drawn = JSON.stringify([spec, points]);
    if (drawn === this.drawn) return this.order;
    Object.assign(this, { drawn, points, at: null });
    this.output.value = "";
    this.plot.setAttribute("aria-label", spec.description);
    spec.data = { values: points };
    this.plot.ariaBusy = "true";
    this.order = this.order.then(() => this.embed(spec, points));
    return this.order;
  }

  async embed(spec, points) {
    this.result?.finalize();
    this.result = null;
    this.plot.replaceChildren("Nothing was measured.");
    if (points.length) {
      this.result = await vegaEmbed(this.plot, spec, {
        mode: "vega-lite",
        ast: true,
        actions: false,
        renderer: "svg",
        defaultStyle: false,
        tooltip: { disableDefaultStyle: true },
        patch,
        config: config(),
      });
      const { view } = this.result;
      const under = (item) => item?.datum?.datum ?? item?.datum;
      view.addEventListener("pointermove", (_, item) => {
        if (under(item)?.text) this.output.value = this.said(under(item));
      });
    }
    if (points === this.points) this.plot.ariaBusy = "false";
  }

  said(point) {
    return `${point.name}, N = ${point.n.toLocaleString("en")}: ${point.text}`;
  }

  highlight(name) {
    this.result?.view.signal("highlight", name).runAsync();
  }

  go(point) {
    this.at = point;
    if (point) this.output.value = this.said(point);
    this.result?.view.signal("at", point ? point.id : -1).signal("highlight", point?.name ?? "");
    this.result?.view.runAsync();
  }

  step(event) {
    const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if ((!along && !across) || !this.points.length) return;
    event.preventDefault();
    if (!this.at) {
      this.go(this.points[0]);
      return;
    }
    if (along) {
      const own = this.points.filter((point) => point.name === this.at.name);
      this.go(own[own.indexOf(this.at) + along] ?? this.at);
    } else {
      const names = [...new Set(this.points.map((point) => point.name))];
      const name = names[names.indexOf(this.at.name) + across] ?? this.at.name;
      const own = this.points.filter((point) => point.name === name);
      const distance = (point) => Math.abs(Math.log(point.n / this.at.n)) || 0;
      this.go(own.reduce((best, point) => (distance(point) < distance(best) ? point : best)));
    }
  }
}

function box(name, value, ...children) {
  const input = made("input", { type: "checkbox", name, value, defaultChecked: true });
  input.setAttribute("form", "choices");
  return made("label", {}, input, ...children);
}

class Charts {
  constructor(data) {
    this.data = data;
    this.form = byId("choices").elements;
    this.fill();
    this.charts = data.modes.map((mode) => new Chart(mode));
    byId("costs").querySelector(".charts").append(...this.charts.map(({ figure }) => figure));
    byId("charts").addEventListener("change", () => this.changed());
    byId("choices").addEventListener("submit", (event) => event.preventDefault());
    byId("series").addEventListener("click", ({ target }) => {
      if (target.type !== "button") return;
      for (const { control } of this.labels) control.checked = target.value === "all";
      this.changed();
    });
    DARK.addEventListener("change", () => {
      this.labels.forEach((label, i) => label.querySelector("svg").replaceWith(swatch(data.series[i])));
      this.draw();
    });
    addEventListener("popstate", () => this.read());
  }

  fill() {
    const { form, data } = this;
    form.show.append(...data.quantities.map(({ key, label }) => made("option", { value: key }, label)));
    byId("modes").append(...data.modes.map((mode) => box("mode", mode, mode)));
    byId("modes").hidden = data.modes.length < 2;
    const points = data.quantities.flatMap((quantity) => quantity.points);
    form.predicted.parentElement.hidden = !points.some(({ predicted }) => predicted);
    const items = data.series.map((series) => {
      const label = box("series", series.name, swatch(series), series.name);
      label.title = series.title;
      const light = (name) => () => this.charts.forEach((chart) => chart.highlight(name));
      for (const event of ["pointerenter", "focusin"]) label.addEventListener(event, light(series.name));
      for (const event of ["pointerleave", "focusout"]) label.addEventListener(event, light(""));
      return made("li", {}, label);
    });
    byId("series").querySelector("ul").append(...items);
    this.labels = items.map(({ firstChild }) => firstChild);
  }

  // what is chosen is the state of the form, and the fragment of the address
  changed() {
    history.pushState(null, "", `#${new URLSearchParams(new FormData(byId("choices")))}`);
    this.draw();
  }

  // a link to a heading chooses nothing
  read() {
    const fragment = location.hash.slice(1);
    const chosen = new URLSearchParams(fragment);
    if (!fragment || chosen.has("show")) byId("choices").reset();
    for (const control of chosen.has("show") ? this.form : []) {
      const values = chosen.getAll(control.name);
      if (control.type === "checkbox") control.checked = values.includes(control.value);
      const option = [...(control.options ?? [])].find(({ value }) => value === values[0]);
      if (option) option.selected = true;
    }
    return this.draw();
  }

  draw() {
    const ticked = new FormData(byId("choices")).getAll("mode");
    const modes = [...this.data.modes.keys()].filter((i) => ticked.includes(this.data.modes[i]));
    this.quantity = this.data.quantities.find(({ key }) => key === this.form.show.value);
    this.form.scale.parentElement.hidden = !this.quantity.log;
    byId("costs").querySelector(".note").textContent = this.quantity.note;
    this.charts.forEach(({ figure }, mode) => (figure.hidden = !modes.includes(mode)));
    const drawn = modes.map((mode) => this.charts[mode].draw(...this.costs(mode, modes)));
    // charts that stay share the width anew
    return Promise.all(drawn).then(() => dispatchEvent(new Event("resize")));
  }

  // the rows of a mode and of series that are shown
  of(rows, mode) {
    const shown = new Set(new FormData(byId("choices")).getAll("series"));
    return rows
      .filter((row) => row.mode === mode)
      .map((row, id) => ({ id, ...row, name: this.data.series[row.series].name }))
      .filter(({ name }) => shown.has(name));
  }

  costs(mode, modes) {
    const { data, form, quantity } = this;
    const of = (one) => this.of(quantity.points, one)
      .filter((point) => form.predicted.checked || !point.predicted)
      .map((point) => ({ ...point, x: point.n, measured: point.predicted ? null : point.value }));
    const [points, every] = [of(mode), modes.flatMap(of)];
    const type = quantity.log ? form.scale.value : "linear";
    const [low, high] = extent(every);
    const logarithmic = type === "log";
    const domain = [logarithmic ? low : Math.min(0, low), high];
    const values = [...new Set(every.map(({ n }) => n))];
    const labelExpr = `${JSON.stringify(data.lengths)}[datum.value]`;
    const x = {
      title: "sequence length N, tokens",
      scale: { type: "log", base: 2, nice: false, padding: 14 },
      axis: { ...SPARSE, values, labelExpr, grid: false },
    };
    const y = {
      title: quantity.axis,
      scale: { type, domain, nice: false, padding: logarithmic ? 12 : 0 },
      axis: axis(every, type, quantity.base, quantity.units),
    };
    const description = `${quantity.label} against sequence length, ${data.modes[mode]}`;
    // Vega-Lite warns of a layer without a single value
    const bars = points.some((point) => "low" in point) ? ["bars"] : [];
    return [drawing(data, ["dotted", "solid", ...bars, "markers"], { x, y, description }), points];
  }
}

async function charts() {
  if (!window.DecompressionStream) return;
  const [code, data] = await Promise.all(["vega", "data"].map(unpacked));
  document.head.append(made("script", { text: code }));
  byId("charts").hidden = false;
  await new Charts(JSON.parse(data)).read();
  document.documentElement.classList.add("drawn");
}

charts();
