//! The answer to an admin command.

/// What a command that succeeds answers.
pub(super) struct Answer {
    pub result: u64,
    pub data: Vec<u8>,
}

impl Answer {
    pub fn nothing() -> Self {
        Self::result(0)
    }
    pub fn result(result: u64) -> Self {
        Self { result, data: Vec::new() }
    }
    pub fn data(data: Vec<u8>) -> Self {
        Self { result: 0, data }
    }
}
