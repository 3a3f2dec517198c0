// Plots of one kind each, drawn with uPlot from the numbers in the page; drives by time on a canvas.

const data = JSON.parse($("data").textContent);
const runs = data.runs;

// Paul Tol's "bright" scheme: told apart by the colour-blind, on light and on dark.
const POLICY = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#888888"];
const colour = (index) => POLICY[index % POLICY.length];
// Files call the energy of drives "ssd" whatever they are.
const DRIVES = data.summary.runs.some((run) => run.disks) ? "disks" : "ssd";
// Name, column of its power, colour, name of its energy.
const COMPONENTS = [
  ["cpu", "cpu_power_w", "#4477aa", "cpu"], [DRIVES, "ssd_power_w", "#ee6677", "ssd"],
  ["memory", "memory_power_w", "#ccbb44", "memory"], ["nic", "nic_power_w", "#66ccee", "nic"],
  ["fans", "fan_power_w", "#228833", "fans"], ["other", "other_power_w", "#999999", "other"],
  ["supply loss", "psu_loss_w", "#bbaacc", "psu_loss"],
];
// Whether the plant told a series at all.
const told = (name) => runs.some((run) => run.series[name] && run.series[name].mean.some((value) => value !== null));

// Everything with a size of its own, and everything with a time axis.
const drawn = [];
const timed = [];

// Charts over time zoom together.
let following = false;
function zoom(from, to, source) {
  if (following) return;
  following = true;
  for (const other of timed) if (other !== source) other.zoom(from, to);
  following = false;
}

const TIME = () => axis("time, s", { size: 34 });
// On a logarithmic axis, labels at powers of ten alone.
const decades = (u, splits) => splits.map((value) =>
  (value > 0 && Math.abs(Math.log10(value) % 1) < 1e-9 ? tick(value) : ""));

// A chart in `target`, with a heading; `make` says what it shows whenever it is drawn.
function draw(target, title, make) {
  const element = typeof target === "string" ? $(target) : target;
  let plot = null;
  const again = () => {
    element.replaceChildren();
    if (title) add(element, "h3", title);
    const place = add(element, "div", undefined, "plot");
    if (plot) plot.destroy();
    const { options, columns } = make();
    plot = new uPlot({ width: Math.max(200, place.clientWidth), height: place.clientHeight || 260, ...options },
      columns, place);
  };
  const resize = () => {
    const place = element.querySelector(".plot");
    if (place && place.clientWidth && place.clientWidth !== plot.width) {
      plot.setSize({ width: place.clientWidth, height: plot.height });
    }
  };
  again();
  const chart = { again, resize, redraw: () => plot.redraw(), plot: () => plot };
  drawn.push(chart);
  return chart;
}

const stepped = uPlot.paths.stepped({ align: -1 });

// The reference is wide and pale, to be seen under policies that do the same; later ones are
// dashed, to show those under them.
function stroke(index) {
  return index === 0 ? { stroke: colour(0) + "88", width: 5 }
    : { stroke: colour(index), width: 1.6, dash: index > 1 ? [3 + 3 * index, 2 + 2 * index] : undefined };
}

const scaled = (values, scale) => (scale === 1 ? values : values.map((v) => (v === null ? null : v * scale)));

// Whether a series spans so much that only a logarithmic axis shows all of it.
function wide(name) {
  const values = runs.flatMap((run) => run.series[name].mean).filter((value) => value > 0);
  return values.length > 0 && values.reduce((a, b) => Math.max(a, b)) > 30 * values.reduce((a, b) => Math.min(a, b));
}

// What a series is worth in one line where it never changes; null where it does.
function constant(name, { scale = 1, unit = "" }) {
  const lines = [];
  for (const run of runs) {
    const { mean, min, max } = run.series[name];
    const all = [...mean, ...(min || []), ...(max || [])].filter((value) => value !== null);
    if (!all.length) continue;
    const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
    if (high - low > 1e-3 * Math.abs(high)) return null;
    lines.push([run.policy, `${short(high * scale)} ${unit}`.trim()]);
  }
  return lines.every(([, text]) => text === lines[0][1]) ? `${lines[0][1]} throughout`
    : lines.map(([policy, text]) => `${policy} ${text}`).join(", ") + ", throughout";
}

