//! Peers that are no hosts: silent ones, and ones that talk nonsense. The target must be rid of
//! each in time.

use ebb_nvme::pdu::Digests;
use ebb_policy::units::Nanos;
use rand::RngExt;

use super::link::Link;
use super::scene::Scene;

/// Connects, says what it has to say, stays.
pub struct Stranger {
    link: Option<Link>,
    since: Nanos,
    /// How long the target may put up with it.
    patience: Nanos,
}

impl Stranger {
    pub fn new(patience: Nanos) -> Self {
        Self { link: None, since: Nanos::ZERO, patience }
    }

    pub fn turn(&mut self, scene: &mut Scene) {
        let Some(mut link) = self.link.take() else {
            if !scene.is_ending && scene.once_in(200) {
                self.arrive(scene);
            }
            return;
        };
        link.send(&mut scene.random);
        if link.pipe.target_left().is_some() {
            return link.pipe.close(true);
        }
        if scene.now.saturating_sub(self.since) > self.patience {
            scene.fail("a peer that never became a host was not sent away in time");
        }
        if scene.is_ending || scene.once_in(5000) {
            return link.pipe.close(scene.random.random());
        }
        self.link = Some(link);
    }

    fn arrive(&mut self, scene: &mut Scene) {
        let Some(connection) = scene.connect() else { return };
        let mut link = Link::new(connection);
        let kind = scene.random.random_range(0..5);
        match kind {
            0 => {}
            1 => link.greet(Digests::default(), 4),
            2 => {
                link.greet(Digests::default(), 4);
                link.raw(&[4, 0, 72]); // The beginning of a command.
            }
            3 => {
                let length = scene.random.random_range(1..2000);
                let bytes: Vec<u8> = (0..length).map(|_| scene.random.random()).collect();
                link.raw(&bytes);
            }
            _ => link.pipe.end(),
        }
        scene.note("a stranger: kind", [kind, 0, 0, 0]);
        self.since = scene.now;
        self.link = Some(link);
    }
}
