//! `ebb restore` on disks, folders and machines that are not as they should be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{ebb, fails, path, prints, valid};
use crate::run::{CHIP, Copy, kill_both, str};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// `ebb` with the state folder on a disk that has become read-only; `None` where none can be made.
fn on_a_read_only_disk(copy: &Copy, args: &[&str]) -> Option<Output> {
    let state = path(copy.folder.path(), "state");
    let script = r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99
        shift; exec "$@""#;
    for own in [&["-m"][..], &["-rm"]] {
        let mut command = Command::new("unshare");
        command.args(own).args(["sh", "-c", script, "sh", &state, env!("CARGO_BIN_EXE_ebb")]);
        let Ok(output) = command.args(args).output() else { continue };
        let refused = text(&output.stderr).contains("unshare");
        if !refused && output.status.code() != Some(99) {
            return Some(output);
        }
    }
    println!("skipped: no mount can be made here");
    None
}

/// A disk that the kernel has remounted read-only, and both processes killed.
#[test]
fn a_read_only_disk_does_not_keep_a_machine_from_being_set_back() {
    let copy = Copy::new();
    let before = copy.all();
    kill_both(copy.start(&[]));
    assert_eq!(copy.fan(), "1");
    let args = copy.args(&["restore"]);
    let Some(output) = on_a_read_only_disk(&copy, &str(&args)) else { return };
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(text(&output.stdout).contains("'1' -> '5'"), "{output:?}");
    assert!(error.contains("cannot be recorded") && error.contains("Read-only"), "{error}");
    assert_eq!(copy.fan(), "5");
    // Writable again, it is found done, and forgotten.
    let done = prints(&str(&args));
    assert!(done.starts_with("0 of ") && done.contains(" already had"), "{done}");
    assert_eq!(prints(&str(&args)), "nothing to restore\n");
    assert_eq!(copy.all(), before);
}

/// The lock is the machine's: with another state folder there is no second one that acts, and
/// what one has left is set back by the next, whatever its folder is.
#[test]
fn another_state_folder_makes_no_other_machine() {
    let copy = Copy::new();
    let before = copy.all();
    let other = path(copy.folder.path(), "other");
    let with_other = |command: &[&str]| {
        let mut args = copy.args(command);
        args.retain(|arg| !arg.ends_with("/state") && arg != "--state");
        args.extend(["--state".to_owned(), other.clone()]);
        args
    };
    let child = copy.start(&[]);
    let acting = ["run", "--policy", "eadc", "--apply", "--duration", "1 s"];
    for command in [&acting[..], &["restore"]] {
        fs::create_dir_all(&other).unwrap();
        let (code, error) = fails(&str(&with_other(command)));
        assert!(code == 1 && error.contains("another ebb acts on this machine"), "{error}");
    }
    kill_both(child);
    assert_eq!(copy.fan(), "1");
    let output = ebb(&str(&with_other(&acting)));
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("'1' -> '5'"), "set back first: {error}");
    assert_eq!(copy.all(), before);
    // `ebb restore` finds it too.
    kill_both(copy.start(&[]));
    assert!(prints(&str(&with_other(&["restore"]))).contains("'1' -> '5'"));
    assert_eq!(copy.all(), before);
    // And says so where it cannot be read any more.
    kill_both(copy.start(&[]));
    let (state, away) = (copy.folder.path().join("state"), copy.folder.path().join("away"));
    fs::rename(&state, &away).unwrap();
    for command in [&acting[..], &["restore"]] {
        let (code, error) = fails(&str(&with_other(command)));
        assert!(code == 1 && error.contains(state.to_str().unwrap()), "{error}");
        assert_eq!(copy.fan(), "1");
    }
    fs::rename(&away, &state).unwrap();
    prints(&str(&with_other(&["restore"])));
    assert_eq!(copy.all(), before);
}

