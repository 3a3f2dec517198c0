//! Controllers of drive power caps.
