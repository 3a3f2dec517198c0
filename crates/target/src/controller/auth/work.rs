//! What takes too long for a reactor: reading keys and raising to powers.

use std::borrow::Cow;

use ebb_nvme::auth::Explanation;
use ebb_nvme::chap::{self, Group, Hash, Pair, Terms, is_equal};

use super::{Keys, Secrets};

/// What a transaction needs done before it can go on.
pub(super) enum Work {
    /// A challenge, and a DH value of the group.
    Prepare(Hash, Group),
    /// Whether a reply is right.
    Verify(Box<Verify>),
}

/// What the host must answer to.
pub(super) struct Challenged {
    pub hash: Hash,
    pub group: Group,
    pub challenge: Vec<u8>,
    pub sequence: u32,
    /// None with the null group.
    pub pair: Option<Pair>,
}

/// A reply to verify.
pub(super) struct Verify {
    pub challenged: Challenged,
    pub transaction: u16,
    pub response: Vec<u8>,
    /// The host's challenge and its sequence number, if it wants the target to answer one.
    pub theirs: Option<(Vec<u8>, u32)>,
    /// Its DH value.
    pub value: Vec<u8>,
}

/// What has come of it.
pub(super) enum Outcome {
    Prepared {
        challenge: Vec<u8>,
        sequence: u32,
        pair: Option<Pair>,
    },
    /// The reply is right; our response to the host's challenge.
    Verified(Option<Vec<u8>>),
    Failed(Explanation, Cow<'static, str>),
}

impl Work {
    /// Does it for `host` of `subsystem`.
    pub fn run(self, secrets: &dyn Secrets, host: &str, subsystem: &str) -> Outcome {
        let done = match self {
            Self::Prepare(hash, group) => prepare(hash, group),
            Self::Verify(verify) => secrets
                .keys(host)
                .map_err(|why| (Explanation::Failed, why.into()))
                .and_then(|keys| verify.run(&keys, host, subsystem)),
        };
        done.unwrap_or_else(|(why, text)| Outcome::Failed(why, text))
    }
}

fn prepare(hash: Hash, group: Group) -> Result<Outcome, (Explanation, Cow<'static, str>)> {
    let none = |error| (Explanation::Failed, format!("no random numbers: {error}").into());
    let (challenge, sequence) = chap::challenge(hash).map_err(none)?;
    let pair = (group != Group::Null).then(|| Pair::new(group)).transpose().map_err(none)?;
    Ok(Outcome::Prepared { challenge, sequence, pair })
}

impl Verify {
    fn run(
        &self,
        keys: &Keys,
        host: &str,
        subsystem: &str,
    ) -> Result<Outcome, (Explanation, Cow<'static, str>)> {
        let Challenged { hash, challenge, sequence, pair, .. } = &self.challenged;
        let secret = match pair {
            None => None,
            Some(pair) => Some(pair.shared(&self.value).ok_or((
                Explanation::Payload,
                Cow::Borrowed("the host's DH value is not one of its group"),
            ))?),
        };
        let secret = secret.as_ref().map(|secret| secret.as_slice());
        let terms = Terms { hash: *hash, transaction: self.transaction, host, subsystem, secret };
        // Each key is tried, so that time does not tell which it was.
        let is_right = keys.host.iter().fold(false, |is_right, key| {
            is_equal(&terms.host_response(key, challenge, *sequence), &self.response) | is_right
        });
        if !is_right {
            return Err((Explanation::Failed, "the host's response is wrong: another key".into()));
        }
        let Some((challenge, sequence)) = &self.theirs else { return Ok(Outcome::Verified(None)) };
        let key = keys.controller.as_ref().ok_or((
            Explanation::Failed,
            Cow::Borrowed("the host wants the target to authenticate itself, which has no key"),
        ))?;
        if keys.host.iter().any(|other| other.is_same(key)) {
            // Who is asked could ask the asker the same (Base 8.13.5.7).
            let why = "the key of the host is the target's too; make another for one of them";
            return Err((Explanation::Failed, why.into()));
        }
        Ok(Outcome::Verified(Some(terms.controller_response(key, challenge, *sequence))))
    }
}
