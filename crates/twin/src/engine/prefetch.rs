//! Memory that will be needed soon, fetched while other things are done.
#![allow(unsafe_code)] // The processor's instruction for it.

/// Has the processor fetch the cache line at which `what` begins.
#[inline]
pub(super) fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and cannot fault, and `what` is a valid address anyway.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}
