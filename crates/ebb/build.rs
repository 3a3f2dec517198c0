//! Names the sources that decide what the twin gives, so that kept results can say whether they
//! are of these.

use std::path::{Path, PathBuf};
use std::{fs, io};

const SOURCES: [&str; 4] = ["../policy/src", "../trace/src", "../twin/profiles", "../twin/src"];

fn main() -> io::Result<()> {
    let mut files = Vec::new();
    for folder in SOURCES {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files)?;
    }
    files.sort();
    // FNV-1a: it tells versions apart, and nobody has to trust it.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for path in files {
        for byte in path.to_string_lossy().bytes().chain(fs::read(&path)?) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=EBB_SOURCES={digest:016x}");
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
