//! `ebb serve` and `ebb load` with keys: good, wrong, missing and revoked ones.

use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{allow, ebb, fails, json, path, prints, secret, valid};
use crate::serve::Serve;

const HOST: &str = "nqn.2026-11.org.example:host";
/// Of 32 bytes of 1, 2, 3 and 4.
const KEYS: [&str; 4] = [
    "DHHC-1:00:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:",
    "DHHC-1:00:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgJvwX3v:",
    "DHHC-1:00:AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMOC0aU:",
    "DHHC-1:00:BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBARoepQu:",
];

/// A file with these keys that only we may read.
fn file(folder: &TempDir, name: &str, keys: &[usize]) -> String {
    secret(folder, name, &keys.iter().map(|key| KEYS[*key]).collect::<Vec<_>>())
}

/// A server whose one host has the keys in `host.key`, and for it that in `target.key`.
fn serve(folder: &TempDir) -> Serve {
    let host = format!("{HOST}={}", path(folder.path(), "host.key"));
    let target = format!("{HOST}={}", path(folder.path(), "target.key"));
    Serve::start(&["--dhchap-key", &host, "--dhchap-ctrl-key", &target])
}

fn load<'a>(serve: &'a Serve, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["load", "--connect", &serve.address, "--duration", "100 ms"];
    let host = ["--host-nqn", HOST, "--wait", "--json"];
    [&fixed[..], &host, more].concat()
}

fn refused(serve: &Serve, more: &[&str], words: &str) {
    let (code, error) = fails(&load(serve, more));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains(words), "{error}");
}

fn count(status: &Value, pointer: &str) -> u64 {
    status.pointer(pointer).unwrap().as_u64().unwrap()
}

#[test]
fn hosts_with_their_keys_get_in_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let own = file(&folder, "host.key", &[0]);
    let target = file(&folder, "target.key", &[1]);
    let wrong = file(&folder, "wrong.key", &[3]);
    let serve = serve(&folder);
    for more in [
        &["--dhchap-secret", &own][..],
        &["--dhchap-secret", &own, "--dhchap-ctrl-secret", &target, "--connections", "3"],
        &["--dhchap-secret", &own, "--verify", "--fill", "--rw", "randrw", "--digest", "data"],
    ] {
        let report = json(&load(&serve, more));
        assert_eq!(report["completed"], true);
    }
    let status = serve.status();
    valid("serve-status-1", &status);
    assert_eq!(status["access"]["authentication"], true);
    assert_eq!(count(&status, "/access/failed"), 0);
    let succeeded = count(&status, "/access/succeeded");
    assert_eq!(succeeded, 2 + 4 + 2);
    refused(&serve, &["--dhchap-secret", &wrong], "refused to authenticate this host");
    let both = ["--dhchap-secret", &own, "--dhchap-ctrl-secret", &wrong];
    refused(&serve, &both, "the target failed to authenticate itself");
    refused(&serve, &[], "wants hosts to authenticate themselves");
}

#[test]
fn keys_are_exchanged_and_revoked_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (file(&folder, "old.key", &[0]), file(&folder, "new.key", &[2]));
    file(&folder, "host.key", &[0]);
    file(&folder, "target.key", &[1]);
    let serve = serve(&folder);
    let gets_in =
        |key: &str| assert_eq!(json(&load(&serve, &["--dhchap-secret", key]))["completed"], true);
    let stays_out = |key: &str| refused(&serve, &["--dhchap-secret", key], "authentication failed");
    gets_in(&old);
    stays_out(&new);
    file(&folder, "host.key", &[0, 2]);
    gets_in(&old);
    gets_in(&new);
    file(&folder, "host.key", &[2]);
    stays_out(&old);
    gets_in(&new);
    std::fs::remove_file(folder.path().join("host.key")).unwrap();
    stays_out(&new);
    // One that others may know is none, whoever made it so.
    let file = file(&folder, "host.key", &[2]);
    gets_in(&new);
    allow(file.as_ref(), 0o644);
    stays_out(&new);
    let status = serve.status();
    assert_eq!(count(&status, "/access/failed"), 4);
    let failures = status["access"]["failures"].as_array().unwrap();
    let whys: Vec<&str> = failures.iter().map(|one| one["why"].as_str().unwrap()).collect();
    let expected = ["another key", "another key", "cannot be read", "others may read"];
    assert!(whys.iter().zip(expected).all(|(why, words)| why.contains(words)), "{whys:?}");
    assert_eq!(
        (&failures[0]["host"], &failures[0]["address"]),
        (&HOST.into(), &"127.0.0.1".into())
    );
    let (_, metrics) = serve.get("/metrics");
    assert!(metrics.contains("ebb_authentications_total{result=\"failed\"} 4\n"), "{metrics}");
    let text = prints(&["status", &serve.metrics]);
    assert!(text.contains("4 failed") && text.contains("others may read"), "{text}");
    // The log is looked after once a second.
    std::thread::sleep(Duration::from_millis(1500));
    let log = serve.errors();
    let told = log.lines().filter(|line| line.contains("failed to authenticate itself")).count();
    assert_eq!(told, 4, "{log}");
    assert!(!KEYS.iter().any(|key| log.contains(&key[10..40])), "{log}");
}

