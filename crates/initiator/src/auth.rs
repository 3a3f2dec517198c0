//! The host's side of DH-HMAC-CHAP (Base 8.13.5): what to send, and whether what comes is right.

use std::time::Duration;

use ebb_nvme::auth::{
    self, Challenge, Explanation, Failure, Head, Negotiate, Protocol, Reply, Success1, Success2,
    id, kind,
};
use ebb_nvme::chap::{self, Group, Hash, Key, Pair, Terms, is_equal};
use ebb_nvme::command::fabrics;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::exchange::{exchange, fabric};
use super::{Direction, Error, Queue};

/// Keys to authenticate with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets {
    /// Ours.
    pub host: Key,
    /// The target's, if it is to authenticate itself too.
    pub controller: Option<Key>,
    /// Hash functions to offer.
    pub hashes: Vec<Hash>,
    /// Groups to offer.
    pub groups: Vec<Group>,
}

impl Secrets {
    /// Offers all hash functions and groups.
    #[must_use]
    pub fn new(host: Key, controller: Option<Key>) -> Self {
        Self { host, controller, hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec() }
    }
}

/// One transaction, without its queue.
pub struct Transaction<'a> {
    secrets: &'a Secrets,
    id: u16,
    host: &'a str,
    subsystem: &'a str,
    /// The hash function in use, and the response that is due to our challenge.
    hash: Option<Hash>,
    expected: Option<Vec<u8>>,
}

impl<'a> Transaction<'a> {
    /// Of `host` with `subsystem`, numbered `id`.
    #[must_use]
    pub fn new(secrets: &'a Secrets, id: u16, host: &'a str, subsystem: &'a str) -> Self {
        Self { secrets, id, host, subsystem, hash: None, expected: None }
    }

    /// The first message: what we offer.
    #[must_use]
    pub fn negotiate(&self) -> Vec<u8> {
        let head = Head::common(id::NEGOTIATE, self.id);
        let negotiate = Negotiate { head, secure_channel: 0, protocols: 1 };
        let mut protocol = Protocol { id: auth::CHAP, ..Protocol::new_zeroed() };
        let (hashes, groups) = (&self.secrets.hashes, &self.secrets.groups);
        protocol.hashes = hashes.len().min(auth::MOST_IDS) as u8;
        protocol.groups = groups.len().min(auth::MOST_IDS) as u8;
        protocol.hash_ids.iter_mut().zip(hashes).for_each(|(id, hash)| *id = *hash as u8);
        protocol.group_ids.iter_mut().zip(groups).for_each(|(id, group)| *id = *group as u8);
        [negotiate.as_bytes(), protocol.as_bytes()].concat()
    }

    /// The reply to a challenge.
    ///
    /// # Errors
    /// What is wrong with the challenge.
    pub fn reply(&mut self, message: &[u8]) -> Result<Vec<u8>, Explanation> {
        let payload = Explanation::Payload;
        let (header, rest) = Challenge::read_from_prefix(message).map_err(|_| payload)?;
        self.check(&header.head, id::CHALLENGE)?;
        let known = |hash: &Hash| self.secrets.hashes.contains(hash);
        let hash = Hash::of(header.hash).filter(known).ok_or(Explanation::Hash)?;
        let known = |group: &Group| self.secrets.groups.contains(group);
        let group = Group::of(header.group).filter(known).ok_or(Explanation::Group)?;
        let length = usize::from(header.dh_length.get());
        let has_value = (length > 0) == (group != Group::Null) && length <= group.bytes();
        if usize::from(header.hash_length) != hash.bytes() || !has_value {
            return Err(payload);
        }
        let challenge = rest.get(..hash.bytes()).ok_or(payload)?;
        let value = rest.get(hash.bytes()..hash.bytes() + length).ok_or(payload)?;
        let sequence = header.sequence.get();
        if sequence == 0 {
            return Err(payload);
        }
        let failed = |_| Explanation::Failed;
        let pair = (group != Group::Null).then(|| Pair::new(group)).transpose().map_err(failed)?;
        let secret = pair.as_ref().map(|pair| pair.shared(value).ok_or(payload)).transpose()?;
        let secret = secret.as_ref().map(|secret| secret.as_slice());
        let terms = Terms {
            hash,
            transaction: self.id,
            host: self.host,
            subsystem: self.subsystem,
            secret,
        };
        let response = terms.host_response(&self.secrets.host, challenge, sequence);
        let (mut ours, mut number) = (vec![0; hash.bytes()], 0);
        if let Some(key) = &self.secrets.controller {
            (ours, number) = chap::challenge(hash).map_err(failed)?;
            self.expected = Some(terms.controller_response(key, &ours, number));
        }
        self.hash = Some(hash);
        let value = pair.as_ref().map_or(&[][..], |pair| &pair.public);
        let header = Reply {
            head: Head::chap(id::REPLY, self.id),
            hash_length: hash.bytes() as u8,
            reserved: 0,
            challenged: self.expected.is_some().into(),
            reserved_too: 0,
            dh_length: (value.len() as u16).into(),
            sequence: number.into(),
        };
        Ok([header.as_bytes(), &response, &ours, value].concat())
    }

