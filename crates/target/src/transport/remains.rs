//! What devices have not completed of connections that have ended.

use std::collections::BTreeMap;

use crate::controller::Stay;

/// What is left of a queue: it tells its host's other queues when it is done.
#[derive(Debug)]
pub(super) struct Left {
    pub stay: Stay,
    /// The slots of commands with a request under way, and their namespaces.
    pub requests: Vec<(u16, usize)>,
}

/// Of all queues of a group, by what is above the slot in their tags.
#[derive(Debug, Default)]
pub(super) struct Remains {
    list: BTreeMap<u64, Left>,
}

impl Remains {
    pub fn keep(&mut self, tag: u64, left: Left) {
        if !left.requests.is_empty() {
            self.list.insert(tag, left);
        }
    }

    /// A device request of a queue that has ended is done.
    pub fn done(&mut self, command: u64) {
        let (tag, slot) = (command & !0xffff, command as u16);
        let Some(Left { stay, requests }) = self.list.get_mut(&tag) else { return };
        let Some(at) = requests.iter().position(|(one, _)| *one == slot) else { return };
        let (_, namespace) = requests.swap_remove(at);
        if !requests.iter().any(|(_, other)| *other == namespace) {
            stay.done(namespace);
        }
        if requests.is_empty() {
            self.list.remove(&tag);
        }
    }
}
