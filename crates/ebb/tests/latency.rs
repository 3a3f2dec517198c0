//! What a latency counts from, and what keeps `--plf`.

use std::fs;

use serde_json::Value;

use crate::common::{json, path, prints, valid};

const SERVER: [&str; 6] = ["sim", "--profile", "generic-1u", "--duration", "2 s", "--quiet"];

fn run(part: &str, more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "load.toml");
    let access = "access = { block = \"4 KiB\", read = \"100%\" }";
    fs::write(&file, format!("name = \"load\"\n{part}{access}\n")).unwrap();
    let result = json(&[&SERVER[..], &["--workload", &file, "--json"], more].concat());
    valid("sim-1", &result);
    result
}

/// A thread that cannot keep up with its rate is late; what waits for it has waited, to the last
/// request.
#[test]
fn what_waits_for_a_thread_has_waited() {
    let job = run("[[jobs]]\nname = \"a\"\nthreads = 1\nrate = \"40k IOPS\"\n", &[]);
    let open = run("[[arrivals]]\nname = \"a\"\nrate = \"40k IOPS\"\n", &[]);
    let of = |result: &Value, name: &str| result["runs"][0][name].as_f64().unwrap();
    let [late, prompt] = [&job, &open].map(|result| of(result, "requests"));
    assert!((late / prompt - 1.0).abs() < 0.03, "{late} and {prompt} requests");
    let latency =
        |result: &Value, name: &str| result["runs"][0]["latency_us"][name].as_f64().unwrap() * 1e-6;
    // The last one waits for as long as the thread is late.
    let behind = of(&job, "seconds") - 2.0;
    assert!(behind > 0.2, "{behind} s: this thread keeps up with its rate");
    assert!((latency(&job, "max") / behind - 1.0).abs() < 0.05, "{}", latency(&job, "max"));
    assert!((latency(&job, "mean") / behind - 0.5).abs() < 0.1, "{}", latency(&job, "mean"));
    assert!(latency(&open, "max") < 0.1, "{}", latency(&open, "max"));
    for result in [job, open] {
        assert_eq!(result.get("closed_loop"), None);
    }
}

#[test]
fn a_closed_loop_says_that_it_is_one() {
    let result = run("[[jobs]]\nname = \"a\"\nthreads = 4\nrate = \"max\"\n", &[]);
    assert_eq!(result["closed_loop"], true);
    let told = |rate| prints(&[&SERVER[..], &["--workload", "rand-rw", "--rate", rate]].concat());
    let words = "closed loop: each client sends its next request when one is answered";
    assert!(told("max").contains(words));
    assert!(!told("1000 IOPS").contains("closed loop"));
}

/// Beside the mean stands what it hides.
#[test]
fn a_mean_that_is_kept_does_not_excuse_its_windows() {
    let load = ["--workload", "rand-rw", "--rate", "20k IOPS", "--warmup", "0s"];
    let span = ["sim", "--profile", "generic-1u", "--duration", "50 s", "--quiet"];
    let more = ["--policy", "native", "--policy", "pacer", "--plf", "50%", "--json"];
    let result = json(&[&span[..], &load, &more].concat());
    let [native, pacer] = [0, 1].map(|at| &result["runs"][at]);
    assert_eq!(native["sla_windows_above"], 0.0);
    let share = pacer["sla_windows_above"].as_f64().unwrap();
    assert!((share * 10.0).fract() < 1e-9, "{share} of 10 windows");
    let worst = pacer["sla_worst_window"].as_f64().unwrap();
    assert!(worst >= pacer["sla_excess"].as_f64().unwrap(), "{worst} is the worst");
    assert_eq!(share > 0.0, worst > 0.0);
    let kept = pacer["sla_kept"] == true && share <= 0.05;
    assert_eq!(result["verdicts"][0]["kept"], kept);
}

/// A rate beside a closed loop: the heading names the loop, and the sentence what the mean hides.
#[test]
fn of_parts_side_by_side_the_closed_and_the_slowed_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "two.toml");
    let part = |name: &str, more: &str, block: &str, read: f64| {
        format!(
            "[[jobs]]\nname = '{name}'\nthreads = 2\ndepth = 4\n{more}\
             access = {{ block = '{block}', read = {read}, random = {read} }}\n"
        )
    };
    let small = part("small", "rate = '2000 IOPS'\n", "4 KiB", 1.0);
    let large = part("large", "", "512 KiB", 0.0);
    fs::write(&file, format!("name = 'two'\n{small}{large}")).unwrap();
    let load = ["sim", "--profile", "pc-i5-4460", "--workload", &file, "--duration", "4 s"];
    let more = ["--policy", "native", "--policy", "constant(cores=0.2)"];
    let text = prints(&[&load[..], &more].concat()).replace("\n  ", " ");
    assert!(text.contains("closed loop of large: each client"), "{text}");
    assert!(text.contains("within the 20% allowed on the whole, but small's +"), "{text}");
}
