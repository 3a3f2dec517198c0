//! Completion status codes (Base Figures 94-98, NVM Figure 12).

/// A status as in a completion queue entry: status code type and status code, with the
/// *Do Not Retry* bit and the *Command Retry Delay*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Status code type, 3 bits.
    pub kind: u8,
    /// Status code.
    pub code: u8,
    /// Whether trying again is pointless.
    pub no_retry: bool,
    /// CRD: after which of the controller's times to try again (CRDT); zero for at once. Hosts
    /// look at it once they have asked for it (ACRE).
    pub retry_delay: u8,
}

impl Status {
    const fn generic(code: u8) -> Self {
        Self { kind: 0, code, no_retry: code != 0, retry_delay: 0 }
    }
    const fn specific(code: u8) -> Self {
        Self { kind: 1, code, no_retry: true, retry_delay: 0 }
    }
    const fn path(code: u8) -> Self {
        Self { kind: 3, code, no_retry: false, retry_delay: 0 }
    }
    const fn media(code: u8) -> Self {
        Self { kind: 2, code, no_retry: true, retry_delay: 0 }
    }
    /// The same, but worth trying again.
    #[must_use]
    #[inline]
    pub const fn retry(self) -> Self {
        Self { no_retry: false, ..self }
    }

    /// Done.
    pub const SUCCESS: Self = Self::generic(0x00);
    /// No such opcode.
    pub const INVALID_OPCODE: Self = Self::generic(0x01);
    /// A field holds what it must not.
    pub const INVALID_FIELD: Self = Self::generic(0x02);
    /// The command identifier is in use.
    pub const ID_CONFLICT: Self = Self::generic(0x03).retry();
    /// The data could not be transferred.
    pub const DATA_TRANSFER_ERROR: Self = Self::generic(0x04).retry();
    /// The device failed.
    pub const INTERNAL_ERROR: Self = Self::generic(0x06).retry();
    /// Aborted because the host asked.
    pub const ABORT_REQUESTED: Self = Self::generic(0x07);
    /// No such namespace.
    pub const INVALID_NAMESPACE: Self = Self::generic(0x0b);
    /// The order of commands is wrong: before Connect, or before the controller is enabled.
    pub const SEQUENCE_ERROR: Self = Self::generic(0x0c);
    /// The SGL descriptor is of a kind not supported.
    pub const INVALID_SGL: Self = Self::generic(0x11);
    /// The data length does not fit the command.
    pub const DATA_SGL_LENGTH_INVALID: Self = Self::generic(0x0f);
    /// The in-capsule offset is wrong.
    pub const SGL_OFFSET_INVALID: Self = Self::generic(0x16);
    /// The namespace is write protected.
    pub const WRITE_PROTECTED: Self = Self::generic(0x20);
    /// Not done, and worth trying again after the first of the controller's times.
    pub const COMMAND_INTERRUPTED: Self = Self { retry_delay: 1, ..Self::generic(0x21).retry() };
    /// Beyond the end of the namespace.
    pub const LBA_OUT_OF_RANGE: Self = Self::generic(0x80);
    /// The namespace would have to grow.
    pub const CAPACITY_EXCEEDED: Self = Self::generic(0x81);
    /// Not now: being formatted, degraded beyond use.
    pub const NAMESPACE_NOT_READY: Self = Self::generic(0x82).retry();

    /// No such log page.
    pub const INVALID_LOG_PAGE: Self = Self::specific(0x09);
    /// The feature cannot be saved.
    pub const FEATURE_NOT_SAVEABLE: Self = Self::specific(0x0d);
    /// The feature cannot be changed.
    pub const FEATURE_NOT_CHANGEABLE: Self = Self::specific(0x0e);
    /// The power limit prohibits all operational power states (Base 2.3).
    pub const INVALID_POWER_LIMIT: Self = Self::specific(0x3e);
    /// Too many asynchronous event requests outstanding.
    pub const ASYNC_EVENT_LIMIT: Self = Self::specific(0x05);
    /// Too many aborts outstanding.
    pub const ABORT_LIMIT: Self = Self::specific(0x03);
    /// The queue is not of the kind this command is for.
    pub const INVALID_QUEUE_TYPE: Self = Self::specific(0x85);
    /// Connect: incompatible format.
    pub const CONNECT_FORMAT: Self = Self::specific(0x80);
    /// Connect: the controller is busy.
    pub const CONNECT_BUSY: Self = Self::specific(0x81).retry();
    /// Connect: invalid parameters.
    pub const CONNECT_INVALID: Self = Self::specific(0x82);
    /// Connect: this host may not.
    pub const CONNECT_INVALID_HOST: Self = Self::specific(0x84);
    /// The queue's host must authenticate itself first.
    pub const AUTHENTICATION_REQUIRED: Self = Self::specific(0x91);
    /// The attributes conflict (Write Zeroes, Dataset Management).
    pub const CONFLICTING_ATTRIBUTES: Self = Self::specific(0x80);
    /// More than the command's size limits allow (Dataset Management).
    pub const SIZE_LIMIT_EXCEEDED: Self = Self::specific(0x83);
    /// The namespace is read-only.
    pub const READ_ONLY: Self = Self::specific(0x82);

    /// A write the medium did not take.
    pub const WRITE_FAULT: Self = Self::media(0x80).retry();
    /// A read the medium could not give.
    pub const UNRECOVERED_READ: Self = Self::media(0x81);
    /// What Compare read differs.
    pub const COMPARE_FAILURE: Self = Self::media(0x85);

    /// Not by this path: the namespace's ANA group is inaccessible here.
    pub const ANA_INACCESSIBLE: Self = Self::path(0x02);
    /// Not now: the namespace's ANA group is changing its state here.
    pub const ANA_TRANSITION: Self = Self::path(0x03);

    /// The status field of a completion queue entry; the phase tag stays zero over fabrics.
    #[must_use]
    #[inline]
    pub const fn to_field(self) -> u16 {
        let no_retry = if self.no_retry { 1 << 15 } else { 0 };
        let retry_delay = (self.retry_delay as u16 & 3) << 12;
        ((self.kind as u16 & 7) << 9) | ((self.code as u16) << 1) | retry_delay | no_retry
    }
    /// From the status field of a completion queue entry.
    #[must_use]
    #[inline]
    pub const fn from_field(field: u16) -> Self {
        Self {
            kind: (field >> 9) as u8 & 7,
            code: (field >> 1) as u8,
            no_retry: field & (1 << 15) != 0,
            retry_delay: (field >> 12) as u8 & 3,
        }
    }
    /// Whether the command was done.
    #[must_use]
    #[inline]
    pub const fn is_success(self) -> bool {
        self.kind == 0 && self.code == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_holds_all_of_it() {
        for field in (0..=u16::MAX).step_by(2).filter(|field| field & 0x4000 == 0) {
            assert_eq!(Status::from_field(field).to_field(), field);
        }
        assert_eq!(Status::COMPARE_FAILURE.to_field(), 0x850a);
        assert!(Status::from_field(0).is_success());
    }
}
