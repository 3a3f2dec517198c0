//! Ctrl-C in work that takes long: what is complete is kept, what is under way is dropped.
//!
//! The first signal sets a flag; a second one ends the process at once. Where many requests are
//! handled between two looks at the flag, the run is left by unwinding, which drops what it holds.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use ebb_trace::files;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use crate::Interrupted;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on, the first signal only asks to end.
///
/// # Errors
/// When the system refuses it.
pub fn watch() -> Result<()> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag still down.
        flag::register_conditional_default(signal, asked.clone())
            .and_then(|_| flag::register(signal, asked.clone()))
            .context("cannot watch for signals")?;
    }
    files::stop_when(self::asked);
    Ok(())
}

/// From now on, a file that reaches its limit (`ulimit -f`) is a write that fails, as on a full
/// disk: by default the signal ends the process, which may hold settings. Programs that are started
/// have the default.
///
/// # Errors
/// When the system refuses it.
pub fn outlive_limits() -> Result<()> {
    flag::register(SIGXFSZ, Arc::default()).context("cannot watch for signals")?;
    Ok(())
}

/// Whether somebody has asked to end.
pub fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// Leaves the work around it, up to [`unless_left`], if somebody has asked to end.
pub fn leave_if_asked() {
    if asked() {
        resume_unwind(Box::new(Interrupted));
    }
}

/// Does `work`, unless it is left or need not begin any more.
///
/// # Errors
/// [`Interrupted`], or what `work` says.
pub fn unless_left<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    if asked() {
        return Err(Interrupted.into());
    }
    // What the work has touched is dropped with it, or only counts.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|left| match left.downcast() {
        Ok(interrupted) => Err(Interrupted::into(*interrupted)),
        Err(panic) => resume_unwind(panic),
    })
}
