//! Controllers of drive power caps and idle states.

mod apst;
mod caps;
mod pacman;
mod pacman_plus;
pub mod predict;
mod sspc;
#[cfg(test)]
pub(crate) mod testing;

pub use apst::Apst;
pub use caps::{CAP_TOLERANCE, PowerDesc};
pub use pacman::{P_INTERVAL, Pacman};
pub use pacman_plus::PacmanPlus;
pub use predict::Predictor;
pub use sspc::Sspc;
