//! `ebb serve` and `ebb load` over TLS: good, wrong, missing and revoked keys.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use ebb_nvme::tls::{Derivation, Key, Version};
use tempfile::TempDir;

use crate::common::{allow, fails, json, path, prints, secret, valid};
use crate::serve::Serve;

const HOST: &str = "nqn.2026-11.org.example:host";
const OTHER: &str = "nqn.2026-11.org.example:other";
const NQN: &str = "nqn.2026-11.org.example:ebb";
/// Of 32 bytes of 1 and 2, and of 48 of 4.
const KEYS: [&str; 3] = [
    "NVMeTLSkey-1:01:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:",
    "NVMeTLSkey-1:01:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgJvwX3v:",
    "NVMeTLSkey-1:02:BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEvGCx5w==:",
];

/// A file with these keys that only we may read.
fn file(folder: &TempDir, name: &str, keys: &[usize]) -> String {
    secret(folder, name, &keys.iter().map(|key| KEYS[*key]).collect::<Vec<_>>())
}

/// A server that offers TLS on one address and requires it on another, which is the second result.
fn serve(folder: &TempDir) -> (Serve, String) {
    let [host, other] = [(HOST, "host.key"), (OTHER, "other.key")]
        .map(|(host, name)| format!("{host}={}", path(folder.path(), name)));
    let keys = ["--tls-key", &host, "--tls-key", &other];
    let serve = Serve::start(&[&keys[..], &["--tls-listen", "127.0.0.1:0", "--nqn", NQN]].concat());
    let status = serve.status();
    let required = status["access"]["tls"].as_array().unwrap().iter();
    let required = required.filter(|one| one["required"] == true).map(|one| &one["listen"]);
    let address = required.map(|one| one.as_str().unwrap().to_owned()).next().unwrap();
    (serve, address)
}

fn load<'a>(address: &'a str, host: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["load", "--connect", address, "--host-nqn", host, "--duration", "100 ms"];
    [&fixed[..], &["--wait", "--json"], more].concat()
}

fn refused(arguments: &[&str], words: &str) {
    let (code, error) = fails(arguments);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains(words), "{error}");
}

#[test]
fn hosts_with_their_keys_get_in_by_both_listeners_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (file(&folder, "host.key", &[0]), file(&folder, "other.key", &[2]));
    let wrong = file(&folder, "wrong.key", &[1]);
    let (serve, required) = serve(&folder);
    for (address, host, key) in [
        (&serve.address, HOST, &own),
        (&required, HOST, &own),
        (&serve.address, OTHER, &other),
        (&required, OTHER, &other),
    ] {
        let verify = ["--tls-key", key, "--verify", "--fill", "--rw", "randrw"];
        let sizes = ["--block-size", "64KiB", "--digest", "header,data"];
        let report = json(&load(address, host, &[&verify[..], &sizes].concat()));
        assert_eq!(report["completed"], true);
    }
    let status = serve.status();
    valid("serve-status-1", &status);
    assert_eq!(
        (&status["access"]["failed"], &status["access"]["warning"]),
        (&0.into(), &().into())
    );
    refused(&load(&serve.address, HOST, &["--tls-key", &wrong]), "no TLS with the target");
    refused(&load(&required, OTHER, &["--tls-key", &own]), "no TLS with the target");
    refused(&load(&required, HOST, &["--nqn", NQN]), "connection");
    // The name alone is not enough without TLS.
    refused(&load(&serve.address, HOST, &["--nqn", NQN]), "may need a key for TLS");
    let text = prints(&["status", &serve.metrics]);
    assert!(text.contains(&format!("TLS required on {required}")), "{text}");
    assert!(text.contains(&format!("TLS offered on {}", serve.address)), "{text}");
    assert!(text.contains("TLS with another key"), "{text}");
}

#[test]
fn keys_are_exchanged_and_revoked_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (file(&folder, "old.key", &[0]), file(&folder, "new.key", &[1]));
    file(&folder, "host.key", &[0]);
    file(&folder, "other.key", &[2]);
    let (serve, required) = serve(&folder);
    fn options(key: &str) -> [&str; 4] {
        ["--nqn", NQN, "--tls-key", key]
    }
    let gets_in = |key: &str| {
        assert_eq!(json(&load(&required, HOST, &options(key)))["completed"], true);
    };
    let stays_out =
        |key: &str| refused(&load(&required, HOST, &options(key)), "no TLS with the target");
    gets_in(&old);
    stays_out(&new);
    file(&folder, "host.key", &[0, 1]);
    gets_in(&old);
    gets_in(&new);
    file(&folder, "host.key", &[1]);
    stays_out(&old);
    gets_in(&new);
    let file = file(&folder, "host.key", &[1]);
    allow(file.as_ref(), 0o644);
    stays_out(&new);
    std::fs::remove_file(&file).unwrap();
    stays_out(&new);
    let status = serve.status();
    let failures = status["access"]["failures"].as_array().unwrap();
    let whys: Vec<&str> = failures.iter().map(|one| one["why"].as_str().unwrap()).collect();
    let expected = ["another key", "another key", "others may read", "cannot be read"];
    assert_eq!(whys.len(), 4);
    assert!(whys.iter().zip(expected).all(|(why, words)| why.contains(words)), "{whys:?}");
    // The log is looked after once a second.
    std::thread::sleep(Duration::from_millis(1500));
    let log = serve.errors();
    let told = log.lines().filter(|line| line.contains("failed to authenticate itself")).count();
    assert_eq!(told, 4, "{log}");
    assert!(!KEYS.iter().any(|key| log.contains(&key[20..40])), "{log}");
}

