//! A status for people.

use std::fmt::Write;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use ebb_cli::text;

use super::access::words;
use super::status::Status;
use super::watch;

/// Tables of cores, threads, namespaces, latencies, energy and the last changes.
pub fn text(status: &Status) -> String {
    let mut out = String::new();
    let Status { server, connections, queues, rates, .. } = status;
    let listen: Vec<String> = server.listen.iter().map(ToString::to_string).collect();
    let _ = writeln!(out, "{} on {}", server.nqn, listen.join(", "));
    let _ = writeln!(
        out,
        "scheduler {}, cores doze by {}, up {:.0} s; shares, rates and powers of the last {:.1} s",
        server.scheduler, server.doze_by, server.uptime_s, status.window_s
    );
    let _ = writeln!(
        out,
        "{} connections of at most {}, {} refused; {} I/O/s, {}/s; {} requests at the devices",
        connections.open,
        connections.limit,
        connections.refused,
        text::short(rates.io_per_s),
        text::bytes(rates.bytes_per_s),
        queues.devices,
    );
    access(status, &mut out);
    for table in [cores(status), threads(status), namespaces(status), latencies(status)] {
        let _ = writeln!(out, "\n{table}");
    }
    for namespace in &status.namespaces {
        if namespace.stalled {
            let _ = writeln!(out, "{}", watch::stalled(namespace.id));
        }
        if let Some(health) = &namespace.health {
            let done = health.rebuilt_share.map(|share| format!(" ({} rebuilt)", percent(share)));
            let (id, done) = (namespace.id, done.unwrap_or_default());
            let _ = writeln!(out, "namespace {id} is {}{done}", health.text);
        }
    }
    for path in status.paths.iter().filter(|path| path.state != "optimized") {
        let _ = writeln!(out, "namespace {} by {}: {}", path.namespace, path.listen, path.state);
    }
    for limit in &status.limits {
        let commands = limit.iops.map(|most| format!("{most} I/O commands"));
        let data = limit.bytes_per_second.map(|most| text::bytes(most as f64));
        let lent = limit.lent_bytes_per_second;
        let lent = lent.map(|most| format!("{} (by a budget)", text::bytes(most as f64)));
        let most: Vec<String> = commands.into_iter().chain(data).chain(lent).collect();
        let _ = writeln!(out, "{} may do {} a second", limit.host, most.join(" and "));
    }
    out.push('\n');
    for energy in &status.energy {
        let power = energy.power_w.map_or("unreadable now".to_owned(), |w| format!("{w:.2} W"));
        let profile = match &energy.profile {
            Some(profile) => format!(" by profile {profile}, above the idle machine"),
            None => String::new(),
        };
        let (domain, joules) = (&energy.domain, energy.energy_j);
        let _ = writeln!(out, "{domain}: {power}, {joules:.1} J, {}{profile}", energy.source);
    }
    if !status.drives.is_empty() {
        let _ = writeln!(out, "\n{}", drives(status));
    }
    let unmet = status.shifts.unmet_frequency_requests;
    if unmet > 0 {
        let _ = writeln!(out, "\n{unmet} requests for a frequency, which `ebb run` can set");
    }
    let _ = writeln!(out, "\n{} changes of the placement, the last ones:", status.shifts.total);
    for change in &status.shifts.last {
        let _ = writeln!(out, "{:10.3} s  {}: {}", change.at_s, change.what, change.reason);
    }
    // Names in it may be a stranger's.
    text::printable_lines(&out)
}

/// Who got in, and who did not.
fn access(status: &Status, out: &mut String) {
    const SHOWN: usize = 5;
    let access = &status.access;
    if let Some(warning) = &access.warning {
        let _ = writeln!(out, "{warning}");
    }
    for one in &access.tls {
        let _ = writeln!(out, "{} on {}", words(one.required), one.listen);
    }
    if access.authentication {
        let (succeeded, failed) = (access.succeeded, access.failed);
        let _ = writeln!(out, "{succeeded} authentications succeeded, {failed} failed");
    }
    for refused in access.failures.iter().rev().take(SHOWN).rev() {
        let (at, host, address, why) = (refused.at_s, &refused.host, refused.address, &refused.why);
        let _ = writeln!(out, "{at:10.3} s  {host} at {address}: {why}");
    }
}

/// A table whose columns from `left` on are numbers.
fn table<const N: usize>(header: [&str; N], left: usize, rows: Vec<[String; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header).add_rows(rows);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn cores(status: &Status) -> Table {
    let rows = status.cores.iter().map(|core| {
        [
            format!("{} (cpu {})", core.core, core.cpu),
            core.state.clone(),
            core.wait.clone(),
            percent(core.busy_share),
            percent(core.wasted_share),
            percent(core.asleep_share),
            core.threads.to_string(),
            core.frequency_requested_share.map_or("–".to_owned(), percent),
            text::grouped(core.sleeps.values().sum::<u64>() as f64),
            format!("{:.2}", core.power_modelled_w),
        ]
    });
    let header = [
        "core",
        "state",
        "waits by",
        "busy",
        "wasted",
        "asleep",
        "threads",
        "frequency",
        "sleeps",
        "W (modelled)",
    ];
    table(header, 3, rows.collect())
}

fn threads(status: &Status) -> Table {
    let rows = status.threads.iter().map(|thread| {
        [
            thread.thread.to_string(),
            thread.kind.clone(),
            thread.core.to_string(),
            percent(thread.busy_share),
            text::grouped(thread.commands as f64),
            thread.depth.to_string(),
            thread.moves.to_string(),
            thread.connections.to_string(),
        ]
    });
    let header = ["thread", "carries", "core", "busy", "commands", "depth", "moves", "connections"];
    table(header, 2, rows.collect())
}

fn namespaces(status: &Status) -> Table {
    let rows = status.namespaces.iter().map(|namespace| {
        let work = |kind: &str| namespace.work.get(kind);
        let commands = |kind| text::grouped(work(kind).map_or(0, |done| done.commands) as f64);
        let data = |kind| text::bytes(work(kind).map_or(0, |done| done.bytes) as f64);
        let errors: u64 = namespace.work.values().map(|done| done.errors).sum();
        [
            namespace.id.to_string(),
            text::bytes(namespace.bytes as f64),
            commands("read"),
            data("read"),
            commands("write"),
            data("write"),
            errors.to_string(),
        ]
    });
    let header = ["namespace", "size", "reads", "read", "writes", "written", "errors"];
    table(header, 1, rows.collect())
}

fn drives(status: &Status) -> Table {
    let rows = status.drives.iter().map(|drive| {
        [
            format!("{} (namespace {})", drive.drive, drive.namespace),
            drive.power_state.to_string(),
            drive.power_limit_w.map_or("–".to_owned(), |limit| format!("{limit:.2}")),
            format!("{:.2}", drive.power_modelled_w),
            format!("{:.1}", drive.energy_modelled_j),
        ]
    });
    let header = ["modelled drive", "power state", "limit, W", "W (modelled)", "J (modelled)"];
    table(header, 1, rows.collect())
}

fn latencies(status: &Status) -> Table {
    let rows = status.service.iter().filter(|latency| latency.count > 0).map(|latency| {
        [
            latency.kind.clone(),
            text::grouped(latency.count as f64),
            text::seconds(latency.sum_s / latency.count as f64),
            text::seconds(latency.p50_s),
            text::seconds(latency.p99_s),
            text::seconds(latency.p999_s),
            text::seconds(latency.max_s),
        ]
    });
    let header = ["time in the target", "commands", "mean", "p50", "p99", "p99.9", "max"];
    table(header, 1, rows.collect())
}
