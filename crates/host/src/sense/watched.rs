//! A file of the kernel that is read in every cycle: opened once, read into one buffer.

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::pread;

use crate::sys::{Absent, LONGEST, Sys, open, too_long};

/// What is read of a file at once at first; the buffer grows with the file.
const FIRST: usize = 128;

/// Such a file.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Watched {
    /// The file `path` under the root of `sys`; it need not be there yet.
    #[must_use]
    pub fn new(sys: &Sys, path: &str) -> Self {
        Self { path: sys.path(path), file: None, bytes: vec![0; FIRST] }
    }

    /// Its text now, without white space around it.
    ///
    /// # Errors
    /// Why there is none. The next call opens it anew: its device may have gone and come back.
    pub fn text(&mut self) -> Result<&str, Absent> {
        match self.read() {
            Ok(length) => {
                let text = str::from_utf8(&self.bytes[..length]).map(str::trim);
                text.map_err(|_| Absent::Nonsense {
                    path: self.path.clone(),
                    text: String::new(),
                    expected: "text",
                })
            }
            Err(error) => {
                self.file = None;
                Err(Absent::new(self.path.clone(), &error))
            }
        }
    }

    /// The number in it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn number<T: FromStr>(&mut self) -> Result<T, Absent> {
        let text = self.text()?;
        let Ok(number) = text.parse() else {
            let text = text.chars().take(40).collect();
            return Err(Absent::Nonsense { path: self.path.clone(), text, expected: "a number" });
        };
        Ok(number)
    }

    fn read(&mut self) -> std::io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(&self.path)?),
        };
        let mut length = 0;
        loop {
            let read = pread(&*file, &mut self.bytes[length..], length as u64)?;
            length += read;
            if read == 0 {
                return Ok(length);
            }
            if length as u64 > LONGEST {
                return Err(too_long());
            }
            if length == self.bytes.len() {
                self.bytes.resize(2 * length, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_there_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = Watched::new(&Sys::new(folder.path()), "file");
        assert!(matches!(file.number::<u64>(), Err(Absent::Missing(_))));
        std::fs::write(&path, "17\n").unwrap();
        assert_eq!(file.number(), Ok(17));
        std::fs::write(&path, format!("{}\n", "x".repeat(100_000))).unwrap();
        assert_eq!(file.text().map(str::len), Ok(100_000));
        assert!(matches!(file.number::<u64>(), Err(Absent::Nonsense { .. })));
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(file.text().unwrap_err().to_string().contains("longer than"));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(file.text().unwrap_err().to_string().contains("not a regular file"));
    }
}
