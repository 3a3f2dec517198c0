//! Names the sources that decide what the twin gives, so that kept results can say whether they
//! are of these.

use std::path::PathBuf;
use std::{env, fs, io};

/// Policies, traces and twin, and what runs the papers' experiments: not what prints them.
const SOURCES: [&str; 19] = [
    "../policy/src",
    "../trace/src",
    "../twin/profiles",
    "../twin/src",
    "src/characterise/twin.rs",
    "src/paper/drive.rs",
    "src/paper/eadc",
    "src/paper/lab.rs",
    "src/paper/pacer",
    "src/paper/pacman",
    "src/paper/sandman/bursts.rs",
    "src/paper/sandman/cloud.rs",
    "src/paper/sandman/lab.rs",
    "src/paper/sandman/stable.rs",
    "src/paper/span.rs",
    "src/paper/storage_servers",
    "../cli/src/random.rs",
    "../bench/src/replay/pattern.rs",
    "src/sim/maximum.rs",
];

fn main() -> io::Result<()> {
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        collect(PathBuf::from(source), &mut files)?;
    }
    files.sort();
    // FNV-1a is enough to tell versions apart: the digest protects against no attack.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for path in files {
        for byte in path.to_string_lossy().bytes().chain(fs::read(&path)?) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=EBB_SOURCES={digest:016x}");
    println!("cargo::rerun-if-env-changed=EBB_COMMIT");
    let commit = env::var("EBB_COMMIT").map_or(String::new(), |id| format!("commit {id}, "));
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=EBB_VERSION={version} ({commit}sources {digest:016x})");
    Ok(())
}

/// Adds a file, or all files of a folder.
fn collect(path: PathBuf, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path);
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(entry?.path(), files)?;
    }
    Ok(())
}
