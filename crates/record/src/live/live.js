// The page: takes events in, and shows the newest state when the browser draws next.

const table = JSON.parse($("table").textContent);
// So many lines of decisions are kept.
const LINES = 300;
// After so long without an event, in seconds or in usual steps between two, what is shown is old.
const OLD = 10, STEPS = 5;

const powers = new Past(), savings = new Past(), latencies = new Past();
const both = (signal, title) => [[`${signal} measured`, title, signal, false],
  [`${signal} modelled`, `${title}, modelled`, signal, true]];
const POWERS = { power: "at the wall", cpu_power: "processors", ssd_power: "drives", fan_power: "fans" };
const charts = [
  live("chart-power", "Power by part", "W", powers, Object.entries(POWERS).flatMap(([signal, title]) => both(signal, title)),
    { empty: "Nothing measures or models power here; see Sensors." }),
  live("chart-saving", "Mean saving of the cores, its range", "W", savings,
    [["least", "at least", "least", true], ["most", "at most", "most", true]],
    { band: true, empty: "Not known: the cores' load or frequency is not sensed." }),
  live("chart-latency", "Latency of requests", "µs", latencies,
    [...both("latency_mean", "mean"), ...both("latency_p99", "99th percentile")],
    { scale: 1e6, empty: "No requests, or their latency is not sensed." }),
];

// The newest status, when it came, the usual step, what lies between its clock and ours.
let status = null, came = 0, step = 1, offset = null;
let link = "wait", isHeld = false, isDue = false;
// Lines of decisions, the newest first; how many are counted, and how many were never heard of.
let decisions = [], decided = null, unheard = 0, cycles = null, skipped = 0;

const time = (at) => at + (offset ?? 0);
const series = ({ signal, source }) => `${signal} ${source}`;

// What was before the page was opened, or connected again: nothing of it is missing.
function hear(history) {
  cycles = null;
  for (const past of [powers, savings, latencies]) past.clear();
  const of = (prefix) => history.series.filter(({ signal }) => (signal in POWERS) === prefix);
  history.at_s.forEach((at, row) => {
    const values = (all) => all.map((one) => [series(one), one.values[row]]);
    powers.add(at, values(of(true)));
    latencies.add(at, values(of(false)));
    savings.add(at, [["least", history.saving.least_w[row]], ["most", history.saving.most_w[row]]]);
  });
}

function take(now) {
  const before = status;
  // A run that was started anew counts from zero again.
  if (before && (now.cycles < before.cycles || now.decided < before.decided)) [decisions, decided] = [[], null];
  if (cycles !== null && now.cycles > cycles + 1) {
    skipped += now.cycles - cycles - 1;
    for (const past of [powers, savings, latencies]) past.gap();
  }
  if (before && now.cycles > before.cycles) step = Math.max(0.1, (now.uptime_s - before.uptime_s) / (now.cycles - before.cycles));
  [status, came, cycles] = [now, performance.now(), now.cycles];
  if (now.unix_s) offset = now.unix_s - now.uptime_s;
  powers.add(now.uptime_s, now.power.filter((one) => one.of === undefined && one.signal in POWERS).map((one) => [series(one), one.watts]));
  latencies.add(now.uptime_s, now.sensors.filter(({ signal, known }) => known && (signal === "latency_mean" || signal === "latency_p99"))
    .map((one) => [`${one.signal} ${one.modelled ? "modelled" : "measured"}`, one.least]));
  savings.add(now.uptime_s, now.saving ? [["least", now.saving.least_w], ["most", now.saving.most_w]] : []);
  decide(now);
}

// Adds the decisions that are new; what several parts were told at once is one line.
function decide(now) {
  const many = decided === null ? now.changes.length : now.decided - decided;
  unheard += Math.max(0, many - now.changes.length);
  decided = now.decided;
  const fresh = many > 0 ? now.changes.slice(-many) : [];
  for (const { at_s, control, of, from, to, reason, applied } of fresh) {
    const same = JSON.stringify([at_s, control, from, to, reason, applied]);
    const other = decisions.findIndex(({ at }) => at !== at_s);
    const line = decisions.slice(0, other < 0 ? undefined : other).find((one) => one.same === same);
    if (line && of !== undefined) line.of.push(of);
    else decisions.unshift({ same, at: at_s, control, of: of === undefined ? [] : [of], from, to, reason, applied });
  }
  decisions.length = Math.min(decisions.length, LINES);
}

