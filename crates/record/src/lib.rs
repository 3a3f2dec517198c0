//! What happened, from any plant: a row of numbers and the decisions of each control cycle, what a
//! run came to, and the page that shows it.
//!
//! A [`Recorder`] takes a [`ebb_policy::Cycled`] once per cycle, whatever plant it is of. The
//! columns of the [`series`] follow from the table of signals and controls; a plant that knows more
//! than is sensed of it (the twin knows the truth) adds [`Column`]s of its own in the same terms.

pub mod column;
pub mod latency;
pub mod live;
pub mod log;
pub mod parts;
pub mod recorder;
pub mod recording;
pub mod report;
pub mod sampled;
pub mod series;
pub mod spool;
pub mod summary;
pub mod text;
pub mod totals;
pub mod verdict;

pub use column::{Column, Columns};
pub use log::Log;
pub use recorder::{Recorded, Recorder};
pub use spool::Spool;
pub use summary::{RunSummary, Summary};
