// The page around the plots: facts, summary, log. Text goes in by textContent only.

function change(share) {
  if (!isFinite(share)) return "";
  if (Math.abs(share) < 0.0005) return "=";
  if (share >= 10) return "×" + number(1 + share);
  return (share > 0 ? "+" : "−") + Math.abs(100 * share).toFixed(Math.abs(share) < 1 ? 1 : 0) + "%";
}

function facts() {
  const s = data.summary;
  $("what").textContent = `${s.workload} on ${s.profile}`;
  for (const { text } of s.verdicts) add($("verdicts"), "li", text);
  if (s.advice) add($("verdicts"), "li", `${s.advice}.`, "advice");
  $("command").firstElementChild.textContent = data.command;
  const items = [[s.simulated ? "simulated, not measured" : "measured", "strong"], [data.profile_summary],
    [`made ${new Date(1000 * data.made_unix_s).toISOString().slice(0, 10)}`],
    [`tolerated loss ${short(100 * s.plf)}%`]];
  if (s.seed !== undefined) items.push([`seed ${s.seed}`]);
  if (s.ssd_budget_watts !== null) items.push([`drives' budget ${short(s.ssd_budget_watts)} W`]);
  if (s.maximum_iops !== null) items.push([`measured maximum ${number(s.maximum_iops)} IOPS`]);
  if (s.pressure !== null) items.push([`pressure ${short(100 * s.pressure)}%`]);
  if (data.warmup_s > 0) items.push([`first ${short(data.warmup_s)} s not counted`]);
  if (s.unfinished) items.push([`interrupted: ${s.unfinished.join(", ")} did not finish`, "broken"]);
  for (const [text, strong] of items) add($("facts"), "li", text, strong);
  for (const file of s.traces) {
    if (file.malformed) add($("facts"), "li", `${file.file}: ${file.malformed} malformed records passed over`);
  }
  for (const run of s.runs) {
    if (run.trip) {
      add($("facts"), "li", `${run.policy}: thermal trip at ${run.trip.at_s.toFixed(1)} s, socket ${run.trip.socket} `
        + `at ${run.trip.celsius.toFixed(1)} °C; its numbers end there`, "broken");
    }
  }
  $("version").textContent = `Ebb ${data.version}. ${s.simulated ? "Every number here comes from Ebb's digital twin."
    : "Every number here was measured."}`;
  $("kind").textContent = s.simulated ? "simulation report" : "report";
}

// The difference in a unit: a share of degrees above freezing says nothing.
function difference(by, unit) {
  if (!isFinite(by)) return "";
  return Math.abs(by) < 0.05 ? "=" : `${by > 0 ? "+" : "−"}${Math.abs(by).toFixed(1)} ${unit}`;
}

// Name, value, which direction is better (-1 lower, 1 higher, 0 neither), style, and the unit of
// what is told as a difference.
const heated = (key, scale = 1) => (run) => (run.thermal ? run.thermal[key] * scale : null);
// The unit that suits the first run's energy, as in the terminal.
const ENERGY = ((total) => (total >= 1e7 ? ["MJ", 1e-6] : total >= 1e4 ? ["kJ", 1e-3] : ["J", 1]))(
  data.summary.runs[0].energy_joules.total);
