//! What policies, guard and plants agree on.
//!
//! ```text
//! sense ──► Signals ──► policy.step ──► Request ──► guard.enforce ──► InForce ──► apply
//!   ▲                    (one per owner)         (asked, given, why)               │
//!   └────────────────────────── Applied: done, refused ◄───────────────────────────┘
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `control.rs` | the table of controls: name, unit, of what, how two owners combine, released |
//! | `signal.rs` | the table of signals |
//! | `table.rs` | its rows, how each is read, and the page of both tables |
//! | `live.rs` | where all of it is on a server, and what the twin plays of that |
//! | `row.rs` | what rows of both have in common |
//! | `signals.rs` | what was sensed in a period |
//! | `source.rs` | how old each value is, and whether it was measured |
//! | `request.rs` | what an owner asks for, and how several owners' requests combine |
//! | `in_force.rs` | what the guard gave, with the reason; what became of it |
//! | `policy.rs` | what a controller is |
//! | `settling.rs` | how long a policy takes to settle |
//! | `topology.rs` | what a plant has |
//! | `power.rs` | what a server draws, part by part |
//! | `ladder.rs` | a drive's power limits as the power states that a policy sees |
//! | `names.rs` | the names of its parts |
//! | `class.rs` | classes of jobs |
//! | `units.rs` | units as types |
//! | `cpus.rs` | lists of CPUs as the kernel writes them |

pub mod class;
pub mod control;
pub mod cpus;
pub mod in_force;
pub mod ladder;
pub mod live;
pub mod names;
pub mod policy;
mod power;
pub mod request;
pub mod row;
pub mod settling;
pub mod signal;
pub mod signals;
pub mod source;
pub mod table;
pub mod topology;
pub mod units;
