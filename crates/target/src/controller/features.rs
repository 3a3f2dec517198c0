//! Get and Set Features (Base 5.15, 5.27; NVM 4.1.2).

use std::sync::atomic::Ordering;

use ebb_nvme::command::admin;
use ebb_nvme::feature::{self, Select};
use ebb_nvme::log::warning;
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;

use super::answer::Answer;
use super::association::Kind;
use super::events::{DISCOVERY_CHANGED, IO_EVENTS};
use super::power::{TRANSITIONS, Transitions};
use super::{AdminQueue, Condition, Direction};

/// Features there are, of either kind of controller.
pub(super) const ALL: [u8; 13] = [
    feature::ARBITRATION,
    feature::POWER_MANAGEMENT,
    feature::TEMPERATURE_THRESHOLD,
    feature::ERROR_RECOVERY,
    feature::VOLATILE_WRITE_CACHE,
    feature::NUMBER_OF_QUEUES,
    feature::WRITE_ATOMICITY,
    feature::ASYNC_EVENTS,
    feature::POWER_TRANSITIONS,
    feature::KEEP_ALIVE_TIMER,
    feature::HOST_BEHAVIOR,
    feature::POWER_LIMIT,
    feature::HOST_IDENTIFIER,
];

/// Bytes of the host behavior support data structure (Base 5.27.1.18).
const HOST_BEHAVIOR: usize = 512;

/// Whether what the host sends with an admin command matters.
#[must_use]
pub fn takes_data(sqe: &Sqe) -> bool {
    let takes = [feature::HOST_BEHAVIOR, feature::POWER_TRANSITIONS];
    sqe.opcode == admin::SET_FEATURES && takes.contains(&(sqe.cdw(10) as u8))
}

/// Whether a host can set it.
pub(super) fn is_changeable(id: u8) -> bool {
    !matches!(id, feature::ARBITRATION | feature::ERROR_RECOVERY | feature::HOST_IDENTIFIER)
}

/// Values that hosts set and only this controller keeps.
#[derive(Debug)]
pub(super) struct Features {
    /// AEC: events asked for.
    pub events: u32,
    /// Composite temperature thresholds in kelvins.
    over: u16,
    under: u16,
    /// DN of write atomicity. Either way a block is what is atomic (AWUN, AWUPF).
    atomicity: u32,
    /// WH: the workload hint of power management.
    workload: u32,
}

impl Default for Features {
    fn default() -> Self {
        Self { events: 0, over: u16::MAX, under: 0, atomicity: 0, workload: 0 }
    }
}

impl AdminQueue {
    /// Whether this controller has a feature (Base Figures 24 and 30).
    pub(super) fn has_feature(&self, id: u8) -> bool {
        match (self.association.kind, id) {
            (Kind::Io, feature::POWER_LIMIT) => self.subsystem.config.limiter().is_some(),
            (Kind::Io, feature::POWER_TRANSITIONS) => self.subsystem.config.has_idle_states(),
            (Kind::Io, id) => ALL.contains(&id),
            (Kind::Discovery, id) => {
                matches!(id, feature::ASYNC_EVENTS | feature::KEEP_ALIVE_TIMER)
            }
        }
    }

    /// How the subsystem is, judged by this controller's thresholds too (Base 5.27.1.3).
    pub(super) fn condition(&self) -> Condition {
        let mut condition = self.subsystem.config.condition(&self.subsystem.spaces.all());
        let is_beyond = |kelvins| kelvins >= self.features.over || kelvins <= self.features.under;
        if condition.temperature.is_some_and(is_beyond) {
            condition.warning |= warning::TEMPERATURE;
        }
        condition
    }