// A series of every run over time, or a line of text where it never changes.
function overTime(target, title, name, options = {}) {
  const element = typeof target === "string" ? $(target) : target;
  if (!told(name)) return void (element.hidden = true);
  const text = constant(name, options);
  if (text !== null && !options.always) {
    element.className = "constant";
    add(element, "b", title);
    element.append(`: ${text}`);
    return;
  }
  const { scale = 1, unit = "", limit = null, limitName, free = 0 } = options;
  const logarithmic = options.logarithmic && wide(name);
  const shown = runs.filter((run) => run.series[name]);
  const chart = draw(element, title, () => {
    const tables = [], series = [{ label: "time", value: (u, v) => (v === null ? "–" : `${short(v)} s`) }], bands = [];
    for (const run of shown) {
      const index = runs.indexOf(run), values = run.series[name];
      const paths = options.smooth ? undefined : stepped;
      const table = [run.time];
      if (values.min) {
        const edge = { label: "", show: true, stroke: "transparent", width: 0, paths, points: { show: false }, class: "edge" };
        table.push(scaled(values.max, scale), scaled(values.min, scale));
        bands.push({ series: [series.length, series.length + 1], fill: faint(colour(index)) });
        series.push(edge, { ...edge });
      }
      table.push(scaled(values.mean, scale));
      series.push({ label: run.policy, ...stroke(index), paths, points: { show: false },
        value: (u, v) => (v === null ? "–" : `${short(v)} ${unit}`) });
      tables.push(table);
    }
    const range = (u, low, high) => {
      if (low === null) return [0, 1];
      const top = limit === null ? high : Math.max(high, limit);
      if (!free) return [0, top > 0 ? top * 1.06 : 1];
      const slack = Math.max(0, free - (top - low)) / 2 + 0.04 * (top - low);
      return [low - slack, top + slack];
    };
    return {
      columns: uPlot.join(tables, tables.map((table) => table.map(() => 1))),
      options: {
        series, bands, cursor: { sync: { key: "time" } },
        axes: [TIME(), axis(unit, logarithmic ? { values: decades } : {})],
        scales: { x: { time: false }, y: logarithmic ? { distr: 3 } : { range } },
        hooks: { drawClear: [warmup], draw: [limit === null ? () => {} : (u) => line(u, limit, limitName)],
          setScale: [(u, key) => { if (key === "x") zoom(u.scales.x.min, u.scales.x.max, chart); }] },
      },
    };
  });
  timed.push(chart);
  chart.zoom = (min, max) => chart.plot().setScale("x", { min, max });
}

// What is not counted, in grey.
function warmup(u) {
  const from = Math.max(u.bbox.left, u.valToPos(0, "x", true)), to = Math.min(u.bbox.left + u.bbox.width, u.valToPos(data.warmup_s, "x", true));
  if (!(data.warmup_s > 0) || to <= from) return;
  u.ctx.save();
  u.ctx.globalAlpha = 0.1;
  u.ctx.fillStyle = css("--soft");
  u.ctx.fillRect(from, u.bbox.top, to - from, u.bbox.height);
  u.ctx.restore();
}

// A limit, dashed, with its name.
function line(u, limit, name) {
  const y = u.valToPos(limit, "y", true), { left, width } = u.bbox;
  u.ctx.save();
  u.ctx.strokeStyle = u.ctx.fillStyle = css("--bad");
  u.ctx.setLineDash([8, 6]);
  u.ctx.lineWidth = 1.5 * devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.moveTo(left, y);
  u.ctx.lineTo(left + width, y);
  u.ctx.stroke();
  u.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  u.ctx.textAlign = "right";
  u.ctx.textBaseline = "bottom";
  u.ctx.fillText(name, left + width - 4 * devicePixelRatio, y - 3 * devicePixelRatio);
  u.ctx.restore();
}

// Power by component: each area reaches down to nothing, the largest sum is drawn first.
function stacked(target, run, highest) {
  const parts = COMPONENTS.filter(([, name]) => run.series[name] && run.series[name].mean.some((value) => value > 0));
  const chart = draw(target, run.policy, () => {
    let sum = run.time.map(() => 0);
    const sums = parts.map(([, name]) => (sum = sum.map((below, at) => below + (run.series[name].mean[at] || 0))));
    const series = parts.map(([label, name, fill]) => ({ label, fill, stroke: fill, width: 0.5, paths: stepped,
      points: { show: false }, value: (u, v, s, at) => (at === null ? "–" : `${short(run.series[name].mean[at])} W`) }));
    return {
      columns: [run.time, ...sums.reverse()],
      options: {
        series: [{ label: "time", value: (u, v) => (v === null ? "–" : `${short(v)} s`) }, ...series.reverse()],
        cursor: { sync: { key: "time" } }, axes: [TIME(), axis("W")],
        scales: { x: { time: false }, y: { range: () => [0, highest * 1.06] } },
        hooks: { setScale: [(u, key) => { if (key === "x") zoom(u.scales.x.min, u.scales.x.max, chart); }] },
      },
    };
  });
  timed.push(chart);
  chart.zoom = (min, max) => chart.plot().setScale("x", { min, max });
}

// Energy of each run, by component, as bars of the page.
function energyBars(target, [unit, scale]) {
  const most = data.summary.runs.map((run) => run.energy_joules.total || 0).reduce((a, b) => Math.max(a, b), 0);
  for (const run of data.summary.runs) {
    const row = add($(target), "div", undefined, "bar");
    add(row, "span", run.policy);
    const bar = add(row, "div");
    for (const [label, , fill, name] of COMPONENTS) {
      const joules = run.energy_joules[name];
      if (!(joules > 0)) continue;
      const part = add(bar, "i");
      part.style.background = fill;
      part.style.width = `${(100 * joules) / most}%`;
      part.title = `${label}: ${short(joules * scale)} ${unit}`;
    }
    add(row, "b", `${short((run.energy_joules.total ?? NaN) * scale)} ${unit}`);
  }
  const names = add($(target), "p", undefined, "note");
  for (const [label, , fill, name] of COMPONENTS) {
    if (!data.summary.runs.some((run) => run.energy_joules[name] > 0)) continue;
    add(names, "i", undefined, "dot").style.background = fill;
    names.append(label + "  ");
  }
}

