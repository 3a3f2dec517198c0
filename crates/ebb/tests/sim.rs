//! `ebb sim` end to end.

use std::fs;

use crate::common::{QUICK, data, fails, json, path, prints, small_trace, valid};
use serde_json::Value;

fn quick(more: &[&str]) -> Vec<&'static str> {
    let more = more.iter().map(|arg| &*Box::leak((*arg).to_owned().into_boxed_str()));
    QUICK.iter().copied().chain(more).collect()
}

#[test]
fn json_keeps_its_contract() {
    let result = json(&quick(&["--json", "--seed", "7", "--plf", "30%"]));
    valid("sim-1", &result);
    assert_eq!(result["seed"], 7);
    assert_eq!(result["plf"], 0.3);
    assert_eq!(result["profile"], "generic-1u");
    let runs = result["runs"].as_array().unwrap();
    let names: Vec<_> = runs.iter().map(|run| run["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["native", "ondemand", "pacer"]);
    let mean = |run: &Value| run["latency_us"]["mean"].as_f64().unwrap();
    let limit = mean(&runs[0]) * 1.3;
    for run in runs {
        let number = |name: &str| run[name].as_f64().unwrap();
        let joules = run["energy_joules"].as_object().unwrap();
        let total = joules["total"].as_f64().unwrap();
        let parts = joules.iter().filter(|(name, _)| *name != "total");
        let sum: f64 = parts.map(|(_, joules)| joules.as_f64().unwrap()).sum();
        assert!((sum / total - 1.0).abs() < 1e-9);
        assert!((number("mean_watts") * number("seconds") / total - 1.0).abs() < 1e-9);
        assert!((number("iops_per_watt") * total / number("requests") - 1.0).abs() < 1e-9);
        assert_eq!(run["sla_kept"].as_bool(), Some(mean(run) <= limit));
        assert!((number("sla_limit_us") / limit - 1.0).abs() < 1e-9);
        assert_eq!(run["seconds_over_budget"], Value::Null);
        // 2,000 requests a second for 6 s.
        assert!((11_000..13_000).contains(&run["requests"].as_u64().unwrap()));
    }
}

/// The best known limits for a load that is known serve it within a budget that it exceeds.
#[test]
fn the_best_known_limits_keep_a_budget_and_serve_the_load() {
    let load = ["sim", "--profile", "pass-10", "--workload", "rand-w", "--rate", "20000 IOPS"];
    let of = |more: &[&'static str]| [&load[..], &["--duration", "2 s"], more].concat();
    let budget = ["--policy", "native", "--policy", "clairvoyant-budget", "--server-budget"];
    let result = json(&of(&[&budget[..], &["260 W", "--json"]].concat()));
    let runs = result["runs"].as_array().unwrap();
    let number = |run: usize, name: &str| runs[run][name].as_f64().unwrap();
    assert!(number(0, "mean_watts") > 300.0);
    assert!((250.0..=260.0).contains(&number(1, "mean_watts")), "{result}");
    assert!(number(1, "iops") > 0.99 * number(0, "iops"), "{result}");
    let (code, error) = fails(&of(&["--policy", "clairvoyant-budget"]));
    assert!(code == 2 && error.contains("give --server-budget"), "{error}");
}

/// A meter whose readings are too old when they come keeps no budget: refused, and not held at the
/// least for ever. A budget that cannot bind changes nothing from the first second on.
#[test]
fn a_budget_is_kept_by_a_meter_that_answers_in_time_and_binds_only_what_exceeds_it() {
    let late = "name = 'late'\nsummary = 'late'\nbase = 'pass-10'\n[board]\nmeter_lag = '5.5 s'\n";
    let path = std::env::temp_dir().join(format!("ebb-late-{}.toml", std::process::id()));
    std::fs::write(&path, late).unwrap();
    let load = ["--workload", "poisson", "--rate", "3000", "--duration", "4 s", "--warmup", "0s"];
    let policies = ["--policy", "native", "--policy", "tide"];
    let of = |profile: &str, budget: &str| {
        let server = ["sim", "--profile", profile, "--server-budget", budget];
        [&server[..], &load, &policies].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let words = of(path.to_str().unwrap(), "454 W");
    let (code, error) = fails(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let remedy = ["meter_lag", "5.5", "at most 5 s"];
    assert!(code == 2 && remedy.iter().all(|word| error.contains(word)), "{error}");
    std::fs::remove_file(path).unwrap();
    let mut words = of("pass-10", "1 kW");
    words.push("--json".to_owned());
    let result = json(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let of = |run: usize, pointer: &str| result["runs"][run].pointer(pointer).unwrap().as_f64();
    for pointer in ["/mean_watts", "/latency_us/mean", "/latency_us/p99"] {
        let ratio = of(1, pointer).unwrap() / of(0, pointer).unwrap();
        assert!((ratio - 1.0).abs() < 0.002, "{pointer}: {ratio}");
    }
}

#[test]
fn a_tail_is_for_who_keeps_it() {
    let args = ["sim", "--policy", "native", "--policy", "ondemand", "--tail", "50%"];
    let (code, error) = fails(&args);
    assert_eq!(code, 2);
    assert!(error.contains("--tail is for pacer and its variants"), "{error}");
}

#[test]
fn faults_are_listed_with_their_times_and_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let decisions = path(folder.path(), "decisions.jsonl");
    let series = path(folder.path(), "series.csv");
    let hot = ["sim", "--profile", "thermal-1u", "--workload", "rand-rw", "--rate", "20 IOPS"];
    let more = ["--policy", "native", "--policy", "pacer", "--duration", "2 min", "--faults", "3"];
    let more = [&more[..], &["--faults-until", "90 s"]].concat();
    let files = ["--decisions", &decisions, "--timeseries", &series, "--quiet"];
    let args: Vec<&str> = hot.into_iter().chain(more).chain(files).collect();
    let machine: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let result = json(&machine);
    valid("sim-1", &result);
    assert_eq!(result["faults_seed"], 3);
    let runs = result["runs"].as_array().unwrap();
    let faults = runs[0]["faults"].as_array().unwrap();
    assert!(faults.len() > 2);
    assert_eq!(result["faults_until_s"], 90.0);
    assert!(faults.iter().all(|fault| fault["until_s"].as_f64().unwrap() <= 90.0));
    assert_eq!(runs[0]["faults"], runs[1]["faults"], "the same under every policy");
    assert!(runs[0]["thermal"]["hottest_socket_celsius"].as_f64().unwrap() > 30.0);
    assert_eq!(json(&machine), result, "and again");

    let lines = fs::read_to_string(&decisions).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| valid("decision-3", line));
    let begins = |line: &&Value| line["control"] == "fault" && line["to"] == 1.0;
    assert_eq!(lines.iter().filter(begins).count(), 2 * faults.len());
    let heading = fs::read_to_string(&series).unwrap();
    assert!(heading.lines().next().unwrap().contains("socket1_die_celsius,socket1_throttled"));
    let table = prints(&args);
    assert!(table.contains("Injected faults (--faults 3 --faults-until \"90 s\")"), "{table}");
    assert!(table.contains("socket at most, °C"));
}

#[test]
fn wide_faults_break_more() {
    let hot = ["sim", "--profile", "thermal-1u", "--workload", "rand-rw", "--rate", "20 IOPS"];
    let more = ["--policy", "eadc", "--duration", "1 min", "--faults", "2", "--quiet"];
    let args: Vec<&str> = hot.into_iter().chain(more).collect();
    let with = |more: &[&'static str]| [&args, more].concat();
    let (usual, wide) = (json(&with(&["--json"])), json(&with(&["--faults-wide", "--json"])));
    valid("sim-1", &wide);
    assert_eq!((&usual["faults_wide"], &wide["faults_wide"]), (&false.into(), &true.into()));
    let of = |result: &Value| -> Vec<Value> {
        result["runs"][0]["faults"].as_array().unwrap().iter().map(|f| f["of"].clone()).collect()
    };
    let drives = |of: &[Value]| of.iter().any(|of| of.as_str().unwrap().starts_with("drive"));
    let (usual, wide) = (of(&usual), of(&wide));
    assert!(wide.len() > 2 * usual.len() && drives(&wide) && !drives(&usual), "{usual:?} {wide:?}");
    assert!(prints(&with(&["--faults-wide"])).contains("(--faults 2 --faults-wide)"));
    let (code, error) = fails(&[&hot[..], &["--faults-wide"]].concat());
    assert!(code == 2 && error.contains("--faults <SEED>"), "{code}: {error}");
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let run = |threads: &str| {
        let series = path(folder.path(), &format!("{threads}.csv"));
        let decisions = path(folder.path(), &format!("{threads}.jsonl"));
        let more =
            ["--json", "--threads", threads, "--timeseries", &series, "--decisions", &decisions];
        let out = prints(&quick(&more));
        (out, fs::read(series).unwrap(), fs::read(decisions).unwrap())
    };
    let alone = run("1");
    assert!(alone == run("2") && alone == run("7"));
}

#[test]
fn a_policy_with_a_comma_is_one_field_and_a_rounded_warmup_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let series = folder.path().join("series.csv").display().to_string();
    let policy = ["--policy", "constant(cores=0.5, ghz=2)", "--warmup", "1.2 s"];
    let printed = prints(&quick(&[&policy[..], &["--timeseries", &series]].concat()));
    assert!(printed.contains("a warm-up of 1500 ms is left out instead of 1200 ms"), "{printed}");
    let text = fs::read_to_string(series).unwrap();
    let mut rows = text.lines().filter(|row| row.contains("constant"));
    assert!(rows.next().unwrap().starts_with("\"constant(cores=0.5, ghz=2)\","), "{text}");
}

#[test]
fn another_seed_gives_other_requests() {
    let requests = |seed: &str| json(&quick(&["--json", "--seed", seed]))["runs"][0].clone();
    assert_ne!(requests("1"), requests("2"));
}

#[test]
fn the_table_compares_with_the_first_policy() {
    let text = prints(QUICK);
    assert!(text.contains("\nSimulated (digital twin) on generic-1u\n"), "{text}");
    for word in ["seed 1", "native", "ondemand", "pacer", "energy", "IOPS/W", "p99.9", "SLA"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let sla = text.lines().find(|line| line.starts_with("mean to SLA limit")).unwrap();
    assert!(sla.contains("reference") && (sla.contains("below") || sla.contains("above")));
    assert!(!text.contains('\u{1b}'), "no colours where nobody looks");
}

#[test]
fn many_policies_stay_within_100_columns() {
    let all = json(&["sim", "--list", "--json"]);
    let names = all["policies"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    let mut args = vec!["sim", "--profile", "asg-1115s", "--workload", "web", "--rate", "500"];
    args.extend(["--duration", "1 s", "--ssd-budget", "224 W"]);
    names.for_each(|name| args.extend(["--policy", name]));
    args.extend(["--policy", "pacer+pacman+eadc", "--policy", "native+pacer+pacman+eadc"]);
    let text = prints(&args);
    let table = text.lines().skip_while(|line| !line.starts_with("Simulated (")).skip(2);
    let table = table.take_while(|line| !line.starts_with("SLA, "));
    assert!(table.clone().all(|line| line.chars().count() <= 100), "{text}");
    assert!(table.filter(|line| line.contains("native")).count() > 1, "each table has it");
    let note = "Note: eadc sets nothing on asg-1115s: this server has no temperatures and no fans.";
    assert_eq!(text.matches(note).count(), 1, "{text}");
}

/// A budget that comes later is one.
#[test]
fn what_a_policy_sets_later_is_no_nothing() {
    let load = ["--workload", "poisson", "--rate", "5000 IOPS", "--duration", "2 s"];
    let args = [&["sim", "--profile", "converged-1u", "--policy", "tide"][..], &load].concat();
    let note = "tide sets nothing on converged-1u";
    assert!(prints(&args).contains(note));
    assert!(
        !prints(&[&args[..], &["--change", "1 s: server-budget 500 W"]].concat()).contains(note)
    );
}

#[test]
fn three_policies_together_say_who_did_what() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("decisions.jsonl");
    let load = ["--workload", "poisson", "--rate", "5000 IOPS", "--ssd-budget", "100 W"];
    let args = ["sim", "--profile", "converged-1u", "--policy", "pacer+pacman+eadc", "--json"];
    let more = ["--duration", "20 s", "--decisions", log.to_str().unwrap()];
    let result = json(&[&args[..], &load, &more].concat());
    valid("sim-1", &result);
    assert!(result.get("notes").is_none(), "everybody has something to set: {result}");
    let decisions = std::fs::read_to_string(&log).unwrap();
    for who in ["pacer:", "pacman:", "eadc:"] {
        assert!(decisions.contains(&format!("\"reason\":\"{who}")), "{who}");
    }
}

#[test]
fn without_arguments_there_is_an_example() {
    // As short as can be: the example itself is for people, not for tests.
    let text = prints(&["sim", "--duration", "2 s"]);
    assert!(text.starts_with("Simulated: ondemand "), "a verdict comes first: {text}");
    for word in ["example", "native", "pacer", "rand-rw", "dorado-6000", "--report", "3% pressure"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    let quiet = prints(&["sim", "--duration", "1 s", "--quiet"]);
    assert!(!quiet.contains("example"));
}

#[test]
fn the_list_names_what_there_is() {
    let list = json(&["sim", "--list", "--json"]);
    valid("list-1", &list);
    let text = prints(&["sim", "--list"]);
    for (kind, least) in [
        ("policies", 4),
        ("bounds", 3),
        ("schedulers", 4),
        ("profiles", 4),
        ("polled_profiles", 2),
        ("workloads", 4),
    ] {
        let items = list[kind].as_array().unwrap();
        assert!(items.len() >= least);
        for item in items {
            assert!(text.contains(item["name"].as_str().unwrap()));
            assert!(text.contains(item["summary"].as_str().unwrap()));
        }
    }
}

#[test]
fn pressure_is_a_share_of_the_measured_maximum() {
    let args = ["sim", "--profile", "generic-1u", "--workload", "rand-rw", "--pressure", "5%"];
    let result = json(&[&args[..], &["--duration", "4 s", "--json"]].concat());
    let most = result["maximum_iops"].as_f64().unwrap();
    let reached = result["runs"][0]["iops"].as_f64().unwrap();
    assert!((reached / (0.05 * most) - 1.0).abs() < 0.05, "{reached} of {most}");
}

#[test]
fn a_trace_is_cut_scaled_and_folded() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let requests = |more: &[&str]| {
        let args = ["sim", "--profile", "generic-1u", "--trace", &trace, "--json"];
        json(&[&args[..], more].concat())["runs"][0].clone()
    };
    let whole = requests(&[]);
    assert_eq!((&whole["requests"], &whole["reads"]), (&1000.into(), &750.into()));
    assert_eq!(requests(&["--from", "200 ms", "--to", "500 ms"])["requests"], 300);
    let fast = requests(&["--rate-scale", "2"]);
    assert!((fast["seconds"].as_f64().unwrap() - 0.5).abs() < 0.05);
    assert_eq!(requests(&["--fold"])["requests"], 1000);
    // The same file twice is two sets of devices.
    assert_eq!(requests(&["--trace", &trace])["requests"], 2000);
}

#[test]
fn lenient_reading_says_what_it_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let trace = path(folder.path(), "broken.trace");
    fs::write(&trace, "0 0 0 8 1\n1000 0 oops 8 1\n2000 0 16 8 0\n").unwrap();
    let args = ["sim", "--profile", "asg-1115s", "--trace", &trace, "--format", "mqsim"];
    let result = json(&[&args[..], &["--lenient", "--json"]].concat());
    valid("sim-1", &result);
    assert_eq!(result["runs"][0]["requests"], 2);
    assert_eq!(result["traces"][0]["malformed"], 1);
    assert_eq!(result["traces"][0]["reasons"][0][0], 2);
    let text = prints(&[&args[..], &["--lenient"]].concat());
    assert!(text.contains("1 malformed records passed over, the first at 2"), "{text}");
}

#[test]
fn a_run_without_requests_has_no_latency_and_no_verdict() {
    let low = ["sim", "--workload", "poisson", "--rate", "1e-6 IOPS", "--duration", "1 s"];
    let args = [&low[..], &["--policy", "native", "--policy", "pacer"]].concat();
    let result = json(&[&args[..], &["--json"]].concat());
    valid("sim-1", &result);
    assert_eq!(result["runs"][1]["latency_us"]["mean"], Value::Null);
    assert_eq!(result["runs"][1]["sla_kept"], Value::Null);
    prints(&args);
}

#[test]
fn a_budget_is_kept_by_every_policy_but_native() {
    let args = ["sim", "--profile", "asg-1115s", "--workload", "vdi-busy", "--depth", "4"];
    let policies = ["native", "sspc", "pacman", "pacer"].map(|name| ["--policy", name]).concat();
    let more = ["--ssd-budget", "160 W", "--duration", "1 s", "--json"];
    let result = json(&[&args[..], &policies, &more].concat());
    let runs = result["runs"].as_array().unwrap();
    assert!(runs[0]["most_capped_watts"].as_f64().unwrap() > 160.0);
    for run in &runs[1..] {
        assert!(run["most_capped_watts"].as_f64().unwrap() <= 160.0, "{run}");
    }
}

#[test]
fn real_traces_run() {
    let Some(data) = data() else { return };
    for (file, most) in [
        ("traces/mqsim_oltp_websearch/wsrch-small.trace.gz", 24_783),
        ("traces/mqsim_oltp_websearch/tpcc-small.trace.gz", 6_999),
        ("traces/cloudphysics_vscsi/cloudPhysicsIO.vscsi.gz", 113_872),
        ("traces/tencent_nvme_latency/tencent.cut.per_50k.most_rand_iops.537.trace.gz", 50_000),
        ("traces/msr_heimdall/msr.cut.per_10k.rw_40_60.1370.trace.gz", 10_000),
        ("traces/darshan_dxt/dxt_nonmpi_app.csv.gz", 17_647),
    ] {
        let trace = path(&data, file);
        let args = ["sim", "--trace", &trace, "--fold", "--to", "20 s", "--json"];
        let result = json(&[&args[..], &["--policy", "native", "--policy", "pacer"]].concat());
        valid("sim-1", &result);
        let requests = result["runs"][0]["requests"].as_u64().unwrap();
        assert!(requests > 50 && requests <= most, "{file}: {requests}");
        assert_eq!(result["runs"][1]["requests"], requests);
    }
}

#[test]
fn parts_with_drives_of_their_own_are_told_one_by_one() {
    let args = ["sim", "--workload", "fio-servers", "--depth", "1", "--duration", "1 s", "--json"];
    let result = json(&args);
    valid("sim-1", &result);
    let run = &result["runs"][0];
    let parts = run["parts"].as_array().unwrap();
    let names: Vec<_> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mail", "vdi", "media", "web"]);
    let sum = |field: &str| parts.iter().map(|part| part[field].as_f64().unwrap()).sum::<f64>();
    assert_eq!(sum("bytes"), run["bytes"].as_f64().unwrap());
    let ssd = run["energy_joules"]["ssd"].as_f64().unwrap();
    assert!((sum("drive_joules") / ssd - 1.0).abs() < 1e-9);
    assert_eq!(sum("drives"), 16.0);
}

/// Small reads beside large writes on the same drives: each part has its own latency, and the parts
/// are all there is.
#[test]
fn parts_that_share_drives_have_latencies_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "mine.toml");
    let part = |name: &str, depth: u32, block: &str, read: &str| {
        format!(
            "[[jobs]]\nname = \"{name}\"\nthreads = 2\ndepth = {depth}\n[jobs.access]\n\
             block = \"{block}\"\nread = \"{read}\"\nrandom = 1.0\n"
        )
    };
    let parts = part("small", 1, "4 KiB", "100%") + &part("large", 16, "128 KiB", "0%");
    fs::write(&file, "name = \"mine\"\n".to_owned() + &parts).unwrap();
    let args = ["sim", "--workload", &file, "--duration", "2 s", "--warmup", "500 ms"];
    assert!(prints(&args).contains("small p99"));
    let result = json(&[&args[..], &["--json"]].concat());
    valid("sim-1", &result);
    let run = &result["runs"][0];
    let [small, large] = run["parts"].as_array().unwrap().as_slice() else { panic!("{run}") };
    assert_eq!((&small["name"], &large["name"]), (&"small".into(), &"large".into()));
    assert!(small.get("drives").is_none());
    let of = |part: &Value, field: &str| part[field].as_f64().unwrap();
    let mean = |part: &Value| of(&part["latency_us"], "mean");
    for field in ["requests", "bytes"] {
        assert_eq!(of(small, field) + of(large, field), of(run, field), "{field}");
    }
    let waited = |part: &Value| of(part, "requests") * mean(part);
    // Requests are counted where they end, latencies where they begin.
    assert!(((waited(small) + waited(large)) / waited(run) - 1.0).abs() < 1e-3);
    // Little's law: two and 32 are under way.
    for (part, depth) in [(small, 2.0), (large, 32.0)] {
        let under_way = waited(part) * 1e-6 / of(run, "seconds");
        assert!((under_way / depth - 1.0).abs() < 0.02, "{under_way} of {depth}");
    }
}

#[test]
fn jobs_on_a_server_with_disks_are_told_one_by_one_and_by_class() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "mine.toml");
    fs::write(
        &file,
        "name = \"mine\"\n[[batch]]\nname = \"verify\"\ninstances = 2\nclass = \"vital\"\n\
         cpu = \"1 s\"\nobjective = \"1 min\"\n[batch.io]\nread = \"64 MiB\"\n\
         request = \"256 KiB\"\nrandom = 0.5\n[[batch]]\nname = \"late\"\ncpu = \"9 s\"\n\
         objective = \"3 s\"\n",
    )
    .unwrap();
    let page = path(folder.path(), "report");
    let args = ["sim", "--profile", "eadc-e6", "--workload", &file, "--report", &page];
    let result = json(&[&args[..], &["--json"]].concat());
    valid("sim-1", &result);
    let run = &result["runs"][0];
    assert_eq!(run["requests"], 512);
    assert_eq!(run["jobs"].as_array().unwrap().len(), 3);
    assert_eq!(run["jobs"][1]["name"], "verify-2");
    assert_eq!((&run["jobs"][0]["met"], &run["jobs"][2]["met"]), (&true.into(), &false.into()));
    let vital = &run["classes"][0];
    assert_eq!(
        (&vital["class"], &vital["ended"], &vital["met"]),
        (&"vital".into(), &2.into(), &2.into())
    );
    assert!(vital["disk_wait_seconds"].as_f64().unwrap() > 0.5, "{vital}");
    assert!(run["disks"]["seeks"].as_u64().unwrap() > 100);
    let seconds = run["seconds"].as_f64().unwrap();
    assert!((9.0..9.5).contains(&seconds), "ends with its last job: {seconds}");
    let cut = ["--duration", "4 s", "--warmup", "3 s", "--json"];
    let cut = json(&[&args[..], &cut].concat());
    assert_eq!(cut["runs"][0]["jobs"][2]["met"], false, "warm-up is part of its time");
    let text = prints(&args);
    for row in ["vital delay, s", "noncritical in time", "  disks", "revolutions lost"] {
        assert!(text.contains(row), "{row}:\n{text}");
    }
    let html = fs::read_to_string(format!("{page}/index.html")).unwrap();
    assert!(html.contains("jobs-table") && html.contains("verify-2"));
    let (code, refused) = fails(&["sim", "--profile", "pass-10", "--workload", &file]);
    assert!(code == 2 && refused.contains("no cores for them"), "{code}: {refused}");
}
