//! Runs the binary and looks at what comes out.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A quick scenario: three policies, a few thousand requests.
pub const QUICK: &[&str] = &[
    "sim",
    "--profile",
    "generic-1u",
    "--workload",
    "rand-rw",
    "--rate",
    "2000",
    "--duration",
    "6 s",
    "--policy",
    "native",
    "--policy",
    "ondemand",
    "--policy",
    "pacer",
];

/// Runs `ebb` with these arguments.
pub fn ebb(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebb")).args(args).env("NO_COLOR", "1").output().unwrap()
}

/// Starts `ebb`, whose standard output goes to `out`; what it says on the other is kept.
pub fn spawn<Word: AsRef<OsStr>>(args: impl IntoIterator<Item = Word>, out: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(args).stdout(out).stderr(Stdio::piped()).spawn().unwrap()
}

/// Writes a file, and the folders that it is in.
pub fn put(root: &Path, file: &str, text: &str) {
    let file = root.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// What `ebb` prints, having done what it was asked for.
pub fn prints(args: &[&str]) -> String {
    let output = ebb(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    assert_eq!(error, "", "{args:?}: nothing belongs on standard error");
    String::from_utf8(output.stdout).unwrap()
}

/// The same as JSON.
pub fn json(args: &[&str]) -> Value {
    let text = prints(args);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

/// A file with these lines that only we may read.
pub fn secret(folder: &TempDir, name: &str, lines: &[&str]) -> String {
    let file = folder.path().join(name);
    std::fs::write(&file, lines.join("\n")).unwrap();
    allow(&file, 0o600);
    path(folder.path(), name)
}

/// Sets the mode of a file.
pub fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Exit code and standard error of a failure.
pub fn fails(args: &[&str]) -> (i32, String) {
    let output = ebb(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{args:?} should fail");
    (output.status.code().unwrap(), error)
}

/// Asserts that `value` is as the published schema says.
pub fn valid(schema: &str, value: &Value) {
    let path = format!("../../docs/json-schema/{schema}.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<_> =
        validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
}

/// The collected real data; `None` where it is absent.
pub fn data() -> Option<PathBuf> {
    let path = match std::env::var_os("EBB_DATA") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: no real data at {}", path.display());
    None
}

/// A small trace of reads and writes on two devices, 1,000 requests in a second.
pub fn small_trace(folder: &Path) -> String {
    let mut text = String::from("at_ns,op,offset,bytes,device,stream,latency_ns\n");
    for number in 0_u64..1000 {
        let op = if number % 4 == 0 { 'W' } else { 'R' };
        let offset = (number * 7919 % 100_000) * 4096;
        let (at, device) = (number * 1_000_000, number % 2);
        text.push_str(&format!("{at},{op},{offset},4096,{device},{device},\n"));
    }
    let path = folder.join("small.csv");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A path in `folder` as text.
pub fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}
