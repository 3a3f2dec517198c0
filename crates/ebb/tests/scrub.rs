//! `ebb scrub` over an array that was served and then damaged.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::common::{ebb, fails, path, valid};
use crate::serve::Serve;

/// An array with random data on three files: how `ebb` is told of it.
fn array(folder: &Path) -> ([String; 3], String) {
    let members = ["a.img", "b.img", "c.img"].map(|name| path(folder, name));
    let array = format!("raid5:{}", members.join(","));
    let serve = Serve::start(&["--namespace", &format!("{array},create,size=16MiB,journal=16")]);
    serve.write_random(2);
    serve.end();
    (members, array)
}

/// Changes a byte of a file.
fn damage(member: &str, at: u64) {
    let file: File = OpenOptions::new().read(true).write(true).open(member).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

fn scrub(array: &str, more: &[&str]) -> (i32, Value) {
    let output = ebb(&[&["scrub", array, "--json"], more].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("scrub-1", &report);
    (output.status.code().unwrap(), report)
}

#[test]
fn what_does_not_fit_is_named_and_made_to_fit_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let (members, array) = array(folder.path());
    let (code, report) = scrub(&array, &[]);
    let stripes = report["stripes"].as_u64().unwrap();
    assert!(code == 0 && report["wrong"] == Value::from(Vec::<Value>::new()), "{report}");
    assert_eq!((&report["to"], &report["incomplete"]), (&stripes.into(), &0.into()));
    // Chunks of 64 KiB, from 3 MiB on: superblocks, then a journal of 16 slots.
    let data = 3 << 20;
    damage(&members[1], data + 5 * (64 << 10) + 100);
    damage(&members[2], data + 7 * (64 << 10) + 200);
    let (code, report) = scrub(&array, &[]);
    let wrong = report["wrong"].as_array().unwrap();
    assert_eq!((code, wrong.len()), (1, 2), "{report}");
    assert_eq!((&wrong[0]["stripe"], &wrong[1]["stripe"]), (&5.into(), &7.into()));
    assert_eq!(wrong[0]["first_byte"], 5 * (128 << 10));
    let text = wrong[0]["text"].as_str().unwrap();
    assert!(text.contains("which chunk is wrong is not known"), "{text}");
    assert!(text.contains("bytes 100 to 100 of its chunks"), "{text}");
    // From the stripe after the first on; at a pace.
    let (code, report) = scrub(&array, &["--from", "6", "--rate", "1GiB"]);
    assert_eq!((code, report["wrong"].as_array().unwrap().len()), (1, 1));
    let (code, report) = scrub(&array, &["--repair"]);
    assert!(code == 0 && report["wrong"][1]["repaired"] == true, "{report}");
    assert_eq!(scrub(&array, &[]).0, 0);
}

#[test]
fn what_cannot_be_scrubbed_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (members, array) = array(folder.path());
    std::fs::remove_file(&members[0]).unwrap();
    let (code, report) = scrub(&format!("{array},degraded"), &[]);
    assert_eq!((code, &report["incomplete"]), (1, &report["stripes"]));
    let file = format!("file:{}", members[1]);
    for (args, words) in [
        (vec!["scrub", &file], "not an array"),
        (vec!["scrub", &array], "cannot find it"),
        (vec!["scrub", "raid5:/a,/b,/c,create"], "ebb serve"),
        (vec!["scrub", &array, "--rate", "0 B"], "above 0"),
    ] {
        let (code, error) = fails(&args);
        assert!(code != 0 && error.contains(words), "{args:?}: {error}");
    }
}

/// A server that has the array open keeps others out.
#[test]
fn an_array_that_is_served_is_not_scrubbed() {
    let folder = tempfile::tempdir().unwrap();
    let (_, array) = array(folder.path());
    let _serve = Serve::start(&["--namespace", &array]);
    let (_, error) = fails(&["scrub", &array]);
    assert!(error.contains("in use"), "{error}");
}
