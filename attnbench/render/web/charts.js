"use strict";
// The charts of a page, after page.js.

const DARK = matchMedia("(prefers-color-scheme: dark)");
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

// a name may be broken after a bracket or a comma
function breakable(name) {
  return name.split(/(?<=[[,])/).flatMap((part, i) => (i ? [made("wbr"), part] : [part]));
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

// series keep their looks whichever of them are shown
function dressed(spec, series) {
  const names = series.map((each) => each.name);
  const scale = (range) => ({ domain: names, range });
  const looks = {
    color: scale(series.map(colour)),
    fill: scale(series.map(colour)),
    shape: scale(series.map((each) => each.shape)),
    strokeDash: scale(series.map((each) => each.dash)),
  };
  for (const { encoding } of [spec, ...spec.layer]) {
    for (const [channel, range] of Object.entries(looks)) {
      if (encoding?.[channel]?.field) encoding[channel].scale = range;
    }
  }
  return spec;
}

// round values: powers of the base on a logarithmic axis, with others between if there are few;
// on a linear one multiples of a power of two, or whatever Vega takes
function ticks(points, type, base) {
  const ends = points.flatMap((point) => [point.value, point.low ?? point.value, point.high ?? point.value]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  if (type === "linear") {
    const step = 2 ** Math.floor(Math.log2(high / 3));
    return base === 2 && step > 0 ? Array.from({ length: 8 }, (_, i) => i * step) : undefined;
  }
  const span = Math.log(high / low) / Math.log(base);
  if (!(span > 0.5)) return undefined;
  const step = base === 2 ? Math.ceil(span / 7) : 1;
  const first = step * (Math.floor(Math.log(low) / Math.log(base) / step) - 1);
  const powers = Array.from({ length: Math.ceil(span / step) + 3 }, (_, i) => first + i * step);
  const factors = base === 2 || span > 5 ? [1] : span > 2.5 ? [1, 3] : [1, 2, 5];
  return powers.flatMap((power) =>
    factors.map((factor) => (base === 2 ? 2 ** power : Number(`${factor}e${power}`))));
}

// `300 ms`, `1 GiB`: each label in the largest unit that it reaches
function axis(points, type, base, units) {
  const values = ticks(points, type, base);
  const labelExpr = units.reduce(
    (smaller, [name, size]) =>
      `datum.value >= ${0.999 * size} ? format(datum.value / ${size}, ',~r') + ' ${name}' : ${smaller}`,
    "format(datum.value, ',~r')",
  );
  return { values, labelExpr, labelOverlap: "greedy", tickCount: values?.length ?? 6 };
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
  constructor(figure) {
    this.plot = figure.querySelector(".plot");
    this.output = figure.querySelector("output");
    this.caption = figure.querySelector("figcaption");
    this.points = [];
    this.order = Promise.resolve();
    this.plot.addEventListener("keydown", (event) => this.step(event));
    this.plot.addEventListener("blur", () => this.go(null));
  }

  // one drawing after the other: an older one must not replace a newer
  draw(spec, points, caption) {
    this.points = points;
    this.at = null;
    this.output.value = "";
    this.caption.textContent = caption;
    this.plot.setAttribute("aria-label", spec.description);
    spec.data = { values: points };
    this.plot.ariaBusy = "true";
    this.order = this.order.then(() => this.embed(spec, points));
    return this.order;
  }

  async embed(spec, points) {
    this.result?.finalize();
    this.result = null;
    this.plot.replaceChildren("Nothing to show.");
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
      this.result.view.addEventListener("pointermove", (_, item) => {
        const datum = item?.datum?.datum ?? item?.datum;
        if (datum?.text) this.output.value = this.said(datum);
      });
    }
    if (points === this.points) this.plot.ariaBusy = "false";
  }

  said(point) {
    return point.n ? `${point.name}, N = ${point.n.toLocaleString("en")}: ${point.text}` : point.text;
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

const options = (select, labels) => {
  labels.forEach((label, value) => select.append(made("option", { value }, label)));
  select.parentElement.hidden = labels.length < 2;
};

class Charts {
  constructor(data) {
    this.data = data;
    this.form = byId("choices").elements;
    this.series = byId("series");
    this.costs = new Chart(byId("costs"));
    this.roofline = new Chart(byId("roofline"));
    this.samples = new Chart(byId("samples"));
    this.quantities();
    options(this.form.mode, data.modes);
    const guessed = data.quantities.some(({ points }) => points.some((point) => point.predicted));
    this.form.predicted.parentElement.hidden = !guessed;
    this.list();
    byId("choices").addEventListener("change", () => this.draw());
    byId("choices").addEventListener("submit", (event) => event.preventDefault());
    this.series.addEventListener("click", ({ target }) => {
      if (target.type === "button") {
        for (const box of this.boxes()) box.checked = target.value === "all";
        this.draw();
      }
    });
    DARK.addEventListener("change", () => {
      this.list();
      this.draw();
      if (data.samples.length) this.distribution();
    });
    if (data.samples.length) this.cases();
  }

  quantities() {
    const groups = new Map();
    this.data.quantities.forEach(({ label, group }, value) => {
      if (!groups.has(group)) groups.set(group, made("optgroup", { label: group }));
      groups.get(group).append(made("option", { value }, label));
    });
    this.form.quantity.append(...groups.values());
  }

  boxes() {
    return [...this.series.querySelectorAll("input")];
  }

  list() {
    const hidden = new Set(this.boxes().filter((box) => !box.checked).map((box) => box.value));
    const items = this.data.series.map((series, i) => {
      const box = made("input", { type: "checkbox", value: i, checked: !hidden.has(`${i}`) });
      const label = made("label", {}, box, swatch(series), ...breakable(series.name));
      const light = (name) => () => {
        this.costs.highlight(name);
        this.roofline.highlight(name);
      };
      for (const event of ["pointerenter", "focusin"]) label.addEventListener(event, light(series.name));
      for (const event of ["pointerleave", "focusout"]) label.addEventListener(event, light(""));
      return made("li", {}, label);
    });
    this.series.querySelector("ul").replaceChildren(...items);
  }

  shown() {
    return new Set(this.boxes().filter((box) => box.checked).map((box) => Number(box.value)));
  }

  draw() {
    const { data, form } = this;
    const quantity = data.quantities[form.quantity.value];
    const mode = Number(form.mode.value);
    form.scale.disabled = !quantity.log;
    const type = quantity.log ? form.scale.value : "linear";
    const points = this.of(quantity.points, mode)
      .filter((point) => form.predicted.checked || !point.predicted)
      .map((point) => ({ ...point, measured: point.predicted ? null : point.value }));
    const spec = dressed(structuredClone(data.specs.costs), data.series);
    const lengths = [...new Set(points.map((point) => point.n))].sort((a, b) => a - b);
    spec.encoding.x.axis.values = lengths;
    // Vega-Lite warns of a layer without a single value
    if (!points.some((point) => "low" in point)) {
      spec.layer = spec.layer.filter((layer) => layer.mark.type !== "rule");
    }
    for (const { encoding } of spec.layer) {
      encoding.y.title = quantity.axis;
      encoding.y.scale = type === "log" ? { type, nice: false, padding: 12 } : { type, zero: true };
      encoding.y.axis = axis(points, type, quantity.base, quantity.units);
    }
    const { fill } = spec.layer.at(-1).encoding;
    fill.condition.value = colours().paper;
    spec.description = `${quantity.label} against sequence length, ${data.modes[mode]}`;
    const drawn = [this.costs.draw(spec, points, `${quantity.axis}; ${data.modes[mode]}. ${quantity.note}`)];
    if (data.roofline) drawn.push(this.roof(mode));
    return Promise.all(drawn);
  }

  of(rows, mode) {
    const shown = this.shown();
    return rows
      .filter((row) => row.mode === mode && shown.has(row.series))
      .map((row, id) => ({ id, ...row, name: this.data.series[row.series].name }));
  }

  roof(mode) {
    const { data } = this;
    const points = this.of(data.roofline.points, mode);
    const spec = dressed(structuredClone(data.specs.roofline), data.series);
    spec.encoding.y.title = data.roofline.axis;
    spec.encoding.y.axis = axis([...points, ...data.roofline.roof], "log", 10, []);
    spec.layer[0].mark.color = colours().soft;
    spec.datasets = { roof: data.roofline.roof };
    spec.description = `Roofline, ${data.modes[mode]}`;
    byId("roofline").hidden = !points.length;
    return points.length ? this.roofline.draw(spec, points, data.roofline.note) : null;
  }

  // the choice of a case: only those of which there are samples
  cases() {
    byId("samples").hidden = false;
    const form = byId("samples").querySelector("form");
    const { series, mode, n } = form.elements;
    const { samples } = this.data;
    const unique = (values) => [...new Set(values)];
    const fill = (select, values, label) => {
      const old = select.value;
      select.replaceChildren(...values.map((value) => made("option", { value }, label(value))));
      if (values.map(String).includes(old)) select.value = old;
    };
    const update = () => {
      fill(series, unique(samples.map((s) => s.series)), (i) => this.data.series[i].name);
      const own = samples.filter((s) => s.series === Number(series.value));
      fill(mode, unique(own.map((s) => s.mode)), (i) => this.data.modes[i]);
      const lengths = own.filter((s) => s.mode === Number(mode.value)).map((s) => s.n);
      fill(n, unique(lengths), (length) => length.toLocaleString("en"));
      this.chosen = own.find((s) => s.mode === Number(mode.value) && s.n === Number(n.value));
      this.distribution();
    };
    form.addEventListener("change", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
  }

  distribution() {
    const { chosen, data } = this;
    const series = data.series[chosen.series];
    const spec = structuredClone(data.specs.samples);
    const points = chosen.rounds.flatMap(({ round, values }) =>
      values.map((value) => ({ round, value, name: `round ${round}`, text: `round ${round}: ${value} ${chosen.unit}` })),
    );
    points.forEach((point, id) => (point.id = id));
    for (const layer of spec.layer) layer.mark.color = colour(series);
    spec.encoding.x.title = `one iteration, ${chosen.unit}`;
    spec.height = 26 * chosen.rounds.length;
    spec.datasets = { estimate: chosen.estimate };
    spec.description = `Samples of ${series.name}, ${data.modes[chosen.mode]}, N = ${chosen.n}`;
    return this.samples.draw(spec, points, `${spec.description}: ${points.length} samples. ${chosen.text}`);
  }
}

async function charts() {
  if (!window.DecompressionStream) return;
  const [code, data] = await Promise.all(["vega", "data"].map(unpacked));
  document.head.append(made("script", { text: code }));
  byId("charts").hidden = false;
  await new Charts(JSON.parse(data)).draw();
  document.documentElement.classList.add("drawn");
}

charts();
