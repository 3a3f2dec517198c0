//! Every dependency, on any platform, is as `deny.toml` wants it: what cargo-deny's checks of
//! licences, sources and wildcards do, without building cargo-deny first.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What cargo resolved, with dependencies of all platforms.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    told["packages"].as_array().expect("a list").clone()
}

fn allowed() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    let text = std::fs::read_to_string(path).expect("there is a policy");
    let policy: toml::Table = text.parse().expect("deny.toml is TOML");
    let list = policy["licenses"]["allow"].as_array().expect("a list");
    list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Whether the licence expression (SPDX 2.3, annex D) can be met with what is allowed. Before
/// SPDX, a slash stood for OR.
fn permitted(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = either(&words, &mut at, allowed);
    met && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(words, at, allowed);
    }
    met
}

fn both(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = either(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    let mut licence = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        licence += &format!(" WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&licence)
}

#[test]
fn expressions_are_met_by_what_is_allowed() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/Apache-2.0",
        "(GPL-3.0 OR ISC) AND MIT",
        "ISC AND MIT OR GPL-3.0",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(permitted(good, &allowed), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT", "MIT)", "MIT ISC"] {
        assert!(!permitted(bad, &allowed), "{bad}");
    }
}

#[test]
fn dependencies_are_as_the_policy_wants_them() {
    let (allowed, mut findings) = (allowed(), String::new());
    let packages = packages();
    assert!(packages.len() > 100, "cargo tells of {} packages", packages.len());
    for package in &packages {
        let name = format!("{} {}", package["name"], package["version"]);
        let licence = package["license"].as_str().unwrap_or("");
        if !permitted(licence, &allowed) {
            let _ = writeln!(findings, "{name}: licence '{licence}' is not allowed by deny.toml");
        }
        if let Some(source) = package["source"].as_str() {
            if source != REGISTRY {
                let _ = writeln!(findings, "{name}: comes from {source}");
            }
            continue;
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["req"] == "*" && dependency["path"].is_null() {
                let _ = writeln!(findings, "{name}: any version of {}", dependency["name"]);
            }
        }
    }
    assert!(findings.is_empty(), "\n{findings}");
}
