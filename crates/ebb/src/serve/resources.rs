//! What the system gives a server: looked at before it listens. What can be raised is raised; what
//! does not fit is refused with the option or limit to change, not met later.

use std::fs;

use anyhow::{Context, Result};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use ebb_cli::{text, usage};
use ebb_target::device::{self, Device};
use ebb_target::transport::Places;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::limits;
use crate::metrics::http;
use crate::rpc::server;

/// Descriptors for what comes and goes: counters that are read, a file that is looked up.
const SPARE: u64 = 16;
/// Descriptors of a listener and of a reactor.
const LISTENER: u64 = 2;
const REACTOR: u64 = 2;
/// Address space of a thread: its stack and its heap.
const THREAD: u64 = 10 << 20;
/// Threads beside the reactors and those of control: the main one, metrics, health, authentication.
const THREADS: u64 = 4;

/// Sizes that are known before anything is opened.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Bytes of memory that the namespaces take.
    pub namespaces: u64,
    /// Bytes that hosts can make it hold.
    pub hosts: u64,
    pub reactors: u64,
    pub listeners: u64,
    pub has_metrics: bool,
    pub has_control: bool,
}

/// One row of the table: what is needed of what there is.
#[derive(Debug)]
struct Row {
    what: &'static str,
    needed: String,
    limit: String,
    detail: String,
}

/// What was looked at.
#[derive(Debug, Default)]
pub struct Audit {
    rows: Vec<Row>,
    promised: Promised,
}

/// What is kept for hosts whatever namespaces come.
#[derive(Debug, Default, Clone, Copy)]
pub struct Promised {
    /// Descriptors for connections of all kinds.
    files: u64,
    /// Memory, in bytes, that namespaces may take together: of what there was at the start, and of
    /// the address space. `None` where the system does not say.
    memory: Option<u64>,
}

impl Promised {
    /// Whether hosts keep their memory where namespaces take `needed` bytes together.
    ///
    /// # Errors
    /// Says how much there is, and what to change.
    pub fn leave_memory(self, needed: u64) -> Result<()> {
        let Some(most) = self.memory.filter(|most| needed > *most) else { return Ok(()) };
        let [needed, most] = [needed, most].map(bytes);
        Err(usage(format!(
            "all namespaces together would take {needed} of memory, and at the start {most} was \
             left beside what hosts may use; ask for a smaller one or add ',lazy', or restart with \
             more memory or address space, or with a lower --max-connections, --queue-depth, \
             --threads, --buffers or --max-transfer"
        )))
    }

    /// Whether they have their descriptors once so many groups have opened `device`.
    ///
    /// # Errors
    /// Says how many there must be, and what to change.
    pub fn leave_files(self, device: &dyn Device, groups: usize) -> Result<()> {
        let before = own_files()?;
        let channel = device.open().context("cannot open the device")?;
        let of_group = own_files()?.saturating_sub(before);
        drop(channel);
        let own = before + of_group * groups as u64;
        let needed = own + self.files;
        raise(Resource::Nofile, needed);
        match getrlimit(Resource::Nofile).current {
            Some(limit) if limit < needed => Err(usage(format!(
                "{needed} file descriptors would be needed, {own} of them for namespaces and \
                 threads, and the limit is {limit}; raise it (ulimit -n {needed}, \
                 LimitNOFILE={needed} of the unit) or lower --max-connections, and restart"
            ))),
            _ => Ok(()),
        }
    }
}