    /// Get Features.
    pub(super) fn get_feature(&self, sqe: &Sqe, direction: Direction) -> Result<Answer, Status> {
        let id = sqe.cdw(10) as u8;
        let select = Select::of(sqe.cdw(10)).ok_or(Status::INVALID_FIELD)?;
        if !self.has_feature(id) {
            return Err(Status::INVALID_FIELD);
        }
        if id == feature::HOST_IDENTIFIER && matches!(select, Select::Current) {
            return self.host_identifier(sqe, direction);
        }
        if id == feature::HOST_BEHAVIOR && !matches!(select, Select::Capabilities) {
            return self.host_behavior(select, direction);
        }
        if id == feature::POWER_TRANSITIONS && !matches!(select, Select::Capabilities) {
            return self.power_transitions(select, direction);
        }
        let value = match select {
            Select::Current => self.current(id, sqe.cdw(11))?,
            // Nothing is saveable, and then Saved is the default (Base 5.15, SEL).
            Select::Default | Select::Saved => self.default_value(id, sqe.cdw(11))?,
            Select::Capabilities => u32::from(is_changeable(id)) << 2,
        };
        Ok(Answer::result(value.into()))
    }

    fn current(&self, id: u8, cdw11: u32) -> Result<u32, Status> {
        let features = &self.features;
        Ok(match id {
            feature::POWER_MANAGEMENT => {
                let power = self.subsystem.config.power.as_ref();
                u32::from(power.map_or(0, |power| power.get())) & 0x1f | features.workload
            }
            feature::TEMPERATURE_THRESHOLD => match threshold(cdw11)? {
                Threshold::Over => features.over.into(),
                Threshold::Under => features.under.into(),
            },
            feature::VOLATILE_WRITE_CACHE => self.association.write_cache().into(),
            feature::NUMBER_OF_QUEUES => queues(self.association.granted.load(Ordering::Acquire)),
            feature::WRITE_ATOMICITY => features.atomicity,
            feature::ASYNC_EVENTS => features.events,
            feature::KEEP_ALIVE_TIMER => self.keep_alive(),
            feature::POWER_LIMIT => self.power_limit(),
            id => self.default_value(id, cdw11)?,
        })
    }

    fn default_value(&self, id: u8, cdw11: u32) -> Result<u32, Status> {
        Ok(match id {
            feature::ARBITRATION => 7, // No limit on commands taken from a queue at once.
            feature::TEMPERATURE_THRESHOLD => match threshold(cdw11)? {
                Threshold::Over => u16::MAX.into(),
                Threshold::Under => 0,
            },
            feature::VOLATILE_WRITE_CACHE => 1,
            feature::NUMBER_OF_QUEUES => queues(self.subsystem.config.max_io_queues),
            _ => 0,
        })
    }

    /// Only in its 128-bit form, over fabrics (Base 5.27.1.25).
    fn host_identifier(&self, sqe: &Sqe, direction: Direction) -> Result<Answer, Status> {
        if sqe.cdw(11) & 1 == 0 {
            return Err(Status::INVALID_FIELD);
        }
        let fits = direction.to_host() >= 16;
        let answer = Answer::data(self.association.host.id.to_vec());
        fits.then_some(answer).ok_or(Status::DATA_SGL_LENGTH_INVALID)
    }

    /// ACRE alone.
    fn host_behavior(&self, select: Select, direction: Direction) -> Result<Answer, Status> {
        let is_set = self.association.retries_later.load(Ordering::Relaxed);
        let mut data = vec![0; HOST_BEHAVIOR];
        data[0] = u8::from(select == Select::Current && is_set);
        let fits = direction.to_host() as usize >= data.len();
        fits.then_some(Answer::data(data)).ok_or(Status::DATA_SGL_LENGTH_INVALID)
    }

    fn power_transitions(&self, select: Select, direction: Direction) -> Result<Answer, Status> {
        let Transitions { is_on, table } = match select {
            Select::Current => self.transitions(),
            _ => Transitions::default(),
        };
        let answer = Answer { result: is_on.into(), ..Answer::data(table.to_vec()) };
        let fits = direction.to_host() as usize >= TRANSITIONS;
        fits.then_some(answer).ok_or(Status::DATA_SGL_LENGTH_INVALID)
    }

