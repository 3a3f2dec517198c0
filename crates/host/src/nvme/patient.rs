//! Admin commands with a deadline: a drive that hangs keeps the kernel, and whoever asked it, for
//! a minute and more.

use std::path::PathBuf;
use std::time::Duration;

use crate::nvme::{Admin, Health, Identity};
use crate::patience::Patience;
use crate::sys::Absent;

/// Healthy drives answer admin commands in well under a millisecond, and change their power state
/// in as many milliseconds as they state.
pub const DEADLINE: Duration = Duration::from_millis(500);

type Answer<T> = Result<T, Absent>;

/// A controller that is asked by a thread of its own. Clones ask the same one.
#[derive(Debug, Clone)]
pub struct Patient {
    name: PathBuf,
    drive: Patience<Box<dyn Admin>>,
}

impl Patient {
    /// Asks `drive` by a thread; `name` is for messages.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn new(name: PathBuf, drive: Box<dyn Admin>) -> Answer<Self> {
        let drive = Patience::new("ebb nvme", drive, DEADLINE);
        let drive = drive.map_err(|error| Absent::new(name.clone(), &error))?;
        Ok(Self { name, drive })
    }

    /// [`Admin::identify`] with a deadline of its own.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn identify_within(&self, deadline: Duration) -> Answer<Identity> {
        self.ask_within(deadline, |drive| drive.identify())
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Admin) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        self.ask_within(DEADLINE, question)
    }

    fn ask_within<T: Send + 'static>(
        &self,
        deadline: Duration,
        question: impl FnOnce(&mut dyn Admin) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let answer = self.drive.ask_within(deadline, |drive| question(drive.as_mut()));
        answer.map_err(|silence| Absent::Silent { path: self.name.clone(), silence })?
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
        self.identify_within(DEADLINE)
    }
    fn health(&mut self) -> Answer<Health> {
        self.ask(|drive| drive.health())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Never answers.
    #[derive(Debug)]
    struct Stuck;

    impl Admin for Stuck {
        fn feature(&mut self, _: u8) -> Answer<u32> {
            std::thread::sleep(Duration::MAX);
            Ok(0)
        }
        fn set_feature(&mut self, _: u8, _: u32) -> Answer<()> {
            Ok(())
        }
        fn identify(&mut self) -> Answer<Identity> {
            Err(Absent::Missing("identify".into()))
        }
        fn health(&mut self) -> Answer<Health> {
            Err(Absent::Missing("health".into()))
        }
    }

    #[test]
    fn a_drive_that_hangs_is_told_by_its_name() {
        let mut drive = Patient::new("nvme7".into(), Box::new(Stuck)).unwrap();
        assert_eq!(drive.health(), Err(Absent::Missing("health".into())));
        assert_eq!(drive.feature(2).unwrap_err().to_string(), "nvme7: no answer within 500ms");
        assert_eq!(
            drive.set_feature(2, 1).unwrap_err().to_string(),
            "nvme7: still does not answer"
        );
    }
}
