//! Why a profile is refused.

/// Why a profile was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No shipped profile or file has this name.
    #[error("unknown profile '{name}': not a shipped one ({valid}) and not a file")]
    Unknown {
        /// As asked for.
        name: String,
        /// Names of the shipped profiles.
        valid: String,
    },
    /// A file that cannot be read.
    #[error("{name}: {source}")]
    Unread {
        /// As asked for.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not TOML, or not a profile; the message carries line and column.
    #[error("{origin}: {reason}")]
    Syntax {
        /// File or shipped profile.
        origin: String,
        /// What the parser said, with the line.
        reason: Box<toml::de::Error>,
    },
    /// A value that cannot be.
    #[error("{origin}:{line}: {key}: {reason}")]
    Value {
        /// File or shipped profile.
        origin: String,
        /// Line of the key, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong and what would be valid.
        reason: String,
    },
}

/// An impossible value: in which table, the how many-eth of its name, under which key.
pub(super) struct Wrong {
    pub(super) table: &'static str,
    pub(super) index: usize,
    pub(super) key: &'static str,
    pub(super) reason: String,
}

pub(super) fn wrong(table: &'static str, key: &'static str, reason: String) -> Result<(), Wrong> {
    Err(Wrong { table, index: 0, key, reason })
}