    fn set_host_behavior(&self, data: &[u8]) -> Result<(), Status> {
        let data = data.first_chunk::<HOST_BEHAVIOR>().ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
        if data[0] > 1 {
            return Err(Status::INVALID_FIELD);
        }
        self.association.retries_later.store(data[0] == 1, Ordering::Relaxed);
        Ok(())
    }

    /// Set Features with the host's `data`: dword 0 of its answer.
    pub(super) fn set_feature(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        now: Nanos,
    ) -> Result<u64, Status> {
        let (id, value) = (sqe.cdw(10) as u8, sqe.cdw(11));
        if !self.has_feature(id) {
            return Err(Status::INVALID_FIELD);
        }
        if sqe.cdw(10) >> 31 != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let done = Ok(0);
        match id {
            // PS and WH.
            feature::POWER_MANAGEMENT => {
                self.set_power_state((value & 0x1f) as u8)?;
                self.features.workload = value & 0xe0;
                done
            }
            feature::POWER_TRANSITIONS => self.set_transitions(value & 1 != 0, data).and(done),
            feature::TEMPERATURE_THRESHOLD => {
                match threshold(value)? {
                    Threshold::Over => self.features.over = value as u16,
                    Threshold::Under => self.features.under = value as u16,
                }
                done
            }
            feature::VOLATILE_WRITE_CACHE => {
                self.association.set_write_cache(value & 1 != 0);
                done
            }
            feature::NUMBER_OF_QUEUES => self.set_queues(value).map(u64::from),
            feature::WRITE_ATOMICITY => {
                self.features.atomicity = value & 1;
                done
            }
            feature::ASYNC_EVENTS => {
                let known = if self.is_io() { IO_EVENTS } else { DISCOVERY_CHANGED };
                if value & !known != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                self.features.events = value;
                done
            }
            feature::KEEP_ALIVE_TIMER => {
                self.set_keep_alive(value, now);
                done
            }
            feature::HOST_BEHAVIOR => self.set_host_behavior(data).and(done),
            // nvme-cli 3 has it in dword 13.
            feature::POWER_LIMIT => self.set_power_limit(value | sqe.cdw(13)).and(done),
            feature::HOST_IDENTIFIER => Err(Status::SEQUENCE_ERROR), // Fixed by Connect.
            _ => Err(Status::FEATURE_NOT_CHANGEABLE),
        }
    }

    /// NSQR and NCQR (Base 5.27.1.5): the fewer of both, as queues come in pairs.
    fn set_queues(&mut self, value: u32) -> Result<u32, Status> {
        let (submission, completion) = (value as u16, (value >> 16) as u16);
        if submission == u16::MAX || completion == u16::MAX {
            return Err(Status::INVALID_FIELD);
        }
        if self.association.has_queues() {
            return Err(Status::SEQUENCE_ERROR);
        }
        let wanted = submission.min(completion) + 1;
        let granted = wanted.min(self.subsystem.config.max_io_queues);
        self.association.granted.store(granted, Ordering::Release);
        Ok(queues(granted))
    }
}

/// Numbers of queues, less one, in both halves.
const fn queues(count: u16) -> u32 {
    let less_one = count.saturating_sub(1) as u32;
    less_one | less_one << 16
}

enum Threshold {
    Over,
    Under,
}

/// THSEL and TMPSEL: of the composite temperature, or of all sensors, which is the same here.
fn threshold(cdw11: u32) -> Result<Threshold, Status> {
    match (cdw11 >> 16 & 15, cdw11 >> 20 & 3) {
        (0 | 15, 0) => Ok(Threshold::Over),
        (0 | 15, 1) => Ok(Threshold::Under),
        _ => Err(Status::INVALID_FIELD),
    }
}
