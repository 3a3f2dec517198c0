//! One request's kind, size and place.

use ebb_policy::units::Nanos;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use super::error::{GenerateError, Place};
use super::random::{carve, happens, scatter, stream, threshold};
use super::spec::AccessSpec;
use super::target::Target;
use crate::request::{Op, Request};

/// How requests are drawn: an [`AccessSpec`] made ready for the devices it goes to.
pub(super) struct Access {
    sizes: Vec<Size>,
    align: u64,
    read: u64,
    random: u64,
    locality: Locality,
    target: Target,
}

/// A block size, and the number of aligned places where such a block fits.
struct Size {
    bytes: u64,
    places: u64,
    zipf: Option<Zipf<f64>>,
}

#[derive(Clone, Copy)]
enum Locality {
    Uniform,
    Zipf,
    /// Threshold of a hot access, and the hot share of the places over 2^24.
    Hot(u64, u64),
}

/// A stream of requests with its own random numbers and sequential positions.
pub(super) struct Thread {
    rng: Pcg64Mcg,
    /// Where the next sequential read and write go.
    next: [(u16, u64); 2],
    /// Sequential requests stay in this region and begin again at its start.
    from: u64,
    until: u64,
    /// Its drive; any of the target's without one.
    home: Option<u16>,
    pub(super) stream: u32,
}

/// The streams of one part of a workload.
pub(super) struct Streams {
    pub(super) seed: u64,
    pub(super) part: u64,
    pub(super) count: u32,
    pub(super) per_drive: bool,
    /// Number of the first.
    pub(super) first: u32,
}

const SECTOR: u64 = 512;

impl Access {
    pub(super) fn new(
        spec: &AccessSpec,
        target: Target,
        place: Place<'_>,
    ) -> Result<Self, GenerateError> {
        let span = (target.capacity as f64 * spec.span.0) as u64;
        let align = spec.block.0.iter().map(|size| size.0).min().unwrap_or(0);
        place.need(align > 0, "access.block", "give at least one size, above zero")?;
        for size in &spec.block.0 {
            let good = size.0.is_multiple_of(SECTOR) && u32::try_from(size.0).is_ok();
            let reason = format!("{size} is not a multiple of 512 B below 4 GiB");
            place.need(good, "access.block", &reason)?;
            let reason = format!("{size} does not fit the {span} bytes used of each drive");
            place.need(size.0 <= span, "access.block", &reason)?;
        }
        let locality = match (spec.zipf, spec.hot) {
            (None, None) => Locality::Uniform,
            (Some(_), None) => Locality::Zipf,
            (None, Some(hot)) => {
                let inside = hot.space.0 > 0.0 && hot.space.0 < 1.0;
                place.need(inside, "access.hot.space", "must lie between 0 and 1, excluded")?;
                Locality::Hot(threshold(hot.accesses.0), threshold(hot.space.0))
            }
            _ => return Err(place.wrong("access", "give zipf or hot, not both")),
        };
        let size = |bytes: u64| -> Result<Size, GenerateError> {
            let places = (span - bytes) / align + 1;
            let zipf = spec.zipf.map(|exponent| Zipf::new(places as f64, exponent)).transpose();
            let reason = "the exponent must be zero or more";
            let zipf = zipf.map_err(|_| place.wrong("access.zipf", reason))?;
            Ok(Size { bytes, places, zipf })
        };
        Ok(Self {
            sizes: spec.block.0.iter().map(|bytes| size(bytes.0)).collect::<Result<_, _>>()?,
            align,
            read: threshold(spec.read.0),
            random: threshold(spec.random.0),
            locality,
            target: Target { capacity: span, ..target },
        })
    }

