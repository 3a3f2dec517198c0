//! A status as metrics. docs/serve.md lists every one.

use std::fmt;

use ebb_policy::units::Nanos;
use hyper::body::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::status::{
    Core, Done, Latency, Limit, ModelledDrive, Namespace, Observer, Status, Thread,
};
use crate::metrics::text::{Family, Histogram, Writer, family, labels};
use crate::metrics::{Format, Pages};

#[derive(Debug)]
struct Scrape(Status);

/// What a row of a thread shows.
type Of<T> = fn(&Thread) -> T;

impl Pages for Observer {
    fn metrics(&self, format: Format) -> Result<Bytes, fmt::Error> {
        Ok(format.encode(Scrape(Self::status(self)))?.into())
    }

    fn status(&self) -> serde_json::Result<Bytes> {
        serde_json::to_vec(&Self::status(self)).map(Bytes::from)
    }
}

fn histogram(row: &Latency) -> Histogram {
    let end = |end: Option<Nanos>| end.map_or(f64::MAX, Nanos::seconds);
    Histogram {
        labels: labels([("op", row.kind.clone())]),
        sum: row.sum_s,
        count: row.count,
        buckets: row.octaves.iter().map(|(at, count)| (end(*at), *count)).collect(),
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer::new(encoder);
        self.server(&mut writer)?;
        self.cores(&mut writer)?;
        self.threads(&mut writer)?;
        self.namespaces(&mut writer)?;
        self.changed(&mut writer)?;
        self.energy(&mut writer)
    }
}

impl Scrape {
    fn server(&self, out: &mut Writer<'_>) -> fmt::Result {
        let Status { server, connections, access, queues, shifts, service, .. } = &self.0;
        let none = || labels([]);
        let about = labels([
            ("version", server.version.clone()),
            ("nqn", server.nqn.clone()),
            ("scheduler", server.scheduler.clone()),
            ("doze_by", server.doze_by.clone()),
        ]);
        let info = family("server", "What is running: always 1, see the labels.");
        out.gauges(&info, vec![(about, 1.0)])?;
        let uptime = family("uptime", "Time since the start.").in_unit(Unit::Seconds);
        out.gauges(&uptime, vec![(none(), server.uptime_s)])?;
        let open = family("connections", "Connections now.");
        out.gauges(&open, vec![(none(), connections.open as f64)])?;
        let limit = family("connections_limit", "Connections there may be.");
        out.gauges(&limit, vec![(none(), connections.limit.into())])?;
        let accepted = family("connections_accepted", "Connections ever accepted.");
        out.counts(&accepted, vec![(none(), connections.accepted)])?;
        let refused = family("connections_refused", "Connections closed for being too many.");
        out.counts(&refused, vec![(none(), connections.refused)])?;
        let ended = family("authentications", "Authentications of hosts, by their result.");
        let result = |result: &str| labels([("result", result.to_owned())]);
        let rows = [("succeeded", access.succeeded), ("failed", access.failed)];
        let rows = rows.map(|(name, count)| (result(name), count));
        out.counts(&ended, rows.into())?;
        let devices = family("device_queue_depth", "Requests the devices have not completed.");
        out.gauges(&devices, vec![(none(), queues.devices as f64)])?;
        let count = family("placement_changes", "Moves of threads and changes of how cores wait.");
        out.counts(&count, vec![(none(), shifts.total)])?;
        let unmet = family(
            "frequency_requests_unmet",
            "Frequencies that the scheduler requested; the server itself sets none.",
        );
        out.counts(&unmet, vec![(none(), shifts.unmet_frequency_requests)])?;
        let service_time = family(
            "service_time",
            "Time of I/O commands in the target, from the poll that took them up to their answer.",
        );
        let rows: Vec<_> = service.iter().map(histogram).collect();
        out.histograms(&service_time.in_unit(Unit::Seconds), &rows)
    }