/// Another implementation of TLS, as far as it goes: SHA-256 alone.
#[test]
fn openssl_gets_its_answer() {
    if Command::new("openssl").arg("version").output().is_err() {
        return; // A machine without it; the guest test has Linux's.
    }
    let folder = tempfile::tempdir().unwrap();
    file(&folder, "host.key", &[0]);
    file(&folder, "other.key", &[2]);
    let (_serve, required) = serve(&folder);
    for (version, derivation) in
        [(Version::One, Derivation::Rfc8446), (Version::Zero, Derivation::Compat)]
    {
        let psk = Key::parse(KEYS[0]).unwrap().psk(version, derivation, HOST, NQN).unwrap();
        let secret: String = psk.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-tls1_3", "-connect", &required])
            .args(["-psk_identity", &psk.identity, "-psk", &secret])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut request = [0; 128]; // ICReq: of 128 bytes, without anything in particular.
        (request[2], request[4]) = (128, 128);
        client.stdin.as_mut().unwrap().write_all(&request).unwrap();
        let mut answer = [0; 128];
        client.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        assert_eq!(answer[..5], [1, 0, 128, 0, 128], "ICResp");
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

#[test]
fn wrong_keys_and_options_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let own = format!("{HOST}={}", file(&folder, "host.key", &[0]));
    let three = format!("{HOST}={}", file(&folder, "three.key", &[0, 1, 2]));
    let open = file(&folder, "open.key", &[0]);
    allow(open.as_ref(), 0o640);
    let open = format!("{HOST}={open}");
    let chap = folder.path().join("chap.key");
    std::fs::write(&chap, "DHHC-1:00:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:").unwrap();
    allow(&chap, 0o600);
    let chap = format!("{HOST}={}", chap.display());
    let namespace = ["serve", "--namespace", "ram:1MiB", "--listen", "127.0.0.1:0"];
    for (more, words) in [
        (&["--tls-key", HOST][..], "write NQN=FILE"),
        (&["--tls-key", "host=/etc/key"], "is no NVMe qualified name"),
        (&["--tls-key", &open], "chmod 600"),
        (&["--tls-key", &three], "3 secrets, at most 2 may be"),
        (&["--tls-key", &chap], "the form NVMeTLSkey-1:xx:...:"),
        (&["--tls-key", &own, "--tls-key", &three], "3 secrets"),
        (&["--tls-key", &own, "--tls-key", &own], "has a file already"),
        (&["--tls-listen", "127.0.0.1:0"], "no host has a key for TLS"),
    ] {
        let (code, error) = fails(&[&namespace[..], more].concat());
        assert!(code == 2 && error.contains(words), "{more:?}: {error}");
    }
    let missing = ["load", "--connect", "127.0.0.1:1", "--tls-key", "/nowhere/key"];
    let (code, error) = fails(&missing);
    assert!(code == 2 && error.contains("--tls-key /nowhere/key: cannot"), "{error}");
}

#[test]
fn hosts_and_addresses_with_tls_come_and_go_at_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let socket = path(folder.path(), "control");
    let host = file(&folder, "host.key", &[0]);
    let other = file(&folder, "other.key", &[2]);
    let pair = format!("{HOST}={host}");
    let serve = Serve::start(&["--tls-key", &pair, "--nqn", NQN, "--control", &socket]);
    let ctl = |words: &[&str]| json(&[&["ctl", "--socket", &socket, "--json"], words].concat());
    let options = ["--nqn", NQN, "--tls-key", &other];
    refused(&load(&serve.address, OTHER, &options), "no TLS with the target");
    ctl(&["host", "add", OTHER, "--tls-key", &other]);
    let said = ctl(&["listener", "add", "127.0.0.1:0", "--tls"])["done"].clone();
    let second = said.as_str().unwrap().strip_prefix("listening on ").unwrap().to_owned();
    for address in [&serve.address, &second] {
        assert_eq!(json(&load(address, OTHER, &options))["completed"], true);
    }
    let (hosts, listeners) = (ctl(&["host", "list"]), ctl(&["listener", "list"]));
    valid("ctl-1", &hosts);
    valid("ctl-1", &listeners);
    assert_eq!(hosts["hosts"][1]["access"], "TLS key");
    let tls = |number: usize| listeners["listeners"][number]["tls"].as_str().unwrap();
    assert_eq!([tls(0), tls(1)], ["offered", "required"]);
    let saved = path(folder.path(), "saved.toml");
    ctl(&["save", &saved]);
    let saved = std::fs::read_to_string(saved).unwrap();
    assert!(saved.contains(&format!("tls-listen = [\"{second}\"]")), "{saved}");
    assert!(saved.contains(&format!("{OTHER}={other}")), "{saved}");
    ctl(&["host", "remove", OTHER]);
    refused(&load(&second, OTHER, &options), "no TLS with the target");
    // Memory for sessions is counted at start alone.
    let plain = path(folder.path(), "plain");
    let _without = Serve::start(&["--control", &plain]);
    for words in [
        &["host", "add", HOST, "--tls-key", &host][..],
        &["listener", "add", "127.0.0.1:0", "--tls"],
    ] {
        let (code, error) = fails(&[&["ctl", "--socket", &plain], words].concat());
        assert!(code == 2 && error.contains("started without"), "{error}");
    }
}
