//! Admin commands with a deadline. A drive that hangs keeps the kernel, and whoever asked it, for
//! a minute and more; it must not keep the control loop. So a thread asks, and nobody waits for it
//! longer than [`DEADLINE`].

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::nvme::{Admin, Health, Identity};
use crate::sys::Absent;

/// Healthy drives answer admin commands in well under a millisecond, and change their power state
/// in as many milliseconds as they state.
pub const DEADLINE: Duration = Duration::from_millis(500);

type Answer<T> = Result<T, Absent>;
type Ask = Box<dyn FnOnce(&mut dyn Admin) + Send>;

/// A controller that is asked by a thread of its own. Clones ask the same one.
#[derive(Debug, Clone)]
pub struct Patient {
    name: PathBuf,
    line: Arc<Mutex<Line>>,
}

#[derive(Debug)]
struct Line {
    asks: SyncSender<Ask>,
    /// Of an answer that came too late, or has not come yet.
    late: Option<Receiver<()>>,
}

impl Patient {
    /// Asks `drive` by a thread; `name` is for messages.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn new(name: PathBuf, mut drive: Box<dyn Admin>) -> Answer<Self> {
        let (asks, asked) = sync_channel::<Ask>(1);
        let work = move || asked.into_iter().for_each(|ask| ask(drive.as_mut()));
        let thread = thread::Builder::new().name("ebb nvme".to_owned()).stack_size(64 << 10);
        thread.spawn(work).map_err(|error| Absent::new(name.clone(), &error))?;
        let line = Arc::new(Mutex::new(Line { asks, late: None }));
        Ok(Self { name, line })
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Admin) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: &str| Absent::Failed { path: self.name.clone(), error: error.into() };
        if let Some(late) = &line.late {
            match late.try_recv() {
                Err(TryRecvError::Empty) => return Err(failed("still does not answer")),
                Ok(()) | Err(TryRecvError::Disconnected) => line.late = None,
            }
        }
        let (answer, answered) = sync_channel(1);
        let (finish, finished) = sync_channel(1);
        let ask = move |drive: &mut dyn Admin| {
            // Nobody may be waiting any more.
            let _ = answer.send(question(drive));
            let _ = finish.send(());
        };
        line.asks.send(Box::new(ask)).map_err(|_| failed("nobody asks it any more"))?;
        match answered.recv_timeout(DEADLINE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                line.late = Some(finished);
                Err(failed(&format!("no answer within {DEADLINE:?}")))
            }
            Err(RecvTimeoutError::Disconnected) => Err(failed("nobody asks it any more")),
        }
    }
}

impl Admin for Patient {
    fn feature(&mut self, feature: u8) -> Answer<u32> {
        self.ask(move |drive| drive.feature(feature))
    }
    fn set_feature(&mut self, feature: u8, value: u32) -> Answer<()> {
        self.ask(move |drive| drive.set_feature(feature, value))
    }
    fn identify(&mut self) -> Answer<Identity> {
        self.ask(|drive| drive.identify())
    }
    fn health(&mut self) -> Answer<Health> {
        self.ask(|drive| drive.health())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    /// Answers when it is let.
    #[derive(Debug)]
    struct Slow(Receiver<u32>);

    impl Admin for Slow {
        fn feature(&mut self, _: u8) -> Answer<u32> {
            Ok(self.0.recv().unwrap())
        }
        fn set_feature(&mut self, _: u8, _: u32) -> Answer<()> {
            panic!("of its own")
        }
        fn identify(&mut self) -> Answer<Identity> {
            Err(Absent::Missing("identify".into()))
        }
        fn health(&mut self) -> Answer<Health> {
            Err(Absent::Missing("health".into()))
        }
    }

    fn slow() -> (Sender<u32>, Patient) {
        let (answers, waits) = std::sync::mpsc::channel();
        (answers, Patient::new("nvme7".into(), Box::new(Slow(waits))).unwrap())
    }

    #[test]
    fn a_drive_that_hangs_is_left_alone_until_it_answers() {
        let (answers, mut drive) = slow();
        let says = |answer: Answer<u32>| answer.unwrap_err().to_string();
        assert!(says(drive.feature(2)).contains("nvme7: no answer within"));
        assert_eq!(says(drive.feature(2)), "nvme7: still does not answer");
        // The late answer is nobody's.
        answers.send(1).unwrap();
        answers.send(2).unwrap();
        let second = loop {
            match drive.feature(2) {
                Err(Absent::Failed { error, .. }) if error.starts_with("still") => {
                    thread::yield_now();
                }
                other => break other,
            }
        };
        assert_eq!(second, Ok(2));
        assert_eq!(drive.health(), Err(Absent::Missing("health".into())));
    }

    #[test]
    fn a_thread_that_dies_is_an_answer() {
        let (_answers, mut drive) = slow();
        let error = drive.set_feature(2, 1).unwrap_err().to_string();
        assert!(error.contains("nobody asks"), "{error}");
        assert!(drive.feature(2).is_err());
    }
}
