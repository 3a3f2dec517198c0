//! Pieces of work side by side, on as many threads as asked for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow};

use crate::interrupt;

/// Calls `work` for 0 to `count`, on all cores or as many threads as asked for; results in order.
///
/// # Errors
/// The first error in that order, which an interruption is too; work that has not begun when one
/// occurs is left out.
pub fn in_parallel<T: Send>(
    count: usize,
    threads: Option<u16>,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let done = each_in_parallel(count, threads, work);
    let mut results = Vec::with_capacity(count);
    let mut left_out = false;
    for result in done {
        match result {
            Some(result) => results.push(result?),
            None => left_out = true,
        }
    }
    if left_out { Err(anyhow!("a run was left out")) } else { Ok(results) }
}

/// The same, with what became of each; `None` where it was left out.
pub fn each_in_parallel<T: Send>(
    count: usize,
    threads: Option<u16>,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Vec<Option<Result<T>>> {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or_else(cores, usize::from).min(count);
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = done.get(index) else { return };
            let result = interrupt::unless_left(|| work(index));
            if result.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(result);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        worker();
    });
    done.into_iter().map(|slot| slot.into_inner().ok().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interrupted;

    #[test]
    fn results_keep_their_order_on_any_number_of_threads() {
        for threads in [None, Some(1), Some(2), Some(7), Some(100)] {
            let squares = in_parallel(50, threads, |index| Ok(index * index)).unwrap();
            assert!(squares.iter().enumerate().all(|(index, square)| index * index == *square));
        }
    }

    #[test]
    fn what_was_complete_before_work_is_left_stays() {
        let done = each_in_parallel(3, Some(1), |index| match index {
            1 => std::panic::resume_unwind(Box::new(Interrupted)),
            _ => Ok(index),
        });
        assert_eq!(done[0].as_ref().unwrap().as_ref().unwrap(), &0);
        assert!(done[1].as_ref().unwrap().as_ref().unwrap_err().is::<Interrupted>());
        assert!(done[2].is_none());
    }

    #[test]
    fn an_error_is_told_and_nothing_more_is_begun() {
        let begun = AtomicUsize::new(0);
        let error = in_parallel(1000, Some(2), |index| {
            begun.fetch_add(1, Ordering::Relaxed);
            if index == 3 { Err(anyhow!("number {index}")) } else { Ok(()) }
        });
        assert_eq!(error.unwrap_err().to_string(), "number 3");
        assert!(begun.into_inner() < 1000);
    }
}
