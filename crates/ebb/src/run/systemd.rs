//! What systemd is told, where it has started this process (`man 3 sd_notify`).

use sd_notify::NotifyState;

/// systemd, and what it was told last.
#[derive(Debug, Default)]
pub struct Systemd {
    said: Option<String>,
}

impl Systemd {
    /// One more cycle was done, after which things stand at `state`; with the first one the service
    /// is ready.
    pub fn tell(&mut self, state: &str) {
        let mut states = vec![NotifyState::Watchdog];
        if self.said.is_none() {
            states.push(NotifyState::Ready);
        }
        if self.said.as_deref() != Some(state) {
            states.push(NotifyState::Status(state));
            self.said = Some(state.to_owned());
        }
        // Nobody listens where it was started by hand.
        let _ = sd_notify::notify(&states);
    }
}
