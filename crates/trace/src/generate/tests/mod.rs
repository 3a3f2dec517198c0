//! What the generators promise, through the interface that the twin uses.

mod batch;
mod closed;
mod files;
mod open;
mod parts;
mod promises;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ebb_policy::units::Nanos;

use super::{BuildContext, WorkloadSpec, by_name};
use crate::request::{Closed, Op, Request, Source, Workload};

/// Sixteen drives of 16 TB, as PACMAN's server has them.
const SERVER: BuildContext =
    BuildContext { devices: 16, capacity_bytes: 15_362_991_415_296, seed: 7 };

fn closed(spec: &WorkloadSpec, context: &BuildContext) -> Box<dyn Closed> {
    match spec.build(context) {
        Ok(Workload::Closed(clients)) => clients,
        Ok(Workload::Open(_)) => panic!("{} is open", spec.name),
        Err(error) => panic!("{error}"),
    }
}

fn open(spec: &WorkloadSpec, context: &BuildContext) -> Box<dyn Source> {
    match spec.build(context) {
        Ok(Workload::Open(source)) => source,
        Ok(Workload::Closed(_)) => panic!("{} is closed", spec.name),
        Err(error) => panic!("{error}"),
    }
}

/// A server that takes a fixed time per request: requests with the slots that sent them, in the
/// order of sending and when they were sent, until `most` or the end.
fn run(clients: &mut dyn Closed, latency: Nanos, most: usize) -> Vec<(u32, Request)> {
    run_with(clients, most, |_| latency.0)
}

/// A server with a latency of its own for each request.
fn run_with(
    clients: &mut dyn Closed,
    most: usize,
    mut latency: impl FnMut(&Request) -> u64,
) -> Vec<(u32, Request)> {
    let mut free: BinaryHeap<_> = (0..clients.slots()).map(|slot| Reverse((0, slot))).collect();
    let mut sent = Vec::new();
    while let Some(Reverse((now, slot))) = free.pop() {
        if sent.len() >= most {
            break;
        }
        let Some(request) = clients.next(slot, Nanos(now)) else { continue };
        let at = request.at.0.max(now);
        let answered = at + latency(&request);
        sent.push((slot, Request { at: Nanos(at), ..request }));
        free.push(Reverse((answered, slot)));
    }
    sent
}

fn take(source: &mut dyn Source, most: usize) -> Vec<Request> {
    let mut requests = Vec::new();
    while requests.len() < most {
        let before = requests.len();
        source.fill(&mut requests).unwrap();
        if requests.len() == before {
            break;
        }
    }
    requests
}

fn share_of_reads<'a>(requests: impl IntoIterator<Item = &'a Request>) -> f64 {
    let (mut reads, mut all) = (0, 0);
    for request in requests {
        reads += u32::from(request.op == Op::Read);
        all += 1;
    }
    f64::from(reads) / f64::from(all)
}

fn builtin(name: &str) -> WorkloadSpec {
    by_name(name).unwrap()
}
