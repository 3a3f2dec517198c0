//! `ebb profile` prints what ships, and a copy of it is the same server.

use std::fs;

use crate::common::{fails, prints};

#[test]
fn a_copy_of_a_shipped_server_and_drive_is_the_same_server() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str, file: &str| {
        let text = prints(&["profile", name]);
        // Lines of comments stay: they have the sources.
        assert!(text.contains('#'), "{name}");
        fs::write(folder.path().join(file), text).unwrap();
    };
    copy("cm5-nvme", "mine.toml");
    copy("client-m2", "drive.toml");
    let mine = folder.path().join("mine.toml");
    let text = fs::read_to_string(&mine).unwrap();
    fs::write(&mine, text.replace("model = \"client-m2\"", "model = \"drive.toml\"")).unwrap();
    let sim = |profile: &str| {
        let load = ["--workload", "rand-rw", "--rate", "1k", "--duration", "1 s", "--json"];
        let text = prints(&[&["sim", "--profile", profile], &load[..]].concat());
        text.split_once("\"runs\"").map(|(_, runs)| runs.to_owned()).unwrap()
    };
    assert_eq!(sim(mine.to_str().unwrap()), sim("cm5-nvme"));
    assert!(prints(&["profile", "all-flash"]).contains("threads"));
    let (code, error) = fails(&["profile", "generic-nvm"]);
    assert!(code == 2 && error.contains("es3-4tb"), "{error}");
    assert!(error.contains("did you mean 'generic-nvme'?"), "{error}");
}