// Names of parts: a few, and how many more.
function parts(names) {
  if (names.length <= 3) return names.join(", ");
  return `${names.slice(0, 2).join(", ")} and ${names.length - 2} more`;
}

const UNITS = {
  "Hz": (v) => `${(v / 1e9).toFixed(2)} GHz`, "0 to 1": (v) => `${short(100 * v)} %`, "1": (v) => short(v), "number": (v) => short(v),
  "yes/no": (v) => (v ? "yes" : "no"), "mode": (v) => (v ? "race" : "normal"), "s": (v) => seconds(v), "B": (v) => bytes(v), "B/s": (v) => `${bytes(v)}/s`,
};
function worth(value, unit) {
  if (value === null || value === undefined) return "–";
  return (UNITS[unit] || ((v) => `${short(Number(v.toPrecision(4)))} ${unit}`))(value);
}
const set = (control, value) => (value === null || value === undefined ? "released" : worth(value, table.controls[control]?.unit));

function seconds(value) {
  return value === 0 ? "0 s" : value < 1e-3 ? `${short(Number((1e6 * value).toPrecision(3)))} µs`
    : value < 1 ? `${short(Number((1e3 * value).toPrecision(3)))} ms` : `${short(Number(value.toPrecision(3)))} s`;
}

function bytes(value) {
  const at = value >= 1e9 ? [1e9, "GB"] : value >= 1e6 ? [1e6, "MB"] : value >= 1e3 ? [1e3, "kB"] : [1, "B"];
  return `${short(Number((value / at[0]).toPrecision(3)))} ${at[1]}`;
}

function ago(value) {
  const all = Math.max(0, Math.floor(value));
  const [days, hours, minutes] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60];
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${all % 60} s` : `${all} s`;
}

// Changes only what is other: the browser lays out less, and a reader's place stays.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Rows in a table: [text, class] or text each; rows and cells are used again.
function rows(target, heads, all, empty) {
  const element = $(target);
  if (!element.tHead) {
    const head = add(element.createTHead(), "tr");
    for (const name of heads) add(head, "th", name).scope = "col";
    element.createTBody();
  }
  const body = element.tBodies[0], wanted = all.length || !empty ? all : [[empty]];
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach((cells, at) => {
    const row = body.rows[at] || body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((cell, column) => {
      const [text, name] = Array.isArray(cell) ? cell : [cell, ""];
      const place = row.cells[column] || row.insertCell();
      say(place, text);
      if (place.className !== name) place.className = name;
      place.colSpan = cells.length === 1 ? heads.length : 1;
    });
  });
}

// Items of a list, used again likewise: [class, text, small] each.
function items(target, all, make) {
  const list = $(target);
  while (list.children.length > all.length) list.lastChild.remove();
  all.forEach((one, at) => {
    const item = list.children[at] || make(add(list, "li"));
    item.className = one[0];
    one.slice(1).forEach((text, part) => say(item.children[part], text));
  });
}
const withTags = (...tags) => (item) => { tags.forEach((tag) => add(item, tag)); return item; };

function showState() {
  const now = status, name = now.state.split(":")[0];
  $("state").dataset.state = name;
  say($("state-name"), now.state);
  say($("state-since"), now.cycles ? `for ${ago(now.uptime_s - now.state_since_s)}` : "");
  const facts = [["", `policy ${now.policy || "–"}`], ["", `tolerated loss ${short(100 * now.plf)} %`]];
  if (now.ssd_budget_w !== null) facts.push(["", `drives' caps up to ${short(now.ssd_budget_w)} W`]);
  for (const { what, ends_s } of now.orders) {
    facts.push(["strong", `by ebb ctl: ${what}${ends_s === undefined ? "" : `, for ${ago(ends_s - now.uptime_s)} more`}`]);
  }
  facts.push(["", `up ${ago(now.uptime_s)}, ${now.cycles.toLocaleString("en-US")} cycles`]);
  if (now.events_lost) facts.push(["strong", `${now.events_lost} events lost in the daemon: the machine is too busy`]);
  items("facts", facts.map(([name, text]) => [name, text]), withTags("span"));
  say($("version"), `Ebb ${now.version}. This page only shows: ebb ctl changes a run.`);
  document.title = `Ebb: ${name}`;
}