const joules = (value) => (value === null ? null : value * ENERGY[1]);
const ROWS = [
  ["Tripped at, s", (r) => (r.trip ? r.trip.at_s : null), 0, "first"],
  [`Energy, ${ENERGY[0]}`, (r) => joules(r.energy_joules.total ?? null), -1, "first"],
  ...["cpu", "ssd", "memory", "nic", "fans", "other", "psu_loss"].map((name) =>
    [name === "psu_loss" ? "supply loss" : name === "ssd" ? DRIVES : name, (r) => joules(r.energy_joules[name] ?? null), -1, "part"]),
  ["Mean power, W", (r) => r.mean_watts, -1, "first"],
  ["Start-up, W", (r) => r.startup_watts ?? null, 0],
  ["Peak power, W", (r) => r.peak_watts, -1],
  ["Requests", (r) => r.requests, 0, "first"],
  ["IOPS", (r) => r.iops, 1],
  ["IOPS/W", (r) => r.iops_per_watt, 1],
  ["MB/J", (r) => (r.bytes_per_joule === null ? null : r.bytes_per_joule / 1e6), 1],
  ["Latency mean, µs", (r) => r.latency_us.mean, -1, "first"],
  ["p50, µs", (r) => r.latency_us.p50, -1, "part"],
  ["p99, µs", (r) => r.latency_us.p99, -1, "part"],
  ["p99.9, µs", (r) => r.latency_us.p99_9, -1, "part"],
  ["Longest, µs", (r) => r.latency_us.max, 0, "part"],
  ["Socket at most, °C", heated("hottest_socket_celsius"), 0, "first", "K"],
  ["Socket mean, °C", heated("mean_socket_celsius"), 0, undefined, "K"],
  ["Drive at most, °C", heated("hottest_drive_celsius"), 0, undefined, "K"],
  ["Fan duty, %", heated("mean_fan_duty", 100), 0, undefined, "pt"],
  [`Leakage, ${ENERGY[0]}`, heated("leakage_joules", ENERGY[1]), -1],
  ["Vibration amplitude", heated("mean_vibration"), 0],
  ["Cores throttled, s", heated("socket_throttled_seconds"), -1],
  ["Drives throttled, s", heated("drive_throttled_seconds"), -1],
  ...["critical", "vital", "sensitive", "noncritical"].flatMap((name) => {
    const of = (key) => (r) => ((r.classes || []).find((c) => c.class === name) || {})[key] ?? null;
    const title = name[0].toUpperCase() + name.slice(1);
    return [[`${title} jobs ended`, of("ended"), 1, "first"],
      ["promises kept", of("met"), 1, "part"], ["promises broken", of("missed"), -1, "part"],
      ["let in after, s", of("mean_admission_seconds"), -1, "part"],
      ["mean delay, s", of("mean_delay_seconds"), -1, "part"],
      ["disk wait, s", of("disk_wait_seconds"), -1, "part"],
      ["throttled, s", of("throttled_seconds"), -1, "part"]];
  }),
  ["Seeks", (r) => (r.disks ? r.disks.seeks : null), 0, "first"],
  ["Vibration loss, % of disk time", (r) => (r.disks && r.disks.vibration_loss !== null ? 100 * r.disks.vibration_loss : null), -1, undefined, "pt"],
  ["Revolutions lost", (r) => (r.disks ? r.disks.retries : null), -1],
  ["Spin-ups", (r) => (r.disks ? r.disks.spin_ups : null), -1],
  ["Over budget, s", (r) => r.seconds_over_budget, -1, "first"],
  ["Caps at most, W", (r) => (r.seconds_over_budget === null ? null : r.most_capped_watts), 0],
];

function summary() {
  const all = data.summary.runs;
  const table = $("summary");
  const head = add(add(table, "thead"), "tr");
  add(head, "th", "");
  all.forEach((run, index) => {
    const cell = add(head, "th");
    add(cell, "span", undefined, "dot").style.background = colour(index);
    cell.append(run.policy);
  });
  const body = add(table, "tbody");
  for (const [name, value, better, className, unit] of ROWS) {
    if (all.every((run) => value(run) === null || (className === "part" && value(run) === 0))) continue;
    const row = add(body, "tr", undefined, className);
    add(row, "td", name);
    all.forEach((run, index) => {
      // A run that a trip cut short is compared with nothing, nor anything with it.
      const whole = ![run, all[0]].some((one) => one.trip || value(one) === null);
      const share = whole ? value(run) / value(all[0]) - 1 : NaN;
      const cell = add(row, "td", number(value(run)) + " ");
      const told = !whole ? "" : unit ? difference(value(run) - value(all[0]), unit) : change(share);
      if (all.length > 1) add(cell, "small", index > 0 ? told : "");
      if (index > 0 && better !== 0 && Math.abs(share) >= 0.01) {
        cell.className = share > 0 === better > 0 ? "good" : "bad";
      }
    });
  }
  const toLimit = (excess) => [`${(100 * Math.abs(excess)).toFixed(1)}% ${excess > 0 ? "above" : "below"}`, excess <= 0];
  const sla = [["Mean to SLA limit", "sla_excess", toLimit], ["Worst 5 s to limit", "sla_worst_window", toLimit],
    ["5 s above limit", "sla_windows_above", (share) => [`${(100 * share).toFixed(1)}%`, share <= data.above]]];
  sla.forEach(([name, field, tell], line) => {
    const row = add(body, "tr", undefined, line ? "" : "first");
    add(row, "td", name);
    all.forEach((run, index) => {
      const known = index > 0 && run[field] !== null;
      const [text, kept] = run.trip ? ["tripped", false] : known ? tell(run[field]) : [index ? "–" : "reference", null];
      add(row, "td", text, kept === null ? "" : kept ? "kept" : "broken");
    });
  });
  const limit = all[0].sla_limit_us;
  $("summary-note").textContent = "Changes are against the first policy"
    + (limit === null ? "." : `; the SLA allows a mean latency of ${number(limit)} µs, `
      + `${short(100 * data.summary.plf)}% more than its own, and as much more in each window of 5 s, but for ${short(100 * data.above)}% of them.`)
    + (data.summary.closed_loop ? " Closed loop: each client sends its next request when one is answered, so a slower server "
      + "gets fewer requests and latency leaves out what those would have waited." : "");
}

