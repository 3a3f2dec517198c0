"use strict";
// Plots of one kind each, drawn with Plotly from the numbers in the page.

const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Paul Tol's "bright" scheme: told apart by the colour-blind, on light and on dark.
const POLICY = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#888888"];
const colour = (index) => POLICY[index % POLICY.length];
// Files call the energy of drives "ssd" whatever they are.
const DRIVES = data.summary.runs.some((run) => run.disks) ? "disks" : "ssd";
const COMPONENTS = [
  ["cpu", "cpu_w", "#4477aa"], [DRIVES, "ssd_w", "#ee6677"], ["memory", "memory_w", "#ccbb44"],
  ["nic", "nic_w", "#66ccee"], ["fans", "fans_w", "#228833"], ["other", "other_w", "#999999"],
  ["supply loss", "psu_loss_w", "#bbaacc"],
];

const drawn = [];
const timed = [];

function layout(extra) {
  const axis = { gridcolor: css("--grid"), zerolinecolor: css("--grid"), linecolor: css("--line") };
  const ink = css("--ink");
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: "system-ui, sans-serif" },
    margin: { l: 62, r: 14, t: 34, b: 40 },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: ink } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 1, xanchor: "right" },
    hovermode: "x unified",
  };
  const merged = { ...base, ...extra };
  merged.xaxis = { ...axis, ...(extra.xaxis || {}) };
  merged.yaxis = { ...axis, rangemode: "tozero", ...(extra.yaxis || {}) };
  if (extra.title) {
    merged.title = { text: extra.title, x: 0, xanchor: "left", xref: "container", pad: { l: 8 },
      y: 0.97, yanchor: "top", font: { size: 13 } };
  }
  return merged;
}

const CONFIG = {
  responsive: true, displayModeBar: false, showTips: false,
};

// Draws now and again when the colours of the page change.
function draw(target, make) {
  const element = typeof target === "string" ? $(target) : target;
  const again = () => {
    const { traces, extra } = make();
    return Plotly.react(element, traces, layout(extra), CONFIG);
  };
  drawn.push(again);
  again();
  return element;
}

// Charts over time zoom together.
let following = false;
function follow(element) {
  timed.push(element);
  element.on("plotly_relayout", (change) => {
    if (following) return;
    const from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
    const whole = change["xaxis.autorange"];
    if (from === undefined && !whole) return;
    following = true;
    const update = whole ? { "xaxis.autorange": true } : { "xaxis.range": [from, to] };
    const others = timed.filter((other) => other !== element);
    Promise.all(others.map((other) => Plotly.relayout(other, update)))
      .finally(() => { following = false; });
  });
}

const faint = (hex) => hex + "2e";

// Mean line, and the band from least to largest where a point stands for several periods.
function lines(run, index, name, options) {
  const series = run.series[name];
  if (!series) return [];
  const scale = (options && options.scale) || 1;
  const of = (values) => (scale === 1 ? values : values.map((v) => (v === null ? null : v * scale)));
  const common = { x: run.time, type: "scatter", mode: "lines", legendgroup: run.policy };
  const shape = (options && options.shape) || "linear";
  const traces = [];
  if (series.min) {
    const edge = { ...common, hoverinfo: "skip", showlegend: false, line: { width: 0, shape } };
    traces.push({ ...edge, y: of(series.min) });
    traces.push({ ...edge, y: of(series.max), fill: "tonexty", fillcolor: faint(colour(index)) });
  }
  traces.push({
    ...common, y: of(series.mean), name: run.policy,
    // The reference is wider, to be seen under policies that do the same.
    line: { color: colour(index), width: index === 0 ? 3.2 : 1.6, shape },
  });
  return traces;
}

// Whether a series spans so much that only a logarithmic axis shows all of it.
function wide(name) {
  const values = runs.flatMap((run) => run.series[name].mean).filter((value) => value > 0);
  return values.length > 0 && values.reduce((a, b) => Math.max(a, b)) > 30 * values.reduce((a, b) => Math.min(a, b));
}
const LOG = { type: "log", rangemode: "normal", exponentformat: "none" };

function overTime(target, title, name, options) {
  const element = draw(target, () => {
    const traces = runs.flatMap((run, index) => lines(run, index, name, options));
    const shapes = [];
    const annotations = [];
    if (data.warmup_s > 0) {
      shapes.push({ type: "rect", xref: "x", yref: "paper", x0: 0, x1: data.warmup_s, y0: 0, y1: 1,
        fillcolor: css("--soft"), opacity: 0.1, line: { width: 0 } });
    }
    if (options && options.limit) {
      shapes.push({ type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: options.limit,
        y1: options.limit, line: { color: css("--bad"), width: 1.4, dash: "dash" } });
      annotations.push({ xref: "paper", x: 1, xanchor: "right", yref: "y",
        y: options.logarithmic && wide(name) ? Math.log10(options.limit) : options.limit,
        yanchor: "bottom", showarrow: false, text: options.limitName,
        font: { color: css("--bad"), size: 11 } });
    }
    const unit = { title: { text: (options && options.unit) || "" } };
    const yaxis = { ...unit, ...(options && options.logarithmic && wide(name) ? LOG : {}),
      ...((options && options.yaxis) || {}) };
    return { traces, extra: { title, shapes, annotations, xaxis: { title: { text: "time, s" } }, yaxis } };
  });
  follow(element);
}

