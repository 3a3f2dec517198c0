//! Where bytes lie on the platters: zones of equal track length, tracks, angles.

use super::profile::HddProfile;

/// Zones between the outer and the inner edge; drives have some tens.
const ZONES: usize = 24;

/// Tracks of one length.
#[derive(Debug, Clone, Copy)]
struct Zone {
    first_byte: u64,
    first_track: u64,
    track_bytes: u64,
}

/// Where a byte lies. Tracks are numbered in the order of their bytes, head by head, then
/// cylinder by cylinder from the outer edge inwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub(super) track: u64,
    pub(super) cylinder: u64,
    /// Angle at which the byte passes the head, in revolutions.
    pub(super) angle: f64,
    /// Bytes from here to the end of the track.
    pub(super) left: u64,
    pub(super) track_bytes: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Geometry {
    zones: [Zone; ZONES],
    capacity: u64,
    heads: u64,
    /// Angle by which each track is turned against the last one, so that changing tracks costs
    /// the time to switch and no more.
    skew: f64,
    /// Cylinders from edge to edge.
    pub(super) cylinders: u64,
}

impl Geometry {
    /// Track lengths follow from the sustained rates: a track and a switch to the next take
    /// (revolution + switch) x rate. Capacity then gives the number of cylinders.
    pub(super) fn new(profile: &HddProfile) -> Self {
        let revolution = 60.0 / profile.rpm;
        let period = revolution + profile.seek.switch.seconds();
        let heads = u64::from(profile.heads);
        let (outer, inner) = (profile.outer_rate.0 as f64, profile.inner_rate.0 as f64);
        let length = |zone: usize| {
            let share = zone as f64 / (ZONES - 1) as f64;
            // Whole sectors of 4 KiB.
            ((outer + (inner - outer) * share) * period / 4096.0).max(1.0) as u64 * 4096
        };
        let per_cylinder: u64 = (0..ZONES).map(|zone| length(zone) * heads).sum();
        // One more than whole, so that the last zone holds what rounding leaves.
        let each = profile.capacity.0 / per_cylinder + 1;
        let mut next = Zone { first_byte: 0, first_track: 0, track_bytes: 0 };
        let zones = std::array::from_fn(|zone| {
            let this = Zone { track_bytes: length(zone), ..next };
            next.first_byte += each * heads * this.track_bytes;
            next.first_track += each * heads;
            this
        });
        Self {
            zones,
            capacity: profile.capacity.0,
            heads,
            skew: profile.seek.switch.seconds() / revolution,
            cylinders: each * ZONES as u64,
        }
    }

    /// Where byte `offset` lies; past the end, where the last byte does.
    pub(super) fn place(&self, offset: u64) -> Place {
        let offset = offset.min(self.capacity - 1);
        let after = self.zones.partition_point(|zone| zone.first_byte <= offset);
        let zone = &self.zones[after - 1];
        let within = offset - zone.first_byte;
        let (track, byte) = (within / zone.track_bytes, within % zone.track_bytes);
        let track = zone.first_track + track;
        let angle = byte as f64 / zone.track_bytes as f64 + (track as f64 * self.skew).fract();
        Place {
            track,
            cylinder: track / self.heads,
            angle: angle.fract(),
            left: zone.track_bytes - byte,
            track_bytes: zone.track_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::DriveFile;

    proptest! {
        /// Bytes lie in order, on cylinders that exist, and neighbours are neighbours.
        #[test]
        fn places_stay_within_the_drive(
            name in prop::sample::select(HddProfile::names().collect::<Vec<_>>()),
            share in 0.0..1.0f64,
        ) {
            let profile = HddProfile::builtin(name).unwrap();
            let geometry = Geometry::new(&profile);
            let offset = (share * profile.capacity.0 as f64) as u64;
            let place = geometry.place(offset);
            prop_assert!(place.cylinder < geometry.cylinders);
            prop_assert!((0.0..1.0).contains(&place.angle));
            prop_assert!(place.left >= 1 && place.left <= place.track_bytes);
            let next = geometry.place(offset + place.left);
            if offset + place.left < profile.capacity.0 {
                prop_assert_eq!(next.track, place.track + 1);
                prop_assert_eq!(next.left, next.track_bytes);
            }
            let last = geometry.place(u64::MAX);
            prop_assert!(place.track <= last.track && last.cylinder < geometry.cylinders);
        }
    }

    #[test]
    fn cylinders_are_nearly_those_of_the_manual() {
        // 320 800 user tracks per surface (Constellation ES.3 SAS manual, 4.1).
        let geometry = Geometry::new(&HddProfile::builtin("es3-4tb").unwrap());
        let ratio = geometry.cylinders as f64 / 320_800.0;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }
}