// Every job of every run: when it ended and what kept it.
const JOB_COLUMNS = [["Let in after, s", "admission_seconds"], ["Delay, s", "delay_seconds"], ["CPU, s", "cpu_seconds"],
  ["Disk wait, s", "disk_wait_seconds"], ["Throttled, s", "throttled_seconds"],
  ["Disk, bytes", "disk_bytes"], ["Promised, s", "objective_seconds"]];

function jobs() {
  const runs = data.summary.runs.filter((run) => run.jobs);
  if (!runs.length) return;
  $("jobs").hidden = false;
  const table = $("jobs-table");
  const head = add(add(table, "thead"), "tr");
  const texts = ["Policy", "Job", "Class"];
  for (const name of texts) add(head, "th", name, "text");
  for (const name of [...JOB_COLUMNS.map(([name]) => name), "In time"]) add(head, "th", name);
  const body = add(table, "tbody");
  for (const run of runs) {
    run.jobs.forEach((job, index) => {
      const row = add(body, "tr", undefined, index ? undefined : "first");
      for (const text of [run.policy, job.name, job.class]) add(row, "td", text, "text");
      for (const [, key] of JOB_COLUMNS) add(row, "td", number(job[key]));
      add(row, "td", job.met === null ? "–" : job.met ? "yes" : "no", job.met === null ? "" : job.met ? "kept" : "broken");
    });
  }
}

function picker(target, choices, take) {
  const buttons = choices.map(([value, text]) => {
    const button = add($(target), "button", text);
    button.type = "button";
    button.onclick = () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      take(value);
    };
    return button;
  });
  buttons[0].setAttribute("aria-pressed", "true");
}

function chart(parent, className) {
  return add($(parent), "div", undefined, "chart " + (className || ""));
}

// A chart for each item; all have their place before the first is drawn, which is what sets widths.
function each(items, parent, make) {
  const elements = items.map(() => chart(parent));
  items.forEach((item, index) => make(item, elements[index], index));
}

function seriesNote() {
  const coarse = runs.filter((run) => run.rows_per_point > 1);
  $("series-note").textContent = `One point per control period of ${short(runs[0].period_s)} s. Drag to zoom, double-click to return; `
    + "charts over time zoom together."
    + (coarse.length ? ` Runs of more than ${data.all_shown} periods show ${coarse[0].rows_per_point} `
      + "periods a point: the line is their mean, the band their least and largest value." : "");
}

function plots() {
  seriesNote();
  const budget = data.summary.ssd_budget_watts;
  overTime("power", "Whole server at the wall", "power_w", { unit: "W", always: true });
  overTime("ssd", "All drives", "ssd_power_w", budget === null ? { unit: "W" }
    : { unit: "W", limit: budget, limitName: `budget ${short(budget)} W` });
  const highest = runs.flatMap((run) => run.series.power_w.mean).reduce((a, b) => Math.max(a, b), 1);
  energyBars("energy", ENERGY);
  each(runs, "components", (run, element) => stacked(element, run, highest));
  overTime("iops", "Completed requests per second", "iops", { unit: "IOPS" });
  const limit = data.summary.runs[0].sla_limit_us;
  overTime("latency", "Mean latency of each period", "latency_mean_s",
    { unit: "µs", scale: 1e6, logarithmic: true, limit: runs.length > 1 ? limit : null, limitName: "SLA limit of the mean" });
  if (runs.some((run) => run.latency)) distribution("distribution");
  else $("distribution-all").hidden = true;
  picker("distribution-pick", [["cdf", "cumulative"], ["tail", "tail"], ["share", "histogram"]],
    (value) => { form = value; drawn.forEach((chart) => chart.again()); });
  each(data.groups, "cores", (group, element, index) => overTime(element,
    `Active cores, ${group.replaceAll("_", " ")} (of ${data.cores[index]})`, `${group}_cores_active`,
    { unit: "cores" }));
  each(data.groups, "frequencies", (group, element) => overTime(element,
    `Frequency, ${group.replaceAll("_", " ")}`, `${group}_cores_frequency_hz`,
    { unit: "GHz", scale: 1e-9 }));
  const choices = [["states", "power state"], ["watts", "power"]];
  const states = data.caps.length > 1;
  // One button alone would be no choice.
  if (states) picker("map-pick", choices, (value) => { shown = value; drawn.forEach((chart) => chart.again()); mapNote(); });
  else $("map-pick").hidden = true;
  if (runs.every((run) => run.map.states.flat().every((state) => !state)) && states) {
    shown = "watts";
    $("map-pick").hidden = true;
  }
  const watts = runs.flatMap((run) => run.map.watts.flat()).filter((value) => value !== null);
  const [least, most] = [Math.min, Math.max].map((of) => watts.reduce((a, b) => of(a, b), watts[0] || 0));
  if (shown === "watts" && $("map-pick").hidden && most - least <= 0.05 * most) {
    $("map-note").textContent = `Every drive stays in power state 0 and draws ${short(least)} to ${short(most)} W throughout.`;
    return;
  }
  runs.forEach((run) => map(add($("maps"), "div"), run));
  mapNote();
}

