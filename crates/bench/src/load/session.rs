//! The association with the target, and threads at work on its connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ebb_initiator::{Controller, Error, Queue};

use super::job::Clock;
use super::plan::Plan;
use super::worker::{Shared, Worker};
use crate::thread::settle;

/// How often the main thread looks up.
const TICK: Duration = Duration::from_millis(100);
/// Time between two attempts to connect again.
const RETRY: Duration = Duration::from_millis(200);

/// A connection that was lost and made again.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    /// When it was lost, since the start.
    pub at: Duration,
    /// How long it took.
    pub lasted: Duration,
}

/// The association.
pub struct Session {
    plan: Arc<Plan>,
    controller: Option<Controller>,
    /// Connections that no thread has at the moment.
    idle: Vec<Vec<Queue>>,
    /// Connections lost and made again.
    pub outages: Vec<Outage>,
}

impl Session {
    /// With a controller that is connected.
    pub fn new(plan: Arc<Plan>, controller: Controller) -> Self {
        Self { plan, controller: Some(controller), idle: Vec::new(), outages: Vec::new() }
    }

    /// Connections for the threads, in order.
    fn queues(&mut self) -> Result<Vec<Vec<Queue>>, Error> {
        if !self.idle.is_empty() {
            return Ok(std::mem::take(&mut self.idle));
        }
        let controller = self.controller.as_ref().ok_or(Error::Closed)?;
        let threads = self.plan.cores.len();
        let mut all: Vec<Vec<Queue>> = (0..threads).map(|_| Vec::new()).collect();
        let depth = self.plan.outstanding();
        for (thread, range) in shares(self.plan.connections.into(), threads).enumerate() {
            for id in range {
                all[thread].push(controller.queue(id as u16 + 1, depth)?);
            }
        }
        Ok(all)
    }

    /// Lets the threads work until they have done everything, connecting again where allowed.
    /// `tick` is called now and then.
    ///
    /// # Errors
    /// The connection that was lost for good; the threads have what they measured until then.
    pub fn work(
        &mut self,
        workers: &mut [Worker],
        shared: &Shared,
        clock: &Clock,
        tick: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let worked = self.work_on(workers, shared, clock, tick);
        let queues = workers.iter_mut().map(Worker::detach);
        // After an error nothing is left that could be used again.
        self.idle = queues.filter(|_| worked.is_ok()).collect();
        worked
    }

    fn work_on(
        &mut self,
        workers: &mut [Worker],
        shared: &Shared,
        clock: &Clock,
        tick: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let mut error = self.attach(workers).err();
        loop {
            if let Some(lost) = error.take() {
                self.reconnect(workers, shared, clock, lost, tick)?;
            }
            shared.broken.store(false, Ordering::Release);
            let worked = self.run(workers, shared, tick);
            let unfinished = workers.iter().any(Worker::is_unfinished);
            match worked {
                Ok(()) => return Ok(()),
                // All was done when a connection that nobody needs any more was lost; whoever needs
                // one next finds out.
                Err(_) if !unfinished => return Ok(()),
                Err(lost) => error = Some(lost),
            }
        }
    }

    fn attach(&mut self, workers: &mut [Worker]) -> Result<(), Error> {
        for (worker, queues) in workers.iter_mut().zip(self.queues()?) {
            worker.attach(queues);
        }
        Ok(())
    }

    /// One thread per worker, and this one to keep the association alive.
    fn run(
        &mut self,
        workers: &mut [Worker],
        shared: &Shared,
        tick: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let main = std::thread::current();
        let cores = self.plan.cores.clone();
        let interval = self.plan.target.keep_alive / 3;
        let mut kept = Ok(());
        let controller = &mut self.controller;
        let mut first = Ok(());
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (worker, core) in workers.iter_mut().zip(&cores) {
                let main = main.clone();
                threads.push(scope.spawn(move || {
                    settle(*core);
                    let worked = worker.run();
                    main.unpark();
                    worked
                }));
            }
            let mut alive = Instant::now();
            while threads.iter().any(|thread| !thread.is_finished()) {
                std::thread::park_timeout(TICK);
                tick();
                if alive.elapsed() >= interval && kept.is_ok() {
                    alive = Instant::now();
                    kept = controller.as_mut().map_or(Ok(()), Controller::keep_alive);
                    if kept.is_err() {
                        shared.broken.store(true, Ordering::Release);
                    }
                }
            }
            for thread in threads {
                match thread.join() {
                    Ok(worked) => first = std::mem::replace(&mut first, Ok(())).and(worked),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        first.and(kept)
    }

    /// Tries to make a new association until the time allowed is over.
    fn reconnect(
        &mut self,
        workers: &mut [Worker],
        shared: &Shared,
        clock: &Clock,
        lost: Error,
        tick: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        drop(self.controller.take());
        for worker in workers.iter_mut() {
            drop(worker.detach());
        }
        let Some(limit) = self.plan.reconnect.filter(|_| lost.is_connection()) else {
            return Err(lost);
        };
        let since = Instant::now();
        loop {
            std::thread::sleep(RETRY);
            tick();
            let made = self.connect().and_then(|()| self.attach(workers));
            let Err(error) = made else {
                let at = since.saturating_duration_since(clock.start);
                self.outages.push(Outage { at, lasted: since.elapsed() });
                return Ok(());
            };
            if since.elapsed() >= limit || shared.stop.load(Ordering::Relaxed) {
                return Err(error);
            }
        }
    }

    fn connect(&mut self) -> Result<(), Error> {
        let mut controller = Controller::connect(&self.plan.target)?;
        for space in &self.plan.spaces {
            let now = controller.namespace(space.namespace.id)?;
            if now != space.namespace {
                let (id, was) = (now.id, space.namespace);
                return Err(Error::Unsupported(format!(
                    "namespace {id} came back with {} blocks of {} bytes instead of {} of {}",
                    now.blocks, now.block_size, was.blocks, was.block_size
                )));
            }
        }
        controller.set_queues(self.plan.connections)?;
        self.controller = Some(controller);
        Ok(())
    }

    /// Ends everything in order, as far as the target takes part.
    pub fn close(self) {
        let Some(controller) = self.controller else { return };
        for mut queue in self.idle.into_iter().flatten() {
            if controller.disconnect_queue(&mut queue).is_err() {
                return;
            }
        }
        let _ = controller.shut_down();
    }
}

/// Connections of each thread: as equal as can be.
pub fn shares(connections: usize, threads: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let part = move |thread: usize| connections * thread / threads;
    (0..threads).map(move |thread| part(thread)..part(thread + 1))
}