    /// Checks the answer to the reply. The message to end with, if there is one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn conclude(&self, message: &[u8]) -> Result<Option<Vec<u8>>, Explanation> {
        let payload = Explanation::Payload;
        let (header, rest) = Success1::read_from_prefix(message).map_err(|_| payload)?;
        self.check(&header.head, id::SUCCESS1)?;
        let Some(expected) = &self.expected else { return Ok(None) };
        let length = self.hash.map_or(0, Hash::bytes);
        if header.responded != 1 || usize::from(header.hash_length) != length {
            return Err(payload);
        }
        let response = rest.get(..length).ok_or(payload)?;
        if !is_equal(response, expected) {
            return Err(Explanation::Failed);
        }
        let head = Head::chap(id::SUCCESS2, self.id);
        Ok(Some(Success2 { head, reserved: [0; 10] }.as_bytes().to_vec()))
    }

    fn check(&self, head: &Head, id: u8) -> Result<(), Explanation> {
        if !head.is(kind::CHAP, id) {
            return Err(Explanation::Message);
        }
        let is_ours = head.transaction.get() == self.id;
        is_ours.then_some(()).ok_or(Explanation::Payload)
    }
}

/// Authenticates ourselves on `queue`, and the target if we have a key of its.
pub(super) fn authenticate(
    queue: &mut Queue,
    transaction: &mut Transaction<'_>,
    timeout: Duration,
) -> Result<(), Error> {
    send(queue, transaction.negotiate(), timeout)?;
    let challenge = receive(queue, timeout)?;
    let reply = match transaction.reply(&challenge) {
        Ok(reply) => reply,
        Err(why) => return refuse(queue, transaction, why, timeout),
    };
    send(queue, reply, timeout)?;
    let success = receive(queue, timeout)?;
    match transaction.conclude(&success) {
        Ok(None) => Ok(()),
        Ok(Some(message)) => send(queue, message, timeout),
        Err(why) => refuse(queue, transaction, why, timeout),
    }
}

fn refuse(
    queue: &mut Queue,
    transaction: &Transaction<'_>,
    why: Explanation,
    timeout: Duration,
) -> Result<(), Error> {
    let failure = Failure::new(id::FAILURE2, transaction.id, why);
    // Whether or not it hears of it, we are through with it.
    let _ = send(queue, failure.as_bytes().to_vec(), timeout);
    Err(Error::Untrusted(Explanation::words(why as u8)))
}

fn send(queue: &mut Queue, message: Vec<u8>, timeout: Duration) -> Result<(), Error> {
    let mut sqe = fabric(fabrics::AUTHENTICATION_SEND);
    auth::put_fields(&mut sqe, message.len() as u32);
    exchange(queue, "Authentication Send", sqe, Direction::Out, message, timeout).map(drop)
}

fn receive(queue: &mut Queue, timeout: Duration) -> Result<Vec<u8>, Error> {
    let mut sqe = fabric(fabrics::AUTHENTICATION_RECEIVE);
    auth::put_fields(&mut sqe, auth::MOST);
    let room = vec![0; auth::MOST as usize];
    let received = exchange(queue, "Authentication Receive", sqe, Direction::In, room, timeout)?;
    let message = received.buffer;
    match Failure::read_from_prefix(&message) {
        Ok((failure, _)) if failure.head.is(kind::COMMON, id::FAILURE1) => {
            Err(Error::Unauthenticated(Explanation::words(failure.explanation)))
        }
        _ => Ok(message),
    }
}