// What the colours of the maps mean.
function mapNote() {
  const note = $("map-note");
  note.replaceChildren();
  const swatch = (share, text) => {
    add(note, "i", undefined, "dot").style.background = `rgb(${shade(shown, share).join()})`;
    note.append(text + "  ");
  };
  if (shown === "states") {
    data.caps.forEach((cap, state) => swatch(state / Math.max(1, data.caps.length - 1), `state ${state}: up to ${cap} W`));
  } else {
    const top = runs.flatMap((run) => run.map.watts.flat()).reduce((a, b) => Math.max(a, b), 1);
    [0, 0.5, 1].forEach((share) => swatch(share, `${short(share * top)} W`));
    if (data.caps.length > 1 && $("map-pick").hidden) note.append("All drives stay in power state 0. ");
  }
  if (runs.some((run) => run.map.rows_per_point > 1)) {
    note.append(shown === "states" ? "A cell shows the deepest state of several periods." : "A cell shows the mean of several periods.");
  }
}

function heat() {
  const series = Object.keys(runs[0].series);
  // The die itself where the plant knows it, else its sensor.
  const die = series.some((name) => /^socket\d+_die_celsius$/.test(name)) ? "die" : "temperature";
  const sockets = series.filter((name) => new RegExp(`^socket\\d+_${die}_celsius$`).test(name) && told(name));
  if (!sockets.length) return;
  $("heat").hidden = false;
  each(sockets, "temperatures", (name, element) => overTime(element,
    `${die === "die" ? "Die" : "Sensor"} of ${name.replace(/(\d+)_.*/, " $1")}`, name, { unit: "°C", free: 10 }));
  overTime("drive-heat", "Hottest drive", "drives_temperature_celsius", { unit: "°C", free: 10 });
  overTime("exhaust", "Air at the exhaust", "exhaust_celsius", { unit: "°C", free: 10 });
  // Fans that do the same share a chart.
  const fans = new Map();
  for (const name of series.filter((name) => /^fan\d+_reported_duty$/.test(name))) {
    const same = JSON.stringify(runs.map((run) => run.series[name]));
    fans.set(same, [...(fans.get(same) || []), name]);
  }
  each([...fans.values()].slice(0, 8), "fans", (names, element) => {
    const numbers = names.map((name) => name.replace(/\D/g, ""));
    overTime(element, `Duty of ${numbers.length > 1 ? "fans" : "fan"} ${numbers.join(", ")}`, names[0],
      { unit: "%", scale: 100 });
  });
  overTime("leakage", "Leakage", "leakage_w", { unit: "W" });
  overTime("vibration", "Relative amplitude of vibration", "vibration", { unit: "" });
  if (told("vibration_loss")) {
    overTime(chart("heat-more"), "Disk time lost to vibration", "vibration_loss", { unit: "%", scale: 100 });
  }
  if (told("job_share_mean")) {
    overTime(chart("heat-more"), "Share of the time that jobs may run, mean of jobs", "job_share_mean", { unit: "%", scale: 100 });
  }
  const faults = data.summary.runs.map((run) => run.faults || []).reduce((a, b) => (b.length > a.length ? b : a), []);
  const end = runs.map((run) => run.time[run.time.length - 1] || 0).reduce((a, b) => Math.max(a, b), 0);
  for (const fault of faults) {
    const until = fault.until_s < end ? `${fault.until_s.toFixed(1)} s` : "the end";
    add($("faults"), "li", `${fault.from_s.toFixed(1)} s to ${until}: ${fault.what}`);
  }
}