function stacked(target, run, highest) {
  const element = draw(target, () => {
    const traces = COMPONENTS.filter(([, name]) => run.series[name]).map(([label, name, fill]) => ({
      x: run.time, y: run.series[name].mean, name: label, type: "scatter", mode: "lines",
      stackgroup: "power", line: { width: 0.6, color: fill, simplify: false }, fillcolor: fill + "cc",
      hovertemplate: "%{y:.1f} W",
    }));
    return { traces, extra: {
      title: run.policy, xaxis: { title: { text: "time, s" } },
      yaxis: { title: { text: "W" }, range: [0, highest * 1.05] },
      showlegend: false, margin: { l: 52, r: 10, t: 30, b: 40 },
    } };
  });
  follow(element);
}

function energyBars(target) {
  draw(target, () => {
    const names = runs.map((run) => run.policy);
    const traces = COMPONENTS.map(([label, name, fill]) => ({
      type: "bar", orientation: "h", name: label, y: names, marker: { color: fill },
      x: data.summary.runs.map((run) => run.energy_joules[name.replace(/_w$/, "")]),
      hovertemplate: "%{x:.4s}J",
    }));
    return { traces, extra: {
      title: "Energy", barmode: "stack", hovermode: "closest",
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 1, xanchor: "right", traceorder: "normal" },
      xaxis: { title: { text: "J" } }, yaxis: { autorange: "reversed", automargin: true },
      margin: { l: 90, r: 14, t: 34, b: 40 },
    } };
  });
}

let form = "cdf";
function distribution(target) {
  draw(target, () => {
    const traces = runs.map((run, index) => {
      const { upper, count } = run.latency;
      const all = count.reduce((sum, n) => sum + n, 0);
      let seen = 0;
      const below = count.map((n) => (seen += n) / all);
      const y = form === "cdf" ? below.map((share) => 100 * share)
        : form === "tail" ? below.map((share) => Math.max(0, 1 - share) || null)
        : count.map((n) => (100 * n) / all);
      return { x: upper, y, name: run.policy, type: "scatter", mode: "lines",
        line: { color: colour(index), width: index === 0 ? 3.2 : 1.8, shape: form === "share" ? "hvh" : "hv" } };
    });
    const yaxis = form === "tail"
      ? { type: "log", title: { text: "share of requests above" }, rangemode: "normal", exponentformat: "power" }
      : { title: { text: form === "cdf" ? "requests at or below, %" : "requests, % per class of 2.3%" } };
    return { traces, extra: { yaxis,
      xaxis: { type: "log", dtick: "D2", title: { text: "latency, µs" }, exponentformat: "none" } } };
  });
}

// Pale where nothing is held back or drawn, dark where much is.
const STATES = [[0, "#e3ebf2"], [0.5, "#5e93c4"], [1, "#123a66"]];
const POWERS = [[0, "#fdf3dc"], [0.5, "#f08a3c"], [1, "#7a1020"]];
let shown = data.caps.length > 1 ? "states" : "watts";
function map(target, run) {
  const element = draw(target, () => {
    const states = shown === "states";
    const deepest = Math.max(1, data.caps.length - 1);
    const top = runs.flatMap((r) => r.map.watts.flat()).reduce((a, b) => Math.max(a, b), 1);
    const trace = {
      type: "heatmap", x: run.map.time, z: states ? run.map.states : run.map.watts,
      y: run.map.states.map((_, drive) => drive), zmin: 0, zmax: states ? deepest : top,
      colorscale: states ? STATES : POWERS,
      hovertemplate: states ? "drive %{y}, %{x} s: state %{z}<extra></extra>"
        : "drive %{y}, %{x} s: %{z:.1f} W<extra></extra>",
      colorbar: { thickness: 12, len: 1, outlinewidth: 0, title: { text: states ? "state" : "W" },
        ...(states ? { tickmode: "array", tickvals: data.caps.map((_, s) => s),
          ticktext: data.caps.map((cap, s) => `${s}: ${cap} W`) } : {}) },
    };
    return { traces: [trace], extra: {
      title: run.policy, hovermode: "closest", margin: { l: 52, r: 10, t: 30, b: 40 },
      xaxis: { title: { text: "time, s" } },
      yaxis: { title: { text: "drive" }, autorange: "reversed", rangemode: "normal" },
    } };
  });
  follow(element);
}