let form = "cdf";
function distribution(target) {
  const known = runs.filter((run) => run.latency);
  draw(target, "", () => {
    const tables = known.map((run) => {
      const { upper, count } = run.latency;
      const all = count.reduce((sum, n) => sum + n, 0);
      let seen = 0;
      const below = count.map((n) => (seen += n) / all);
      return [upper, form === "cdf" ? below.map((share) => 100 * share)
        : form === "tail" ? below.map((share) => (share < 1 ? 1 - share : null))
        : count.map((n) => (100 * n) / all)];
    });
    const name = form === "tail" ? "share of requests above" : form === "cdf" ? "requests at or below, %" : "requests, % of each class (2.3% wide)";
    const value = (u, v) => (v === null || v === undefined ? "–" : form === "tail" ? v.toExponential(1) : `${short(v)}%`);
    return {
      columns: uPlot.join(tables),
      options: {
        series: [{ label: "latency", value: (u, v) => (v === null ? "–" : `${short(v)} µs`) },
          ...known.map((run) => ({ label: run.policy, ...stroke(runs.indexOf(run)), spanGaps: true, points: { show: false }, value }))],
        axes: [axis("latency, µs", { size: 34, values: decades }), axis(name, form === "tail"
          ? { values: (u, splits) => splits.map((v) => (Math.abs(Math.log10(v) % 1) < 1e-9 ? v.toExponential(0) : "")) } : {})],
        scales: { x: { time: false, distr: 3 },
          y: form === "tail" ? { distr: 3 } : { range: (u, low, high) => [0, form === "cdf" ? 100 : high * 1.06] } },
      },
    };
  });
}

// Pale where nothing is held back or drawn, dark where much is.
const SHADES = { states: [[227, 235, 242], [94, 147, 196], [18, 58, 102]],
  watts: [[253, 243, 220], [240, 138, 60], [122, 16, 32]] };
function shade(kind, share) {
  const [low, middle, high] = SHADES[kind];
  const [from, to, at] = share < 0.5 ? [low, middle, 2 * share] : [middle, high, 2 * share - 1];
  return from.map((value, index) => Math.round(value + (to[index] - value) * at));
}

let shown = data.caps.length > 1 ? "states" : "watts";
// Drives from top to bottom, time from left to right.
function map(target, run) {
  add(target, "h3", run.policy);
  const canvas = add(target, "canvas");
  const below = add(target, "div", undefined, "ends");
  const [from, to] = [add(below, "span"), add(below, "span")];
  const note = add(target, "p", undefined, "note");
  const time = run.map.time;
  let first = 0, last = time.length - 1;
  const value = (drive, at) => run.map[shown][drive][at];
  const top = () => (shown === "states" ? Math.max(1, data.caps.length - 1)
    : runs.flatMap((r) => r.map.watts.flat()).reduce((a, b) => Math.max(a, b), 1));
  const again = () => {
    const width = last - first + 1;
    [canvas.width, canvas.height] = [width, data.drives];
    canvas.style.height = `${Math.min(18, Math.max(3, 240 / data.drives)) * data.drives}px`;
    const context = canvas.getContext("2d"), image = context.createImageData(width, data.drives), most = top();
    for (let drive = 0; drive < data.drives; drive += 1) {
      for (let at = 0; at < width; at += 1) {
        const cell = value(drive, first + at);
        if (cell === null || cell === undefined) continue;
        image.data.set([...shade(shown, Math.min(1, cell / most)), 255], 4 * (drive * width + at));
      }
    }
    context.putImageData(image, 0, 0);
    [from.textContent, to.textContent] = [`${short(time[first] || 0)} s`, `${short(time[last] || 0)} s`];
    note.textContent = `drive 0 at the top, ${data.drives - 1} at the bottom`;
  };
  canvas.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = Math.min(last, first + Math.floor(((event.clientX - box.left) / box.width) * (last - first + 1)));
    const drive = Math.min(data.drives - 1, Math.floor(((event.clientY - box.top) / box.height) * data.drives));
    const state = run.map.states[drive][at], watts = run.map.watts[drive][at];
    note.textContent = `drive ${drive} at ${short(time[at])} s: state ${state === null ? "–" : state}, ${short(watts)} W`;
  };
  const zoomed = (min, max) => {
    first = Math.max(0, time.findIndex((end) => end >= min));
    last = time.length - 1;
    while (last > first && time[last] > max) last -= 1;
    again();
  };
  again();
  const chart = { again, resize: () => {}, redraw: again, zoom: zoomed };
  drawn.push(chart);
  timed.push(chart);
}

new ResizeObserver(() => drawn.forEach((chart) => chart.resize())).observe(document.body);
