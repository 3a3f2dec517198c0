//! From the command line to what is to be simulated: defaults, the example, contradictions.

use std::path::Path;

use anyhow::Result;

use ebb_cli::usage;
use ebb_policy::units::Nanos;
use ebb_trace::generate::{Overrides, WorkloadSpec, by_name, load};

use super::args::{SimArgs, WorkloadArgs};

/// How long a generated workload without an end of its own runs.
pub const DEFAULT_DURATION: Nanos = Nanos::from_secs(60);

/// The server where the command line names none.
pub const DEFAULT_PROFILE: &str = "asg-1115s";

/// Said before the example's table.
pub const EXAMPLE_INTRODUCTION: &str = "\
Built-in example: the all-flash server of the PACER paper under a light load, 3% of its
maximum. native leaves cores and frequency alone, ondemand is Linux's governor, pacer parks
cores and lowers the frequency as far as the tolerated latency allows.";

/// Said after it.
pub const EXAMPLE_NEXT: &str = "\
Next: --report DIR draws plots and lists every decision; --workload rand-rw --pressure 10% raises
the load. To estimate the saving on your own trace:
  ebb sim --trace FILE --fold --policy native --policy ondemand --policy pacer
  ebb sim --list       policies, servers and workloads";

/// The scenario of the example; its load keeps it to some seconds of computing.
pub struct Example;

impl Example {
    pub const PROFILE: &str = "dorado-6000";
    pub const WORKLOAD: &str = "rand-rw";
    pub const POLICIES: [&str; 3] = ["native", "ondemand", "pacer"];
    pub const PRESSURE: f64 = 0.03;
    /// `pacer` settles and learns once more.
    pub const DURATION: Nanos = Nanos::from_secs(148);
}

/// Whether nothing says what to simulate, so that the example is shown.
pub fn is_example(args: &SimArgs) -> bool {
    args.profile.is_none()
        && args.policies.is_empty()
        && args.ssd_budget.is_none()
        && args.server_budget.is_none()
        && args.sampled.is_none()
        && args.trace.files.is_empty()
        && args.workload.workload.is_none()
        && args.workload.first_given().is_none()
}

/// Options that contradict each other or lack another.
pub fn contradictions(args: &SimArgs) -> Result<()> {
    if let (true, Some(option)) = (args.trace.files.is_empty(), args.trace.first_given()) {
        return Err(usage(format!("{option} is for traces: it needs --trace FILE")));
    }
    let given = args.workload.first_given();
    match (&args.workload.workload, given) {
        (None, Some(option)) if !args.trace.files.is_empty() => Err(usage(format!(
            "{option} is for generated workloads and contradicts --trace: a trace has its own \
             requests (--rate-scale plays them faster)"
        ))),
        (None, Some(option)) => Err(usage(format!(
            "{option} needs --workload NAME or FILE.toml; 'ebb sim --list' shows the names"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a command line that says how to run, but not what.
pub fn something_to_run(args: &SimArgs) -> Result<()> {
    let given = !args.trace.files.is_empty() || args.workload.workload.is_some();
    if given || is_example(args) {
        return Ok(());
    }
    Err(usage(
        "nothing to run: give --trace FILE or --workload NAME ('ebb sim --list' shows the names), \
         or no options at all for an example",
    ))
}

/// The workload that the options describe.
pub fn workload(name: &str, args: &WorkloadArgs) -> Result<WorkloadSpec> {
    let is_file = name.contains('/') || name.ends_with(".toml") || Path::new(name).is_file();
    let spec = if is_file { load(name)? } else { by_name(name)? };
    let overrides = Overrides {
        rate: args.rate,
        read: args.read,
        random: args.random,
        block: args.block,
        threads: args.jobs,
        depth: args.depth,
        drives: args.drives,
        data: args.data,
        duration: None,
    };
    Ok(spec.with(&overrides)?)
}

/// Refuses a warm-up that leaves nothing to be counted.
pub fn something_counts(warmup: Nanos, duration: Nanos) -> Result<()> {
    if warmup < duration {
        return Ok(());
    }
    Err(usage(format!(
        "--warmup {warmup} leaves nothing of a duration of {duration}: give a shorter warm-up or a \
         longer --duration"
    )))
}
