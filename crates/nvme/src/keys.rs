//! Files with secrets of DH-HMAC-CHAP and keys for TLS, as `nvme gen-dhchap-key` and `nvme
//! gen-tls-key` make them.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::chap::Key;
use crate::tls;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::process::geteuid;
use zeroize::Zeroizing;

/// Bytes of a file at most: a hundred for each secret, and comments.
const MOST: u64 = 4096;

/// The secrets of DH-HMAC-CHAP in a file, one or up to `most`: a line each, beside blank ones and
/// those that begin with `#`.
///
/// # Errors
/// Names the file, what is wrong and what to do; nothing of what is in it.
pub fn read(path: &Path, most: usize) -> Result<Vec<Key>, String> {
    read_as(path, most, Key::parse, "nvme gen-dhchap-key")
}

/// The keys for TLS in a file likewise.
///
/// # Errors
/// As above.
pub fn read_tls(path: &Path, most: usize) -> Result<Vec<tls::Key>, String> {
    read_as(path, most, tls::Key::parse, "nvme gen-tls-key")
}

fn read_as<K, E: Display>(
    path: &Path,
    most: usize,
    parse: fn(&str) -> Result<K, E>,
    made_by: &str,
) -> Result<Vec<K>, String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    let text = text(path).map_err(wrong)?;
    let is_secret = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let lines = text.lines().enumerate().filter(|(_, line)| is_secret(line));
    let keys: Result<Vec<K>, String> = lines
        .map(|(number, line)| {
            parse(line).map_err(|error| wrong(format!("line {}: {error}", number + 1)))
        })
        .collect();
    let keys = keys?;
    match keys.len() {
        0 => Err(wrong(format!("no secret is in it; make one with {made_by}"))),
        count if count > most => Err(wrong(format!("{count} secrets, at most {most} may be"))),
        _ => Ok(keys),
    }
}

fn text(path: &Path) -> Result<Zeroizing<String>, String> {
    // Not waiting for a pipe's other end.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty())
        .map_err(|error| format!("cannot be read: {}", std::io::Error::from(error)))?;
    let stat = fstat(&file).map_err(|error| error.to_string())?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err("is no file".to_owned());
    }
    let us = geteuid().as_raw();
    if stat.st_uid != 0 && stat.st_uid != us {
        let owner = stat.st_uid;
        return Err(format!("belongs to user {owner}, who knows it; make another and chown {us}"));
    }
    if stat.st_mode & 0o077 != 0 {
        let mode = stat.st_mode & 0o777;
        return Err(format!("others may read or write it (mode {mode:03o}); chmod 600"));
    }
    let mut text = Zeroizing::new(String::with_capacity(MOST as usize + 1));
    let read = File::from(file).take(MOST + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > MOST {
        return Err(format!("is longer than {MOST} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    const ONE: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
    const OTHER: &str = "DHHC-1:01:vYcm5QemILkz5zSIeZidb4nPGcxongu2l/OaWMRgM9iIk/2A:";

    fn file(folder: &tempfile::TempDir, text: &str, mode: u32) -> PathBuf {
        let path = folder.path().join("host.key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_file_holds_one_key_or_two_while_they_are_exchanged() {
        let folder = tempfile::tempdir().unwrap();
        let one = read(&file(&folder, ONE, 0o600), 2).unwrap();
        assert_eq!(one, [Key::parse(ONE).unwrap()]);
        let both = format!("# old\n{ONE}\n\n  # new\n{OTHER}\n");
        let both = file(&folder, &both, 0o400);
        let read_both = read(&both, 2).unwrap();
        assert_eq!(read_both, [one[0].clone(), Key::parse(OTHER).unwrap()]);
        assert!(read(&both, 1).unwrap_err().ends_with("2 secrets, at most 1 may be"));
    }

    #[test]
    fn what_is_wrong_is_said_and_nothing_of_the_secret() {
        let folder = tempfile::tempdir().unwrap();
        let secret = &ONE[10..ONE.len() - 1];
        let broken = ONE.replace("ia6z", "ia6y");
        for (text, mode, words) in [
            (ONE, 0o640, "mode 640); chmod 600"),
            (ONE, 0o604, "mode 604); chmod 600"),
            ("", 0o600, "no secret"),
            ("# nothing\n", 0o600, "no secret"),
            (&format!("\n{broken}"), 0o600, "line 2: its checksum is wrong"),
            (&ONE[10..], 0o600, "line 1: it does not have the form"),
            (&"#".repeat(5000), 0o600, "longer than 4096 bytes"),
        ] {
            let error = read(&file(&folder, text, mode), 2).unwrap_err();
            assert!(error.contains("host.key: ") && error.contains(words), "{error}");
            assert!(!error.contains(secret), "{error}");
        }
        assert!(read(folder.path(), 2).unwrap_err().contains("is no file"));
        let missing = read(&folder.path().join("none"), 2).unwrap_err();
        assert!(missing.contains("cannot be read: No such file"), "{missing}");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(read(&pipe, 2).unwrap_err().contains("is no file"));
    }
}
