//! From the command line to what is to be simulated: defaults, the example, contradictions.

use std::path::Path;

use anyhow::Result;

use ebb_policy::ssd::P_INTERVAL;
use ebb_policy::units::{Nanos, Watts};
use ebb_trace::generate::{Overrides, WorkloadSpec, by_name, load};

use crate::args::{SimArgs, WorkloadArgs};
use crate::exit::usage;

/// How long a generated workload without an end of its own runs.
pub const DEFAULT_DURATION: Nanos = Nanos::from_secs(60);

/// Said before the example's table.
pub const EXAMPLE_INTRODUCTION: &str = "\
Built-in example: the four fio servers of the PACMAN paper (mail, VDI, media, web), each on a
quarter of a 16-drive server whose drives together may draw 224 W; two requests outstanding per
job, so that it takes seconds only. sspc gives every drive the same cap; pacman moves the caps to
the drives whose measured power says they need it, first after 5 s, from when on both are counted.";

/// Said after it.
pub const EXAMPLE_NEXT: &str = "\
Next: add --report DIR for plots and the log of decisions, or replay a trace of your own:
  ebb sim --trace FILE --fold --policy native --policy pacer --policy pacer+pacman --ssd-budget 224W
  ebb sim --list       policies, servers and workloads";

/// The scenario of the example; its length keeps it to a few seconds of computing.
pub struct Example;

impl Example {
    pub const PROFILE: &str = "asg-1115s";
    pub const WORKLOAD: &str = "fio-servers";
    pub const POLICIES: [&str; 2] = ["sspc", "pacman"];
    pub const BUDGET: Watts = Watts(224.0);
    pub const DEPTH: u32 = 2;
    pub const WARMUP: Nanos = P_INTERVAL;
    pub const DURATION: Nanos = Nanos::from_secs(6);
}

/// Whether nothing says what to simulate, so that the example is shown.
pub fn is_example(args: &SimArgs) -> bool {
    args.profile.is_none()
        && args.policies.is_empty()
        && args.ssd_budget.is_none()
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