    fn cores(&self, out: &mut Writer<'_>) -> fmt::Result {
        let cores = &self.0.cores;
        let label = |core: &Core| ("cpu", core.cpu.to_string());
        let state = |core: &Core, state: &str| labels([label(core), ("state", state.to_owned())]);
        let rows = cores.iter().flat_map(|core| {
            let asleep = core.asleep_s.iter().map(|(way, time)| (state(core, way), *time));
            let awake =
                [(state(core, "busy"), core.busy_s), (state(core, "wasted"), core.wasted_s)];
            awake.into_iter().chain(asleep)
        });
        let time = family(
            "core_time",
            "Time of each core: polls that found work (busy) or none (wasted), and sleep by kind.",
        );
        out.counts(&time.in_unit(Unit::Seconds), rows.collect())?;
        let rows = cores
            .iter()
            .flat_map(|core| core.sleeps.iter().map(|(way, times)| (state(core, way), *times)));
        let sleeps = family("core_sleeps", "Times each core fell asleep, by kind.");
        out.counts(&sleeps, rows.collect())?;
        let each = |value: fn(&Core) -> f64| {
            cores.iter().map(|core| (labels([label(core)]), value(core))).collect()
        };
        let threads = family("core_threads", "Lightweight threads on each core.");
        out.gauges(&threads, each(|core| core.threads.into()))?;
        let share = family("core_frequency_requested", "Of the highest, by the scheduler.");
        let rows = cores
            .iter()
            .filter_map(|core| Some((labels([label(core)]), core.frequency_requested_share?)));
        out.gauges(&share.in_unit(Unit::Other("ratio".to_owned())), rows.collect())?;
        let unwatched = family(
            "core_unwatched_files",
            "Files the kernel would not watch, which keep a core polling.",
        );
        let rows = cores.iter().map(|core| (labels([label(core)]), core.unwatched_files));
        out.counts(&unwatched, rows.collect())?;
        let energy = family(
            "core_energy",
            "MODELLED energy of each core above the idle machine, from its states and a profile.",
        );
        let source = |core: &Core| labels([label(core), ("source", "modelled".to_owned())]);
        let rows = cores.iter().map(|core| (source(core), core.energy_modelled_j));
        out.counts(&energy.in_unit(Unit::Joules), rows.collect())
    }

    fn threads(&self, out: &mut Writer<'_>) -> fmt::Result {
        let threads = &self.0.threads;
        let label = |thread: u16| labels([("thread", thread.to_string())]);
        let busy = family("thread_busy", "Time of each thread's polls that found work.");
        let rows = threads.iter().map(|thread| (label(thread.thread), thread.busy_s));
        out.counts(&busy.in_unit(Unit::Seconds), rows.collect())?;
        let counters: [(Family, Of<u64>); 2] = [
            (family("thread_commands", "Commands each thread answered."), |thread| thread.commands),
            (family("thread_moves", "Times each thread moved to another core."), |t| t.moves),
        ];
        for (family, value) in counters {
            let rows = threads.iter().map(|thread| (label(thread.thread), value(thread)));
            out.counts(&family, rows.collect())?;
        }
        let gauges: [(Family, Of<f64>); 3] = [
            (family("thread_queue_depth", "Commands that wait to be taken up."), |thread| {
                thread.depth.into()
            }),
            (family("thread_core", "The core a thread is on, from 0, the main one."), |thread| {
                thread.core.into()
            }),
            (family("thread_connections", "Connections of each thread."), |thread| {
                thread.connections as f64
            }),
        ];
        for (family, value) in gauges {
            let rows = threads.iter().map(|thread| (label(thread.thread), value(thread)));
            out.gauges(&family, rows.collect())?;
        }
        Ok(())
    }

