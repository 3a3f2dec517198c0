//! The controller's side of DH-HMAC-CHAP on one queue, as a pure state machine.
//!
//! ```text
//!          Negotiate          (work)            Challenge             Reply
//!  Idle ─────────────> Preparing ──> Prepared ────────────> Challenged ─────> Verifying
//!   ^                                                                              │ (work)
//!   │ Success1, or Success2 of a host that has challenged us as well               v
//!   └───────────────────── Confirming <──────────────────────────────────────── Verified
//! ```
//!
//! The host sends messages with Authentication Send and fetches ours with Authentication Receive.
//! Whatever is wrong makes Failure1 the next that it fetches, and that is the end of the queue:
//! each connection has one attempt.

use std::borrow::Cow;

use ebb_nvme::auth::{
    self, Challenge, Explanation, Failure, Head, Negotiate, Protocol, Reply, Success1, Success2,
    id, kind,
};
use ebb_nvme::chap::{Group, Hash, is_equal};
use zerocopy::{FromBytes, IntoBytes};

use super::Rules;
use super::work::{Challenged, Outcome, Verify, Work};

enum State {
    /// No transaction.
    Idle,
    /// A challenge is being made.
    Preparing(Hash, Group),
    /// The challenge is to be fetched.
    Prepared(Box<Challenged>),
    /// The reply is to come.
    Challenged(Box<Challenged>),
    /// It is being verified.
    Verifying(Hash),
    /// Success1 is to be fetched, with a response if the host has challenged us.
    Verified(Hash, Option<Vec<u8>>),
    /// The host is to say what it thinks of our response.
    Confirming,
    /// Failure1 is to be fetched.
    Failed(Explanation),
    /// The queue must end.
    Over,
}

/// What has come of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    Succeeded,
    Failed(Cow<'static, str>),
}

/// A reason for Failure1, and for the log.
type Wrong = (Explanation, &'static str);

/// Transactions of one queue, one after the other.
pub(super) struct Transactions {
    state: State,
    /// T_ID of the present one.
    id: u16,
    is_authenticated: bool,
    report: Option<Report>,
}

impl Default for Transactions {
    fn default() -> Self {
        Self { state: State::Idle, id: 0, is_authenticated: false, report: None }
    }
}

impl Transactions {
    /// Whether the host has shown that it has the key, and nothing since says otherwise.
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether a transaction is under way.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// What has come of the transaction, once.
    pub fn take_report(&mut self) -> Option<Report> {
        self.report.take()
    }

    fn succeed(&mut self) {
        self.state = State::Idle;
        self.is_authenticated = true;
        self.report = Some(Report::Succeeded);
    }

    fn fail(&mut self, why: Explanation, text: impl Into<Cow<'static, str>>) {
        self.end(State::Failed(why), text);
    }

    fn end(&mut self, state: State, text: impl Into<Cow<'static, str>>) {
        // The first failure is the one to know; what follows it on this queue is its echo.
        if !matches!(self.state, State::Failed(_) | State::Over) {
            self.report = Some(Report::Failed(text.into()));
            self.state = state;
        }
        self.is_authenticated = false;
    }

    /// The connection is gone. Where the host waited for us, that is no failure of the host's.
    pub fn abandon(&mut self) {
        if matches!(self.state, State::Challenged(_) | State::Confirming) {
            self.end(State::Over, "the host left, or was too slow, before it was done");
        }
    }

    /// A message from the host; what is to be done for it, if anything.
    pub fn send(&mut self, message: &[u8], rules: &Rules) -> Option<Work> {
        let done = match Head::read_from_prefix(message) {
            Ok((head, _)) => self.message(&head, message, rules),
            Err(_) => Err((Explanation::Payload, "a message without a head")),
        };
        done.unwrap_or_else(|(why, text)| {
            self.fail(why, text);
            None
        })
    }

    fn message(
        &mut self,
        head: &Head,
        message: &[u8],
        rules: &Rules,
    ) -> Result<Option<Work>, Wrong> {
        if matches!(self.state, State::Idle) {
            self.id = head.transaction.get();
        }
        if self.id != head.transaction.get() {
            return Err((Explanation::Payload, "a message of another transaction"));
        }
        let is = |kind, id| head.is(kind, id);
        match std::mem::replace(&mut self.state, State::Confirming) {
            State::Idle if is(kind::COMMON, id::NEGOTIATE) => {
                let (hash, group) = negotiate(message, rules)?;
                self.state = State::Preparing(hash, group);
                Ok(Some(Work::Prepare(hash, group)))
            }
            State::Challenged(challenged) if is(kind::CHAP, id::REPLY) => {
                let hash = challenged.hash;
                let verify = reply(*challenged, self.id, message)?;
                self.state = State::Verifying(hash);
                Ok(Some(Work::Verify(Box::new(verify))))
            }
            State::Confirming if is(kind::CHAP, id::SUCCESS2) => {
                if message.len() != size_of::<Success2>() {
                    return Err((Explanation::Payload, "a success of the wrong length"));
                }
                self.succeed();
                Ok(None)
            }
            State::Challenged(_) | State::Confirming if is(kind::COMMON, id::FAILURE2) => {
                let code = Failure::read_from_bytes(message).map_or(0, |told| told.explanation);
                let words = Explanation::words(code);
                self.end(State::Over, format!("the host does not accept the target: {words}"));
                Ok(None)
            }
            state => {
                self.state = state;
                Err((Explanation::Message, "a message out of order"))
            }
        }
    }

    /// Work is done. If the transaction is not the one any more, to no avail.
    pub fn done(&mut self, outcome: Outcome) {
        self.state = match (std::mem::replace(&mut self.state, State::Confirming), outcome) {
            (State::Preparing(hash, group), Outcome::Prepared { challenge, sequence, pair }) => {
                let challenged = Challenged { hash, group, challenge, sequence, pair };
                State::Prepared(Box::new(challenged))
            }
            (State::Verifying(hash), Outcome::Verified(response)) => {
                State::Verified(hash, response)
            }
            (state @ (State::Preparing(..) | State::Verifying(_)), Outcome::Failed(why, text)) => {
                self.state = state;
                return self.fail(why, text);
            }
            (state, _) => state,
        };
    }

    /// The message that the host is to have next; `None` while it is being worked on.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.state, State::Confirming) {
            state @ (State::Preparing(..) | State::Verifying(_)) => {
                self.state = state;
                return None;
            }
            State::Prepared(challenged) => {
                let message = self.challenge(&challenged);
                self.state = State::Challenged(challenged);
                return Some(message);
            }
            State::Verified(hash, response) => {
                if response.is_none() {
                    self.succeed();
                }
                return Some(self.success(hash, response));
            }
            state => self.state = state,
        }
        self.fail(Explanation::Message, "a message was fetched when there was none");
        let State::Failed(why) = self.state else {
            return Some(self.failure(Explanation::Message));
        };
        self.state = State::Over;
        Some(self.failure(why))
    }

    fn challenge(&self, challenged: &Challenged) -> Vec<u8> {
        let value = challenged.pair.as_ref().map_or(&[][..], |pair| &pair.public);
        let header = Challenge {
            head: Head::chap(id::CHALLENGE, self.id),
            hash_length: challenged.hash.bytes() as u8,
            reserved: 0,
            hash: challenged.hash as u8,
            group: challenged.group as u8,
            dh_length: (value.len() as u16).into(),
            sequence: challenged.sequence.into(),
        };
        [header.as_bytes(), &challenged.challenge, value].concat()
    }

    fn success(&self, hash: Hash, response: Option<Vec<u8>>) -> Vec<u8> {
        let header = Success1 {
            head: Head::chap(id::SUCCESS1, self.id),
            hash_length: hash.bytes() as u8,
            reserved: 0,
            responded: response.is_some().into(),
            reserved_too: [0; 7],
        };
        let response = response.unwrap_or_else(|| vec![0; hash.bytes()]);
        [header.as_bytes(), &response].concat()
    }

    fn failure(&self, why: Explanation) -> Vec<u8> {
        Failure::new(id::FAILURE1, self.id, why).as_bytes().to_vec()
    }
}

