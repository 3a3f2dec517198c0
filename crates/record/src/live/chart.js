// Charts of the recent past: rows of numbers at times, as many as there is room for.

// The oldest rows give way: an open page takes no more memory after a week than after ten minutes.
const ROOM = 1200;

// Columns by name over one time; a name that is no longer told ends with its last row.
class Past {
  constructor() { this.clear(); }

  clear() {
    this.at = [];
    this.columns = new Map();
  }

  // Adds a row of [name, value]s at a time; one that is not later than the last is known already.
  add(at, values) {
    const rows = this.at.length;
    if (rows && at <= this.at[rows - 1]) return;
    this.at.push(at);
    for (const [name, value] of values) {
      if (value === null || value === undefined) continue;
      if (!this.columns.has(name)) this.columns.set(name, new Array(rows).fill(null));
      this.columns.get(name)[rows] = value;
    }
    for (const column of this.columns.values()) if (column.length <= rows) column.push(null);
    if (rows < ROOM) return;
    this.at.shift();
    for (const [name, column] of this.columns) {
      column.shift();
      if (column.every((value) => value === null)) this.columns.delete(name);
    }
  }

  // Nothing is known from the last row on: lines do not go over what was not told.
  gap() {
    if (this.at.length) this.add(this.at[this.at.length - 1] + 1e-3, []);
  }
}

// Paul Tol's "bright" scheme, as in the report.
const COLOURS = { power: () => css("--ink"), cpu_power: () => "#4477aa", ssd_power: () => "#ee6677",
  fan_power: () => "#228833", latency_mean: () => css("--accent"), latency_p99: () => "#ccbb44",
  least: () => css("--good"), most: () => css("--good") };

// A chart of columns in `unit`: [name, title, signal, whether modelled] each. Those that are not known are left out.
function live(target, title, unit, past, columns, { scale = 1, band = false, empty }) {
  const element = $(target);
  add(element, "h3", title);
  const place = add(element, "div", undefined, "plot");
  const none = add(element, "p", empty, "note");
  place.setAttribute("role", "img");
  const is = ([name]) => past.columns.has(name);
  const value = (u, v) => (v === null || v === undefined ? "–" : `${short(v)} ${unit}`);
  let plot = null;

  const make = (data) => {
    const series = columns.map((column) => ({ label: column[1], value, width: 2, points: { show: false }, show: is(column),
      stroke: COLOURS[column[2]], dash: column[3] ? [6, 5] : undefined }));
    plot = new uPlot({
      width: Math.max(200, place.clientWidth), height: innerWidth < 640 ? 180 : 230, padding: [null, 28, null, null],
      series: [{ label: "time", value: (u, v) => (v === null ? "–" : clock(v)) }, ...series],
      bands: band ? [{ series: [2, 1], fill: () => css("--good") + "2e" }] : [],
      axes: [axis("", { size: 30, labelSize: 0, space: innerWidth < 640 ? 55 : 80,
        values: (u, splits) => splits.map((at) => clock(at, splits[1] - splits[0])) }), axis(unit, { size: 50 })],
      scales: { x: { time: true }, y: { range: (u, low, high) => (low === null ? [0, 1] : [Math.min(0, low), high > 0 ? 1.08 * high : 1]) } },
      cursor: { drag: { x: false, y: false } },
      hooks: { setCursor: [(u) => { if (u.cursor.idx === null) newest(); }] },
    }, data, place);
  };
  // Without a pointer the legend tells the newest values.
  const newest = () => plot && plot.setLegend({ idx: past.at.length - 1 }, false);
  const scaled = (column) => (scale === 1 ? column : column.map((v) => (v === null ? null : v * scale)));

  return {
    draw() {
      const chosen = columns.filter(is);
      none.hidden = chosen.length > 0;
      place.hidden = chosen.length === 0;
      if (!chosen.length) return;
      const data = [past.at.map(time), ...columns.map(([name]) => scaled(past.columns.get(name) || past.at.map(() => null)))];
      if (!plot) make(data);
      columns.forEach((column, at) => {
        if (plot.series[at + 1].show !== is(column)) plot.setSeries(at + 1, { show: is(column) });
      });
      plot.setData(data);
      if (plot.cursor.idx === null || plot.cursor.left < 0) newest();
      const last = (name) => past.columns.get(name)[past.at.length - 1];
      const words = chosen.filter(([name]) => last(name) !== null)
        .map(([name, label]) => `${label} ${short(last(name) * scale)} ${unit}`).join(", ");
      place.setAttribute("aria-label", `${title}: ${words || "nothing at present"}`);
    },
    resize() {
      if (plot && place.clientWidth && place.clientWidth !== plot.width) {
        plot.setSize({ width: place.clientWidth, height: plot.height });
      }
    },
    // In other colours, the legend's too.
    again() {
      if (!plot) return;
      plot.destroy();
      plot = null;
      this.draw();
    },
  };
}

// A time of day; with seconds where marks are closer than minutes.
const [SECONDS, MINUTES] = [{ second: "2-digit" }, {}].map((more) =>
  new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...more }));
const clock = (at, step = 0) => (step < 60 ? SECONDS : MINUTES).format(1000 * at);
