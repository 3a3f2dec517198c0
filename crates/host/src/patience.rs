//! Questions with a deadline. What hangs must not keep the control loop: a thread asks it, and
//! nobody waits for the answer longer than that.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

type Ask<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// It takes longer than this.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// It has not answered an earlier question yet.
    #[error("still does not answer")]
    Still,
    /// Nothing reaches it meanwhile.
    #[error("its controller is being reset, or connects again")]
    Resets,
    /// The thread is no more.
    #[error("nobody asks it any more")]
    Gone,
}

/// Something that is asked by a thread of its own. Clones ask the same one.
#[derive(Debug)]
pub struct Patience<T> {
    line: Arc<Mutex<Line<T>>>,
    deadline: Duration,
}

impl<T> Clone for Patience<T> {
    fn clone(&self) -> Self {
        Self { line: self.line.clone(), deadline: self.deadline }
    }
}

#[derive(Debug)]
struct Line<T> {
    asks: SyncSender<Ask<T>>,
    /// Of an answer that came too late, or has not come yet.
    late: Option<Receiver<()>>,
}

impl<T: Send + 'static> Patience<T> {
    /// With `asked`, by a thread of this name.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn new(thread: &str, mut asked: T, deadline: Duration) -> io::Result<Self> {
        let (asks, questions) = sync_channel::<Ask<T>>(1);
        let work = move || questions.into_iter().for_each(|question| question(&mut asked));
        thread::Builder::new().name(thread.to_owned()).spawn(work)?;
        Ok(Self { line: Arc::new(Mutex::new(Line { asks, late: None })), deadline })
    }

    /// Asks; a late answer is nobody's.
    ///
    /// # Errors
    /// Why there is none.
    pub fn ask<A: Send + 'static>(
        &self,
        question: impl FnOnce(&mut T) -> A + Send + 'static,
    ) -> Result<A, Silence> {
        self.ask_within(self.deadline, question)
    }

    /// [`Self::ask`] with a deadline of its own.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask_within<A: Send + 'static>(
        &self,
        deadline: Duration,
        question: impl FnOnce(&mut T) -> A + Send + 'static,
    ) -> Result<A, Silence> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(late) = &line.late {
            match late.try_recv() {
                Err(TryRecvError::Empty) => return Err(Silence::Still),
                Ok(()) | Err(TryRecvError::Disconnected) => line.late = None,
            }
        }
        let (answer, answered) = sync_channel(1);
        let (finish, finished) = sync_channel(1);
        let ask = move |asked: &mut T| {
            // Nobody may be waiting any more.
            let _ = answer.send(question(asked));
            let _ = finish.send(());
        };
        line.asks.send(Box::new(ask)).map_err(|_| Silence::Gone)?;
        answered.recv_timeout(deadline).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                line.late = Some(finished);
                Silence::Late(deadline)
            }
            RecvTimeoutError::Disconnected => Silence::Gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_left_alone_until_it_answers() {
        let (answers, waits) = std::sync::mpsc::channel::<u32>();
        let deadline = Duration::from_millis(20);
        let slow = Patience::new("slow", waits, deadline).unwrap();
        let ask = || slow.ask(|waits| waits.recv().unwrap());
        assert_eq!(ask(), Err(Silence::Late(deadline)));
        assert_eq!(ask(), Err(Silence::Still));
        // The late answer is nobody's.
        answers.send(1).unwrap();
        answers.send(2).unwrap();
        let second = loop {
            match ask() {
                Err(Silence::Still) => thread::yield_now(),
                other => break other,
            }
        };
        assert_eq!(second, Ok(2));
    }

    #[test]
    fn a_thread_that_dies_is_told() {
        let fragile = Patience::new("fragile", (), Duration::from_secs(9)).unwrap();
        assert_eq!(fragile.ask(|()| -> u32 { panic!("of its own") }), Err(Silence::Gone));
        assert_eq!(fragile.ask(|()| 1), Err(Silence::Gone));
    }
}