/// Descriptors that are open and no sockets.
fn own_files() -> Result<u64> {
    let entries = fs::read_dir("/proc/self/fd").context("cannot count file descriptors")?;
    // One that is closed meanwhile has no name.
    let names = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let own = names.filter(|name| !name.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
    Ok(own.count() as u64 - 1) // One is the folder's.
}

impl Audit {
    /// Memory, address space and threads for `plan`.
    ///
    /// # Errors
    /// Says what does not fit, and what to change.
    pub fn begin(plan: &Plan) -> Result<Self> {
        raise(Resource::Nofile, u64::MAX);
        raise(Resource::Memlock, u64::MAX);
        let mut audit = Self::default();
        let room = limits::fit(plan.namespaces, plan.hosts)?;
        let memory = plan.namespaces.saturating_add(plan.hosts);
        let [hosts, namespaces] = [plan.hosts, plan.namespaces].map(bytes);
        let detail = format!("{hosts} for all hosts together, {namespaces} for namespaces");
        audit.row("memory", bytes(memory), room.map(bytes), detail);
        audit.promised.memory = room.map(|room| room.saturating_sub(plan.hosts));
        let of_control = if plan.has_control { server::THREADS } else { 0 };
        let threads = plan.reactors + THREADS + of_control;
        audit.address_space(plan, threads)?;
        audit.threads(threads)?;
        let locked = getrlimit(Resource::Memlock).current.map(bytes);
        let detail = "for buffers known to the kernel; with less it looks them up each time";
        audit.row("locked memory", String::from("-"), locked, detail.to_owned());
        Ok(audit)
    }

    fn address_space(&mut self, plan: &Plan, threads: u64) -> Result<()> {
        let Some(limit) = getrlimit(Resource::As).current else { return Ok(()) };
        let used = used_address_space().unwrap_or(0) + threads * THREAD;
        let beside = plan.hosts.saturating_add(used);
        let needed = beside.saturating_add(plan.namespaces);
        let memory = self.promised.memory.unwrap_or(u64::MAX).min(limit.saturating_sub(beside));
        self.promised.memory = Some(memory);
        let [needs, has] = [needed, limit].map(bytes);
        if needed > limit {
            return Err(usage(format!(
                "{needs} of address space are needed and the limit is {has}; raise it (ulimit -v, \
                 LimitAS= of the unit), or lower --max-connections, --queue-depth, --threads, \
                 --buffers or --max-transfer"
            )));
        }
        self.row("address space", needs, Some(has), String::new());
        Ok(())
    }

    fn threads(&mut self, needed: u64) -> Result<()> {
        let left = device::threads();
        if let Some(left) = left.filter(|left| *left < needed) {
            return Err(usage(format!(
                "{needed} threads are needed and the control group leaves {left}; raise pids.max \
                 (TasksMax= of the unit) or give fewer --cores"
            )));
        }
        self.row("threads", needed.to_string(), left.map(|left| left.to_string()), String::new());
        Ok(())
    }

    /// Descriptors, once the namespaces are open and groups will open `of_groups` more: how many
    /// connections there may be. Fewer than `wanted` where the limit is lower and nobody `asked`
    /// for a number.
    ///
    /// # Errors
    /// Says what does not fit, and what to change.
    pub fn connections(
        &mut self,
        plan: &Plan,
        of_groups: u64,
        wanted: u32,
        asked: bool,
    ) -> Result<u32> {
        let of_metrics = if plan.has_metrics { http::DESCRIPTORS } else { 0 };
        let of_control = if plan.has_control { server::DESCRIPTORS } else { 0 };
        let others = of_control + plan.listeners * LISTENER + of_metrics + SPARE;
        let own = open_files()? + of_groups + plan.reactors * REACTOR + others;
        let needed = own + Places::most(wanted);
        raise(Resource::Nofile, needed);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let left = limit.saturating_sub(own + Places::most(0));
        let fits = u32::try_from(left).unwrap_or(u32::MAX).min(wanted);
        let remedy = format!("raise it (ulimit -n {needed}, LimitNOFILE={needed} of the unit)");
        if fits == 0 || asked && fits < wanted {
            let fewer = match fits {
                0 => String::new(),
                fits => format!(", or give at most --max-connections {fits}"),
            };
            return Err(usage(format!(
                "{wanted} connections need {needed} file descriptors, of which {own} are the \
                 server's own, and the limit is {limit}; {remedy}{fewer}"
            )));
        }
        let mut detail = format!("{own} of its own, {} for connections", Places::most(fits));
        if fits < wanted {
            detail += &format!("; not {wanted} as by default: {remedy}");
        }
        self.promised.files = others + Places::most(fits);
        let needs = own + Places::most(fits);
        self.row("file descriptors", needs.to_string(), Some(limit.to_string()), detail);
        Ok(fits)
    }

    /// What later namespaces must leave.
    pub fn promised(&self) -> Promised {
        self.promised
    }

    fn row(&mut self, what: &'static str, needed: String, limit: Option<String>, detail: String) {
        let limit = limit.unwrap_or_else(|| "no limit".to_owned());
        self.rows.push(Row { what, needed, limit, detail });
    }

    /// All of it, for people.
    pub fn table(&self) -> Table {
        let rows = self
            .rows
            .iter()
            .map(|row| [row.what, row.needed.as_str(), row.limit.as_str(), row.detail.as_str()]);
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["resource", "needed at most", "there is", ""]).add_rows(rows);
        for column in table.column_iter_mut().skip(1).take(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

fn bytes(bytes: u64) -> String {
    text::bytes(bytes as f64)
}

/// Raises a soft limit to `wanted`, or as far as the system lets.
fn raise(resource: Resource, wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(resource);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    // Above the hard limit only the privileged may go; then the hard limit has to do.
    let whole = Rlimit { current: Some(wanted), maximum: maximum.map(|most| most.max(wanted)) };
    if wanted == u64::MAX || setrlimit(resource, whole).is_err() {
        let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
    }
}

/// Descriptors that are open.
///
/// # Errors
/// When the system does not say.
pub fn open_files() -> Result<u64> {
    let entries = fs::read_dir("/proc/self/fd").context("cannot count file descriptors")?;
    Ok(entries.count() as u64 - 1) // One is the folder's.
}

/// Bytes of address space in use: `VmSize` of proc_pid_status(5).
fn used_address_space() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