    fn namespaces(&self, out: &mut Writer<'_>) -> fmt::Result {
        let rows = |value: fn(&Done) -> u64| {
            let rows = self.0.namespaces.iter().flat_map(move |namespace| {
                let id = namespace.id.to_string();
                namespace.work.iter().map(move |(op, done)| {
                    (labels([("namespace", id.clone()), ("op", op.clone())]), value(done))
                })
            });
            rows.collect()
        };
        let commands = family("namespace_commands", "I/O commands answered.");
        out.counts(&commands, rows(|done| done.commands))?;
        let data = family("namespace_data", "Data of I/O commands that succeeded.");
        out.counts(&data.in_unit(Unit::Bytes), rows(|done| done.bytes))?;
        let errors = family("namespace_errors", "I/O commands that failed.");
        out.counts(&errors, rows(|done| done.errors))?;
        let of = |namespace: &'_ Namespace| labels([("namespace", namespace.id.to_string())]);
        let stalled = family(
            "namespace_stalled",
            "1 while a namespace's device has requests and completes none.",
        );
        let rows = self.0.namespaces.iter();
        let rows = rows.map(|one| (of(one), f64::from(u8::from(one.stalled))));
        out.gauges(&stalled, rows.collect())?;
        let arrays = || {
            let all = self.0.namespaces.iter();
            all.filter_map(move |one| one.health.as_ref().map(|health| (of(one), health)))
        };
        let degraded = family("namespace_degraded", "1 while an array does without a member.");
        let rows = arrays().map(|(of, health)| (of, f64::from(u8::from(health.degraded))));
        out.gauges(&degraded, rows.collect())?;
        let dead = family("namespace_read_only", "1 while an array takes no writes.");
        let rows = arrays().map(|(of, health)| (of, f64::from(u8::from(health.read_only))));
        out.gauges(&dead, rows.collect())?;
        let rebuilt = family("namespace_rebuilt", "How much of a member is rebuilt.");
        let rows = arrays().filter_map(|(of, health)| Some((of, health.rebuilt_share?)));
        out.gauges(&rebuilt.in_unit(Unit::Other("ratio".to_owned())), rows.collect())
    }

    /// What `ebb ctl` sets of paths and hosts.
    fn changed(&self, out: &mut Writer<'_>) -> fmt::Result {
        let state = family("path_state", "1 for the ANA state that a path to a namespace has.");
        let rows = self.0.paths.iter().map(|path| {
            let (listen, namespace) = (path.listen.to_string(), path.namespace.to_string());
            let state = ("state", path.state.clone());
            (labels([("listen", listen), ("namespace", namespace), state]), 1.0)
        });
        out.gauges(&state, rows.collect())?;
        let rows = |value: fn(&Limit) -> Option<u64>| {
            let rows = self.0.limits.iter();
            let row =
                |one: &Limit| Some((labels([("host", one.host.clone())]), value(one)? as f64));
            rows.filter_map(row).collect()
        };
        let commands = family("host_commands_limit", "I/O commands a second that a host may do.");
        out.gauges(&commands, rows(|limit| limit.iops))?;
        let data = family("host_data_limit", "Data a second that a host may move.");
        out.gauges(&data.in_unit(Unit::Bytes), rows(|limit| limit.bytes_per_second))?;
        let lent = family("host_data_lent", "Data a second that a budget allows a host for now.");
        out.gauges(&lent.in_unit(Unit::Bytes), rows(|limit| limit.lent_bytes_per_second))
    }

    fn energy(&self, out: &mut Writer<'_>) -> fmt::Result {
        let energy = family(
            "energy",
            "Energy since the start, by RAPL domain (measured), or of our cores (MODELLED).",
        );
        let rows = self.0.energy.iter().map(|energy| {
            let (domain, source) = (energy.domain.clone(), energy.source.clone());
            (labels([("domain", domain), ("source", source)]), energy.energy_j)
        });
        out.counts(&energy.in_unit(Unit::Joules), rows.collect())?;
        let of = |drive: &ModelledDrive| {
            labels([
                ("namespace", drive.namespace.to_string()),
                ("drive", drive.drive.clone()),
                ("source", "modelled".to_owned()),
            ])
        };
        let drives = &self.0.drives;
        let state = family("drive_power_state", "Power state of each MODELLED drive.");
        let rows = drives.iter().map(|drive| (of(drive), f64::from(drive.power_state)));
        out.gauges(&state, rows.collect())?;
        let limit =
            family("drive_power_limit", "Power limit set of MODELLED drives that have one.");
        let rows = drives.iter().filter_map(|drive| Some((of(drive), drive.power_limit_w?)));
        out.gauges(&limit.in_unit(Unit::Other("watts".to_owned())), rows.collect())?;
        let energy = family("drive_energy", "MODELLED energy of each modelled drive.");
        let rows = drives.iter().map(|drive| (of(drive), drive.energy_modelled_j));
        out.counts(&energy.in_unit(Unit::Joules), rows.collect())
    }
}