    /// Number of streams, and the bytes of a drive that each one uses: purely sequential ones
    /// divide a drive among them, others use all of it.
    pub(super) fn region(
        &self,
        streams: &Streams,
        place: Place<'_>,
    ) -> Result<(u32, u64), GenerateError> {
        let drives = u32::from(self.target.count);
        let all = if streams.per_drive { streams.count * drives } else { streams.count };
        let per_drive = u64::from(all.div_ceil(drives));
        let capacity = self.target.capacity;
        let part = capacity / per_drive / self.align * self.align;
        let region = if self.random == 0 { part } else { capacity };
        let largest = self.sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
        let reason = format!("{per_drive} sequential streams do not fit {capacity} bytes of drive");
        place.need(region >= largest, "access.span", &reason)?;
        Ok((all, region))
    }

    /// The streams that draw from this.
    pub(super) fn streams(
        &self,
        streams: &Streams,
        place: Place<'_>,
    ) -> Result<Vec<Thread>, GenerateError> {
        let drives = u32::from(self.target.count);
        let (all, region) = self.region(streams, place)?;
        let divided = self.random == 0;
        let thread = |index: u32| {
            let drive = self.target.first + (index % drives) as u16;
            let from = if divided { u64::from(index / drives) * region } else { 0 };
            let rng = stream(streams.seed, streams.part, u64::from(index));
            let mut thread = Thread {
                rng,
                next: [(drive, from); 2],
                from,
                until: from + region,
                home: streams.per_drive.then_some(drive),
                stream: streams.first + index,
            };
            if !divided {
                let start = carve(&mut thread.rng.next_u64(), self.sizes[0].places) * self.align;
                thread.next = [(drive, start); 2];
            }
            thread
        };
        Ok((0..all).map(thread).collect())
    }

    /// The next request of a thread, with the share of reads as specified.
    #[inline]
    pub(super) fn draw(&self, thread: &mut Thread, at: u64) -> Request {
        self.draw_mixed(thread, at, self.read)
    }

    /// The next request of a thread, with another share of reads, as a threshold.
    #[inline]
    pub(super) fn draw_mixed(&self, thread: &mut Thread, at: u64, read: u64) -> Request {
        let mut bits = thread.rng.next_u64();
        let op = if happens(&mut bits, read) { Op::Read } else { Op::Write };
        let random = happens(&mut bits, self.random);
        let size = &self.sizes[carve(&mut bits, self.sizes.len() as u64) as usize];
        let (device, offset) = if random {
            self.anywhere(thread, size)
        } else {
            let (device, offset) = thread.next[op as usize];
            (device, if offset + size.bytes > thread.until { thread.from } else { offset })
        };
        // As in fio, a sequential request follows the last one of its kind, random or not.
        thread.next[op as usize] = (device, offset + size.bytes);
        Request {
            at: Nanos(at),
            offset,
            bytes: size.bytes as u32,
            device,
            op,
            stream: thread.stream,
            recorded_latency: None,
        }
    }

    #[inline]
    fn anywhere(&self, thread: &mut Thread, size: &Size) -> (u16, u64) {
        let mut bits = thread.rng.next_u64();
        let device = match thread.home {
            Some(device) => device,
            None => self.target.first + carve(&mut bits, u64::from(self.target.count)) as u16,
        };
        let index = match (self.locality, &size.zipf) {
            (Locality::Hot(often, share), _) => hot(&mut bits, often, share, size.places),
            (Locality::Zipf, Some(zipf)) => {
                // Neighbouring ranks land apart, as with fio's zipf: popular blocks are no region.
                let mut scattered = scatter(zipf.sample(&mut thread.rng) as u64);
                carve(&mut scattered, size.places)
            }
            _ => carve(&mut bits, size.places),
        };
        (device, index * self.align)
    }
}

/// A place in the first part of `places` with the probability `often`, else in the rest.
fn hot(bits: &mut u64, often: u64, share: u64, places: u64) -> u64 {
    let inside = ((u128::from(places) * u128::from(share)) >> 24) as u64;
    let inside = inside.clamp(1, places);
    if happens(bits, often) || inside == places {
        carve(bits, inside)
    } else {
        inside + carve(bits, places - inside)
    }
}