function showPower() {
  const now = status, whole = now.power.filter((one) => one.of === undefined && one.signal in POWERS);
  const wall = whole.find(({ signal }) => signal === "power");
  say($("wall"), wall ? `${watts(wall.watts)} W` : "–");
  say($("wall-note"), wall ? `the whole server at the wall, ${wall.source}` : "nothing measures the whole server at the wall");
  const rest = Object.keys(POWERS).filter((signal) => signal !== "power").map((signal) => [signal, whole.find((one) => one.signal === signal)]);
  items("parts", rest.map(([signal, one]) => ["", POWERS[signal], one ? `${watts(one.watts)} W` : "–", one ? one.source : "not known"]),
    withTags("span", "b", "small"));
  const saving = now.saving;
  say($("saved"), saving ? `${watts(saving.least_w)} to ${watts(saving.most_w)} W` : "not known");
  say($("saved-note"), saving ? `${saving.would ? "would be saved" : "saved"} of the cores' power against the settings found; mean, modelled with the cores of ${saving.profile}`
    : "the cores' load or frequency is not sensed");
  const sensed = (name) => now.sensors.find(({ signal, known }) => signal === name && known);
  const [mean, tail] = [sensed("latency_mean"), sensed("latency_p99")];
  say($("mean"), mean ? seconds(mean.least) : "–");
  say($("mean-note"), (mean ? `mean of the last period, ${mean.modelled ? "modelled" : "measured"}${tail ? `; 99th percentile ${seconds(tail.least)}` : ""}`
    : "no request was completed in the last period, or latency is not sensed"));
  const lose = now.would_lose === null ? "How much of it is used is not known while Ebb acts: nobody measures how long requests would take without it."
    : `So far it would have been ${percent(now.would_lose)} more, modelled.`;
  say($("promise"), `Tolerated: ${percent(now.plf)} more than as found, on average. ${now.cycles ? lose : ""}`
    + (now.latency === "block" ? " Not promised: latency is known at the drives alone, which does not show what cores cost."
      : now.latency === "served" ? " Each request is counted by ebb serve." : ""));
}

const percent = (share) => `${short(Number((100 * share).toFixed(1)))} %`.replace("-", "−");
const watts = (value) => (Math.abs(value) < 0.05 ? "0.0" : value.toFixed(1).replace("-", "−"));

function showForce() {
  const now = status, lines = new Map();
  for (const one of now.controls) {
    const { control, asked, given, reason, applied, since_s } = one;
    const key = JSON.stringify([control, asked, given, reason, applied, since_s]);
    if (!lines.has(key)) lines.set(key, { ...one, of: [] });
    if (one.of !== undefined) lines.get(key).of.push(one.of);
  }
  const would = !now.controls.some(({ applied }) => applied !== undefined);
  say($("force-note"), now.controls.length ? `${would ? "Nothing is set: this is what would be. " : ""}All else is as it was found.` : "");
  rows("force", ["control", "of", "asked", "given", "applied", "for", "why"], [...lines.values()].map((one) => [
    [table.controls[one.control]?.title || one.control, "what"], [parts(one.of), "what"], set(one.control, one.asked),
    [set(one.control, one.given), one.given !== one.asked ? "held" : ""],
    [one.applied || "–", one.applied && one.applied !== "done" ? "refused" : ""],
    one.since_s === undefined ? "" : ago(now.uptime_s - one.since_s), [one.reason, "why"]]), "Everything is as it was found.");
}

function showDecisions() {
  const hidden = [unheard && `${unheard} more were decided faster than they could be told`, skipped && `${skipped} events were not read in time`];
  say($("decisions-note"), [`${(status.decided || 0).toLocaleString("en-US")} since the start`, ...hidden.filter(Boolean)].join("; ")
    + `; the last ${LINES} lines at most are here, the newest first.`);
  rows("decisions", ["at", "control", "of", "from", "to", "why", "applied"], decisions.map((one) => [
    clock(time(one.at)), [table.controls[one.control]?.title || one.control, "what"], [parts(one.of), "what"], set(one.control, one.from),
    set(one.control, one.to), [one.reason, "why"],
    [one.applied || "–", one.applied && one.applied !== "done" ? "refused" : ""]]), "Nothing was decided yet.");
}