const CONTROLS = { active_cores: "active cores", frequency_hz: "frequency", power_state: "power state",
  background: "background work", fan_duty: "fan duty", frequency_cap_hz: "frequency cap",
  job_share: "share of a job", job_socket: "socket of a job", admit: "admission" };
const SHOWN = 500;

function value(control, from) {
  if (control === "frequency_hz" || control === "frequency_cap_hz") {
    return (from / 1e9).toFixed(2) + " GHz";
  }
  if (control === "fan_duty") return from === null ? "firmware's" : (100 * from).toFixed(1) + "%";
  if (control === "job_share") return (100 * from).toFixed(0) + "%";
  if (control === "job_socket") return from === null ? "any" : `socket ${from}`;
  if (control === "admit") return from ? "let in" : "wait";
  if (control === "background") return from ? "race" : "normal";
  if (control === "power_state" && data.caps[from] !== undefined) return `${from} (${data.caps[from]} W)`;
  return String(from);
}

// Decisions, in which what several fans, jobs or sockets were told at once is one.
function together(shown) {
  const all = [];
  for (const [time, control, of, ...rest] of shown) {
    const last = all[all.length - 1];
    const same = JSON.stringify([time, control, of.replace(/\d+$/, ""), ...rest]);
    if (last && /\d$/.test(of) && last.same === same) last.of.push(of.replace(/^\D+/, ""));
    else all.push({ same, of: [of], entry: [time, control, ...rest] });
  }
  return all.map(({ of, entry: [time, control, ...rest] }) => [time, control, of.join(", "), ...rest]);
}

function log() {
  const entries = runs.flatMap((run) => together(run.decisions.shown).map(([time, control, of, from, to, reason, applied]) => {
    const cells = [time.toFixed(1), run.policy, CONTROLS[control] || control, of.replaceAll("_", " "),
      value(control, from), value(control, to), run.decisions.reasons[reason][0], applied];
    return { policy: run.policy, reason: cells[6], cells, text: cells.join(" ").toLowerCase() };
  }));
  const reasons = new Map();
  runs.forEach((run) => run.decisions.reasons.forEach(([reason, count]) =>
    reasons.set(reason, (reasons.get(reason) || 0) + count)));
  const option = (select, value, text) => { add($(select), "option", text).value = value; };
  option("log-policy", "", "all");
  runs.forEach((run) => option("log-policy", run.policy, `${run.policy} (${run.decisions.count})`));
  option("log-reason", "", "all");
  [...reasons].sort().forEach(([reason, count]) => option("log-reason", reason, `${reason} (${count})`));
  const head = add(add($("log"), "thead"), "tr");
  ["time, s", "policy", "control", "of", "from", "to", "reason", "plant"].forEach((name) => add(head, "th", name));
  const body = add($("log"), "tbody");
  const all = runs.reduce((sum, run) => sum + run.decisions.count, 0);
  const cut = runs.some((run) => run.decisions.shown.length < run.decisions.count);
  const show = () => {
    const policy = $("log-policy").value, reason = $("log-reason").value;
    const words = $("log-search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = entries.filter((entry) => (!policy || entry.policy === policy)
      && (!reason || entry.reason === reason) && words.every((word) => entry.text.includes(word)));
    body.replaceChildren();
    for (const entry of found.slice(0, SHOWN)) {
      const row = add(body, "tr");
      entry.cells.forEach((cell) => add(row, "td", cell));
    }
    $("log-note").textContent = `${all} decisions in all; what several parts were told at once is one line`
      + (cut ? `, of which the page has the first and last 1000 of each policy (--decisions FILE writes all)` : "")
      + `; ${found.length} lines match` + (found.length > SHOWN ? `, the first ${SHOWN} are shown.` : ".");
  };
  $("log-filter").addEventListener("input", show);
  $("log-filter").addEventListener("submit", (event) => event.preventDefault());
  show();
}

function download(id, name, type, make) {
  $(id).onclick = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([make()], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
}

// The means that the page shows, a row for each policy and point.
function csv() {
  const names = Object.keys(runs[0].series);
  const rows = runs.flatMap((run) => run.time.map((time, at) =>
    [run.policy, time, ...names.map((name) => run.series[name].mean[at] ?? "")].join()));
  return [["policy", "time_s", ...names].join(), ...rows].join("\n") + "\n";
}

facts();
summary();
download("download-json", "ebb-sim.json", "application/json", () => JSON.stringify(data.summary, null, 2));
download("download-csv", "ebb-series.csv", "text/csv", csv);
jobs();
log();
plots();
heat();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.redraw()));
