//! Instructions that wait for a store to a cache line, in user mode.
//!
//! * WAITPKG (Intel SDM vol. 2, UMONITOR/UMWAIT): C0.1 wakes faster, C0.2 saves more. The kernel
//!   bounds one wait (`/sys/devices/system/cpu/umwait_control/max_time`, 100,000 TSC ticks).
//! * MONITORX/MWAITX (AMD APM vol. 3), with its timer.
//! * WFE after a load-exclusive (Arm ARM B2.17): the kernel's event stream bounds one wait to
//!   100 µs.
//!
//! Each may return early for no reason at all; callers look at the word again.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;

/// A CPU's way to watch a cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// UMONITOR and UMWAIT to C0.1.
    UmwaitC01,
    /// UMONITOR and UMWAIT to C0.2, which falls back to C0.1 where the kernel forbids it.
    UmwaitC02,
    /// MONITORX and MWAITX.
    Mwaitx,
    /// LDAXR and WFE.
    Wfe,
}

/// Proof that this CPU has the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Watcher(Watch);

impl Watcher {
    /// `None` where this CPU lacks the instructions.
    #[must_use]
    pub fn new(watch: Watch) -> Option<Self> {
        cpu::has(watch).then_some(Self(watch))
    }

    /// Sleeps until a store to the line of `word`, about `ticks` of [`ticks`] have passed, or no
    /// reason. Returns at once unless `word` is `asleep` when the monitor is armed.
    pub fn wait(self, word: &AtomicU32, asleep: u32, ticks: u64) {
        cpu::wait(self.0, word, asleep, ticks);
    }
}

/// The CPU's time stamp, which the waits count in; zero where waits have no timer.
#[must_use]
pub fn ticks() -> u64 {
    cpu::ticks()
}

#[cfg(target_arch = "x86_64")]
mod cpu {
    use super::{AtomicU32, Watch};
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
    use std::sync::atomic::Ordering;

    pub fn has(watch: Watch) -> bool {
        match watch {
            // CPUID.7.0:ECX[5] WAITPKG
            Watch::UmwaitC01 | Watch::UmwaitC02 => {
                __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx >> 5 & 1 == 1
            }
            // CPUID.8000_0001:ECX[29] MONITORX
            Watch::Mwaitx => {
                __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx >> 29 & 1 == 1
            }
            Watch::Wfe => false,
        }
    }

    pub fn ticks() -> u64 {
        // SAFETY: every x86-64 CPU has the instruction and Linux lets user mode use it.
        unsafe { _rdtsc() }
    }

    pub fn wait(watch: Watch, word: &AtomicU32, asleep: u32, ticks: u64) {
        match watch {
            Watch::UmwaitC01 => umwait(word, asleep, ticks, 1),
            Watch::UmwaitC02 => umwait(word, asleep, ticks, 0),
            Watch::Mwaitx => mwaitx(word, asleep, ticks),
            Watch::Wfe => {}
        }
    }

    fn umwait(word: &AtomicU32, asleep: u32, wait: u64, state: u32) {
        // SAFETY: a `Watcher` proves WAITPKG. UMONITOR only reads its address, which is valid.
        unsafe {
            asm!("umonitor {}", in(reg) word.as_ptr(), options(nostack, preserves_flags));
        }
        if word.load(Ordering::Acquire) != asleep {
            return;
        }
        let until = ticks().saturating_add(wait);
        // SAFETY: as above; UMWAIT changes no register and no memory, only flags.
        unsafe {
            asm!("umwait {:e}", in(reg) state, in("eax") until as u32,
                in("edx") (until >> 32) as u32, options(nostack));
        }
    }

    fn mwaitx(word: &AtomicU32, asleep: u32, wait: u64) {
        // SAFETY: a `Watcher` proves MONITORX, which only reads its address, which is valid.
        unsafe {
            asm!("monitorx", in("rax") word.as_ptr(), in("ecx") 0, in("edx") 0,
                options(nostack, preserves_flags));
        }
        if word.load(Ordering::Acquire) != asleep {
            return;
        }
        let timer = wait.clamp(1, u64::from(u32::MAX));
        // SAFETY: as above. ECX[1] turns on the timer in EBX, which the compiler keeps for
        // itself: it is exchanged and restored. EAX zero asks for C1, the deepest MWAITX knows.
        unsafe {
            asm!("xchg rbx, {timer}", "mwaitx", "xchg rbx, {timer}", timer = inout(reg) timer => _,
                in("eax") 0, in("ecx") 2, options(nostack, preserves_flags));
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod cpu {
    use super::{AtomicU32, Watch};
    use std::arch::asm;

    /// WFE itself is always there; without the kernel's event stream nothing would bound it.
    pub fn has(watch: Watch) -> bool {
        let has_stream = || {
            let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            text.split_whitespace().any(|word| word == "evtstrm")
        };
        watch == Watch::Wfe && has_stream()
    }

    pub fn ticks() -> u64 {
        0
    }

    pub fn wait(_: Watch, word: &AtomicU32, asleep: u32, _: u64) {
        // SAFETY: LDAXR reads a valid, aligned word and arms the exclusive monitor; losing it to
        // another core's store is an event, which ends WFE. CLREX leaves no reservation behind.
        unsafe {
            asm!("ldaxr {value:w}, [{address}]", "cmp {value:w}, {asleep:w}", "b.ne 2f", "wfe",
                "2:", "clrex", value = out(reg) _, address = in(reg) word.as_ptr(),
                asleep = in(reg) asleep, options(nostack));
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod cpu {
    use super::{AtomicU32, Watch};

    pub fn has(_: Watch) -> bool {
        false
    }
    pub fn ticks() -> u64 {
        0
    }
    pub fn wait(_: Watch, _: &AtomicU32, _: u32, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_word_or_a_passed_time_ends_every_wait_this_cpu_has() {
        let all = [Watch::UmwaitC01, Watch::UmwaitC02, Watch::Mwaitx, Watch::Wfe];
        let there: Vec<Watcher> = all.into_iter().filter_map(Watcher::new).collect();
        for watcher in &there {
            let word = AtomicU32::new(1);
            watcher.wait(&word, 0, u64::MAX); // not asleep: returns at once
            watcher.wait(&word, 1, 1000); // the timer ends it
        }
        if there.is_empty() {
            println!("skipped: this CPU cannot watch a cache line from user mode");
        }
    }
}