/// A board's chip that has gone, as when its driver is unloaded: the rest is set back, it is waited
/// for, and given up where the operator says so.
#[test]
fn what_is_away_is_waited_for_or_given_up() {
    let copy = Copy::new();
    let before = copy.all();
    kill_both(copy.start(&[]));
    let root = copy.folder.path().join("root");
    fs::rename(root.join(CHIP), root.join("away")).unwrap();
    let args = copy.args(&["restore", "--json"]);
    let output = ebb(&str(&args));
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains(" wait for their device") && error.contains("--forget"), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("restore-1", &report);
    let waits = |one: &&Value| one["outcome"] == "pending";
    assert_eq!(report["restored"].as_array().unwrap().iter().filter(waits).count(), 4, "{report}");
    let output = ebb(&str(&copy.args(&["restore"])));
    let line = "pwm1_enable of nct6798 waits for its device: nct6798: not there\n";
    assert!(text(&output.stdout).contains(line), "{output:?}");
    let (code, error) = fails(&str(&copy.args(&["restore", "--forget", "pwm9"])));
    assert!(code == 2 && error.contains("\n  pwm2_enable of nct6798"), "{error}");
    let gone = prints(&str(&copy.args(&["restore", "--forget", "pwm2_enable of nct6798"])));
    assert_eq!(gone, "pwm2_enable of nct6798: forgotten\n");
    fs::rename(root.join("away"), root.join("sys/class/hwmon/hwmon7")).unwrap();
    prints(&str(&copy.args(&["restore"])));
    let mode = |fan: u8| copy.get(&format!("sys/class/hwmon/hwmon7/pwm{fan}_enable"));
    assert_eq!((mode(1), mode(2)), ("5".to_owned(), "1".to_owned()));
    fs::rename(root.join("sys/class/hwmon/hwmon7"), root.join(CHIP)).unwrap();
    copy.put(&format!("{CHIP}/pwm2_enable"), 5);
    assert_eq!(copy.all(), before);
}

/// Whoever can write what root reads can have root write: it is refused, with what to do.
#[test]
fn what_others_may_write_is_not_followed() {
    let copy = Copy::new();
    kill_both(copy.start(&[]));
    let state = copy.folder.path().join("state");
    let mode = |mode| fs::set_permissions(&state, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o777);
    let (code, error) = fails(&str(&copy.args(&["restore"])));
    assert!(code == 1 && error.contains("others may write") && error.contains("chmod"), "{error}");
    let (code, error) = fails(&str(&copy.run(&["--apply"])));
    assert!(code == 1 && error.contains("nothing was changed"), "{error}");
    assert_eq!(copy.fan(), "1");
    mode(0o700);
    prints(&str(&copy.args(&["restore"])));
    assert_eq!(copy.fan(), "5");
    let file = path(copy.folder.path(), "ebb.toml");
    fs::write(&file, "policy = \"eadc\"").unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    let (code, error) = fails(&str(&copy.run(&["--apply", "--config", &file])));
    assert!(code == 2 && error.contains(&format!("chmod go-w {file}")), "{error}");
    assert_eq!(copy.fan(), "5");
    prints(&str(&copy.run(&["--config", &file, "--duration", "0.1 s"])));
    // Nor what others may put in its place, by itself or by a link to it; /tmp is for everybody.
    let folder = copy.folder.path().join("open");
    fs::create_dir(&folder).unwrap();
    let (own, link) = (path(&folder, "ebb.toml"), path(copy.folder.path(), "link.toml"));
    fs::write(&own, "policy = \"eadc\"").unwrap();
    std::os::unix::fs::symlink(&own, &link).unwrap();
    for file in [&own, &link] {
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        let (code, error) = fails(&str(&copy.run(&["--apply", "--config", file])));
        let remedy = format!("chmod go-w {}", folder.display());
        assert!(
            code == 2 && error.contains("others may write") && error.contains(&remedy),
            "{error}"
        );
        assert_eq!(copy.fan(), "5");
        for mode in [0o1777, 0o755] {
            fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
            let args = copy.run(&["--apply", "--config", file, "--duration", "0.1 s"]);
            assert_eq!(ebb(&str(&args)).status.code(), Some(0), "{mode:o}");
        }
    }
}

/// What was found is lost: that is no machine on which nothing is to be restored.
#[test]
fn a_damaged_file_is_not_nothing_to_restore() {
    let copy = Copy::new();
    kill_both(copy.start(&[]));
    copy.put(&format!("{CHIP}/pwm1"), 60);
    let file = copy.folder.path().join("state/originals.json");
    let saved = fs::read(&file).unwrap();
    fs::write(&file, &saved[..saved.len() / 2]).unwrap();
    let output = ebb(&str(&copy.args(&["restore"])));
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{error}");
    assert!(error.contains("originals.json: ") && error.contains("--leave safe"), "{error}");
    let output = ebb(&str(&copy.args(&["restore", "--json"])));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("restore-1", &report);
    assert_eq!(report["unread"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(copy.get(&format!("{CHIP}/pwm1")), "60");
    let output = ebb(&str(&copy.args(&["restore", "--leave", "safe"])));
    assert_eq!(output.status.code(), Some(1), "what else was set nobody knows");
    assert!(text(&output.stdout).contains("pwm1 of nct6798: '60' -> '255'"), "{output:?}");
    assert_eq!(copy.get(&format!("{CHIP}/pwm1")), "255");
    fs::write(&file, saved).unwrap();
    prints(&str(&copy.args(&["restore"])));
    assert_eq!(copy.fan(), "5");
}
