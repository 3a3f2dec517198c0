//! What the sockets' temperatures are held against.

use crate::topology::Topology;
use crate::units::Celsius;

/// Core thermal set point and fan trigger point (EADC §VII-A).
pub const SET_POINT: Celsius = Celsius(85.0);
/// Emergency threshold, at which hardware throttles by itself (EADC §VII-A).
pub const EMERGENCY: Celsius = Celsius(90.0);
/// `T_redline`, never to be crossed (EADC §IV-A gives no number). Ours: the same 5 K again above
/// the emergency threshold, where processors of that time trip or come close to it.
pub const RED_LINE: Celsius = Celsius(95.0);

/// The thresholds of one server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// See [`SET_POINT`].
    pub set_point: Celsius,
    /// See [`EMERGENCY`].
    pub emergency: Celsius,
    /// See [`RED_LINE`].
    pub red_line: Celsius,
}

impl Thresholds {
    /// EADC's, or as much below them as the hardware of `topology` throttles earlier.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let earlier = EMERGENCY - topology.throttle.unwrap_or(EMERGENCY).min(EMERGENCY);
        Self {
            set_point: SET_POINT - earlier,
            emergency: EMERGENCY - earlier,
            red_line: RED_LINE - earlier,
        }
    }
}
