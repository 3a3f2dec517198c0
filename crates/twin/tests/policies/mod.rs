//! What the policies promise, kept end to end in the twin.

mod budget;
mod determinism;
mod pacer;
mod pacer_plus;
mod server_budget;
mod together;