/// A key is good with a name alone, and who loses it loses it alone.
#[test]
fn two_hosts_with_one_key_are_two_hosts() {
    const TWIN: &str = "nqn.2026-11.org.example:twin";
    let folder = tempfile::tempdir().unwrap();
    let keys = ["host.key", "twin.key"].map(|name| file(&folder, name, &[0]));
    let given = [HOST, TWIN].iter().zip(&keys).map(|(host, key)| format!("{host}={key}"));
    let given: Vec<_> = given.collect();
    let serve = Serve::start(&["--dhchap-key", &given[0], "--dhchap-key", &given[1]]);
    let load = |host| {
        let fixed = ["load", "--connect", &serve.address, "--duration", "300 ms", "--json"];
        let secret = ["--wait", "--dhchap-secret", &keys[0], "--host-nqn", host];
        ebb(&[&fixed[..], &secret].concat()).status.success()
    };
    // The same host from two machines, too.
    std::thread::scope(|scope| {
        let hosts = [HOST, TWIN, HOST].map(|host| scope.spawn(move || load(host)));
        assert_eq!(hosts.map(|host| host.join().unwrap()), [true; 3]);
    });
    assert!(!load("nqn.2026-11.org.example:stranger"));
    std::fs::remove_file(&keys[1]).unwrap();
    assert!(!load(TWIN) && load(HOST));
}

#[test]
fn a_host_on_the_list_needs_no_key_and_others_are_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let own = file(&folder, "host.key", &[0]);
    let config = folder.path().join("serve.toml");
    let text = format!(
        "allow-host = [\"nqn.2026-11.org.example:friend\"]\ndhchap-key = [\"{HOST}={own}\"]\n\
         dhchap-hash = [\"sha256\"]\ndhchap-group = [\"null\", \"ffdhe8192\"]\n"
    );
    std::fs::write(&config, text).unwrap();
    let serve = Serve::start(&["--config", config.to_str().unwrap()]);
    let fixed = ["load", "--connect", &serve.address, "--duration", "100 ms", "--json"];
    let friend = ["--host-nqn", "nqn.2026-11.org.example:friend"];
    json(&[&fixed[..], &friend].concat());
    json(&load(&serve, &["--dhchap-secret", &own]));
    let (_, error) = fails(&[&fixed[..], &["--nqn", "nqn.2026-11.org.example:ebb"]].concat());
    assert!(error.contains("no subsystem"), "{error}");
    let nqn = serve.status()["server"]["nqn"].as_str().unwrap().to_owned();
    let (_, error) = fails(&[&fixed[..], &["--nqn", &nqn]].concat());
    assert!(error.contains("allow-list"), "{error}");
    assert_eq!(count(&serve.status(), "/access/succeeded"), 2);
}

#[test]
fn wrong_keys_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let own = format!("{HOST}={}", file(&folder, "host.key", &[0]));
    let same = format!("{HOST}={}", file(&folder, "same.key", &[1, 0]));
    let three = format!("{HOST}={}", file(&folder, "three.key", &[0, 1, 2]));
    let open = file(&folder, "open.key", &[0]);
    allow(open.as_ref(), 0o640);
    let open = format!("{HOST}={open}");
    let other = own.replacen(":host", ":other", 1);
    let namespace = ["serve", "--namespace", "ram:1MiB", "--listen", "127.0.0.1:0"];
    for (more, words) in [
        (&["--dhchap-key", HOST][..], "write NQN=FILE"),
        (&["--dhchap-key", "host=/etc/key"], "is no NVMe qualified name"),
        (&["--dhchap-key", "nqn.2026-01.x:h=/nowhere/key"], "/nowhere/key: cannot be read"),
        (&["--dhchap-key", &open], "chmod 600"),
        (&["--dhchap-key", &three], "3 secrets, at most 2 may be"),
        (&["--dhchap-key", &own, "--dhchap-key", &same], "has a file already"),
        (&["--dhchap-ctrl-key", &own], "needs a key too"),
        (&["--dhchap-key", &own, "--dhchap-ctrl-key", &other], "needs a key too"),
        (&["--dhchap-key", &own, "--dhchap-ctrl-key", &own], "the host's too"),
        (&["--dhchap-key", &own, "--dhchap-hash", "md5"], "one of sha256, sha384, sha512"),
        (&["--dhchap-key", &own, "--dhchap-group", "modp"], "one of null, ffdhe2048"),
    ] {
        let (code, error) = fails(&[&namespace[..], more].concat());
        assert!(code == 2 && error.contains(words), "{more:?}: {error}");
    }
    let missing = ["load", "--connect", "127.0.0.1:1", "--dhchap-secret", "/nowhere/key"];
    let (code, error) = fails(&missing);
    assert!(code == 2 && error.contains("--dhchap-secret /nowhere/key: cannot"), "{error}");
}