/// The first of our hash functions and groups that the host offers.
fn negotiate(message: &[u8], rules: &Rules) -> Result<(Hash, Group), Wrong> {
    let payload = (Explanation::Payload, "a negotiation that is none");
    let (header, rest) = Negotiate::read_from_prefix(message).map_err(|_| payload)?;
    if header.secure_channel != 0 {
        return Err((Explanation::SecureChannel, "the host wants a secure channel"));
    }
    if rest.len() != usize::from(header.protocols) * size_of::<Protocol>() {
        return Err(payload);
    }
    let protocols = rest.as_chunks::<{ size_of::<Protocol>() }>().0.iter();
    let protocol = protocols
        .filter_map(|bytes| Protocol::read_from_bytes(bytes).ok())
        .find(|protocol| protocol.id == auth::CHAP)
        .ok_or((Explanation::Protocol, "the host does not offer DH-HMAC-CHAP"))?;
    let (hashes, groups) = protocol.offered().ok_or(payload)?;
    let hash = rules.hashes.iter().find(|hash| hashes.contains(&(**hash as u8)));
    let group = rules.groups.iter().find(|group| groups.contains(&(**group as u8)));
    let no_hash = "the host offers no hash function that is allowed";
    let no_group = "the host offers no DH group that is allowed";
    Ok((*hash.ok_or((Explanation::Hash, no_hash))?, *group.ok_or((Explanation::Group, no_group))?))
}

/// Takes a reply to `challenged` apart.
fn reply(challenged: Challenged, transaction: u16, message: &[u8]) -> Result<Verify, Wrong> {
    let payload = (Explanation::Payload, "a reply that is none");
    let (header, rest) = Reply::read_from_prefix(message).map_err(|_| payload)?;
    let hash = challenged.hash.bytes();
    let value = usize::from(header.dh_length.get());
    let is_whole = usize::from(header.hash_length) == hash && rest.len() == 2 * hash + value;
    let has_value = match challenged.pair {
        None => value == 0,
        Some(_) => (1..=challenged.group.bytes()).contains(&value),
    };
    if !is_whole || !has_value || header.challenged > 1 {
        return Err(payload);
    }
    let (response, rest) = rest.split_at(hash);
    let (theirs, value) = rest.split_at(hash);
    let is_challenged = header.challenged == 1;
    if is_challenged && header.sequence.get() == 0 {
        return Err(payload); // Of a secure channel, which was not agreed upon.
    }
    // Ours thrown back (Base 8.13.5.7).
    if is_challenged && is_equal(theirs, &challenged.challenge) {
        return Err((Explanation::Failed, "the host challenges the target with its own challenge"));
    }
    Ok(Verify {
        transaction,
        response: response.to_vec(),
        theirs: is_challenged.then(|| (theirs.to_vec(), header.sequence.get())),
        value: value.to_vec(),
        challenged,
    })
}