function showSensors() {
  const now = status, of = ({ signal }) => table.signals[signal] || { of: "", unit: "", text: signal };
  const name = ({ signal }) => signal.replaceAll("_", " ");
  // What needs a look comes first.
  const known = now.sensors.filter((one) => one.known).sort((a, b) => b.without.length - a.without.length), absent = now.sensors.filter((one) => !one.known);
  const health = (one) => (one.without.length
    ? [`${one.known} of ${one.parts}; not ${[parts(one.without), ...one.reasons].join("; ")}`, "why health partly"] : ["known", "health known"]);
  const range = ({ least, most }, unit) => (least === most ? worth(least, unit) : `${worth(least, unit)} to ${worth(most, unit)}`);
  say($("sensors-note"), `${known.length} of ${now.sensors.length} signals are known.`);
  rows("sensors", ["signal", "health", "value", "source", "age", "what it is"], known.map((one) => [[name(one), "what"], health(one), range(one, of(one).unit),
    one.modelled === 0 ? "measured" : one.modelled === one.known ? "modelled" : `${one.modelled} of ${one.known} modelled`,
    one.oldest_s > 0 ? ago(one.oldest_s) : "now", [of(one).text, "why"]]), "Nothing was sensed yet.");
  $("absent").hidden = absent.length === 0;
  say($("absent-head"), `${absent.length} signals are absent`);
  // Signals that are absent for the same reason are one line.
  const whys = new Map();
  for (const one of absent) {
    const why = one.reasons.join("; ") || `a server has it from: ${(of(one).from || "nowhere").replaceAll("`", "")}`;
    whys.set(why, [...(whys.get(why) || []), name(one)]);
  }
  rows("absents", ["signal", "why, and what to do"], [...whys].map(([why, names]) => [[names.join(", "), "what health absent"], [why, "why"]]));
  $("attention").hidden = now.missing.length + now.notices.length === 0;
  const notices = [...now.notices].reverse().map(({ at_s, of: place, text }) => ["went", `${place}: ${text}`, `at ${clock(time(at_s))}`]);
  items("remarks", [...notices, ...now.missing.map((text) => ["", text, "from the start"])], withTags("span", "small"));
}

function showLink() {
  const since = status ? (performance.now() - came) / 1000 : 0;
  const isOld = status !== null && (link !== "live" || since > Math.max(OLD, STEPS * step));
  document.body.classList.toggle("old", isOld);
  $("link").dataset.link = isOld ? "lost" : link;
  say($("said"), status === null ? "" : `${isOld ? "old news" : "live"}, ${status.state}`);
  say($("link"), isOld ? `${link === "live" ? "No cycle" : "No connection to the daemon"} for ${ago(since)}: what is shown is of ${clock(time(status.uptime_s))}`
    : link === "live" ? (isHeld ? `held at ${clock(time(held))}; it goes on behind` : `live, a cycle each ${short(Number(step.toPrecision(2)))} s`) : "connecting");
}

let held = 0;
function show() {
  isDue = false;
  if (status === null || isHeld) return;
  showLink();
  showState();
  showPower();
  showForce();
  showDecisions();
  showSensors();
  charts.forEach((chart) => chart.draw());
}

// However fast events come, it is drawn once for each picture, and not at all while nobody looks.
function due() {
  if (isDue || document.hidden) return;
  isDue = true;
  requestAnimationFrame(show);
}

function connect() {
  const events = new EventSource("events");
  const on = (name, act) => events.addEventListener(name, (event) => { link = "live"; act(JSON.parse(event.data)); due(); });
  on("history", hear);
  on("status", take);
  events.onerror = () => {
    link = "lost";
    showLink();
    // The browser tries again by itself, unless what answers is no Ebb.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

$("hold").onclick = () => {
  isHeld = !isHeld;
  held = status ? status.uptime_s : 0;
  $("hold").setAttribute("aria-pressed", String(isHeld));
  showLink();
  due();
};
document.addEventListener("visibilitychange", due);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.again()));
new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(document.body);
setInterval(showLink, 1000);
connect();
