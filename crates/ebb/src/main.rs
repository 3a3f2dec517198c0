//! The one binary of Ebb.

fn main() {}
