//! The Debian package: what it holds, and what its scripts do at each step of its life.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::common::{allow, path, prints};

const UNITS: [&str; 3] = ["ebb.service", "ebb-restore.service", "ebb-serve.service"];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata() -> toml::Table {
    let text = fs::read_to_string(root().join("crates/ebb/Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    manifest["package"]["metadata"]["deb"].as_table().unwrap().clone()
}

/// Where what is in the package goes and what it is, with what `packaging/made` makes.
fn contents(made: &Path) -> BTreeMap<String, PathBuf> {
    let done = Command::new(root().join("packaging/made"))
        .args([Path::new(env!("CARGO_BIN_EXE_ebb")), made])
        .status();
    assert!(done.unwrap().success());
    // packaging/sbom asks the registry.
    fs::write(made.join("ebb.cdx.json"), "{}").unwrap();
    let mut all = BTreeMap::new();
    for asset in metadata()["assets"].as_array().unwrap() {
        let [from, to, mode] = [0, 1, 2].map(|at| asset[at].as_str().unwrap());
        let from = match from.strip_prefix("../../target/package/") {
            Some(name) => made.join(name),
            None if from == "target/release/ebb" => env!("CARGO_BIN_EXE_ebb").into(),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join(from),
        };
        let name = from.file_name().unwrap().to_str().unwrap();
        let (head, tail) = name.split_once('*').unwrap_or((name, ""));
        let files = fs::read_dir(from.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
        let before = all.len();
        for file in files {
            let own = file.file_name().unwrap().to_str().unwrap().to_owned();
            let is = if name.contains('*') { own.starts_with(head) } else { own == head };
            if is && own.ends_with(tail) {
                assert_eq!(mode, if to == "usr/bin/" { "755" } else { "644" }, "{own}");
                let to = if to.ends_with('/') { format!("{to}{own}") } else { to.to_owned() };
                all.insert(format!("/{to}"), file);
            }
        }
        assert!(all.len() > before, "{name}: no such file for {to}");
    }
    all
}

/// By the rating of systemd, 0.0 to 10.0, with whatever version is here.
#[test]
fn the_unit_of_the_data_plane_stays_hardened() {
    let unit = root().join("packaging/systemd/ebb-serve.service");
    let fixed = ["security", "--offline=true", "--threshold=30", "--no-pager"];
    let rated = Command::new("systemd-analyze").args(fixed).arg(unit).output();
    match rated {
        // Without, and before systemd 250, nobody rates it.
        Ok(output) if !output.stdout.is_empty() => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("Overall exposure"), "{text}");
        }
        _ => println!("skipped: no systemd-analyze that rates units"),
    }
}

#[test]
fn it_holds_all_that_the_units_and_scripts_name() {
    let made = tempfile::tempdir().unwrap();
    let contents = contents(&made.path().join("made"));
    for unit in UNITS {
        let text = fs::read_to_string(&contents[&format!("/usr/lib/systemd/system/{unit}")]);
        for line in text.unwrap().lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.split(' ').next().unwrap();
            if key == "Documentation" {
                let page = value.trim_start_matches("man:").trim_end_matches("(1)");
                assert!(contents.contains_key(&format!("/usr/share/man/man1/{page}.1")), "{page}");
            } else if key.starts_with("Exec") && value != "/bin/sh" {
                assert!(contents.contains_key(value), "{unit}: {value}");
            }
        }
    }
    assert!(contents.contains_key("/usr/lib/sysusers.d/ebb-serve.conf"));
    assert!(contents.contains_key("/usr/lib/tmpfiles.d/ebb.conf"));
    for file in ["grafana/ebb.json", "prometheus/ebb-alerts.yml"] {
        assert!(contents.contains_key(&format!("/usr/share/ebb/{file}")), "{file}");
    }
    // Nothing is touched by it.
    for file in metadata()["conf-files"].as_array().unwrap() {
        let file = &contents[file.as_str().unwrap()];
        let shown = prints(&["config", "show", file.to_str().unwrap()]);
        assert!(shown.contains("apply = false"), "{shown}");
    }
}

/// Where scripts run that change nothing: each command that they know is written down instead.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new(runs: &str) -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        let bin = stage.folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let log = path(stage.folder.path(), "log");
        let stub = |name: &str, does: &str| {
            let file = bin.join(name);
            let text = format!("#!/bin/sh\necho \"{name} $*\" >>{log}\n{does}\n");
            fs::write(&file, text).unwrap();
            allow(&file, 0o755);
        };
        let is_active = format!("[ \"$2\" != is-active ] || case \"{runs}\" in *\"$3\"*) ;; *)");
        stub("systemctl", &format!("{is_active} exit 3;; esac"));
        let known = ["deb-systemd-helper", "deb-systemd-invoke", "systemd-sysusers"];
        known.iter().for_each(|name| stub(name, ""));
        stub("systemd-tmpfiles", "");
        stub("ebb", "exit \"${EBB_FAILS:-0}\"");
        stage
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let bin = self.folder.path().join("bin");
        let rest = "/usr/sbin:/usr/bin:/sbin:/bin";
        command.env("PATH", format!("{}:{rest}", bin.display())).env_remove("DPKG_ROOT");
        command
    }

    /// Runs a script where systemd does.
    fn run(&self, script: &str, args: &[&str], fails: bool) -> (Output, Vec<String>) {
        let text = fs::read_to_string(root().join("packaging/debian").join(script)).unwrap();
        let booted = self.folder.path().to_str().unwrap();
        let text = text.replace("/run/systemd/system", booted);
        let text = text.replace("$DPKG_ROOT/", &format!("{booted}/root/"));
        let mut command = self.command("sh");
        command.args(["-c", &text, script]).args(args);
        command.env("EBB_FAILS", u8::from(fails).to_string());
        let output = command.output().unwrap();
        let log = self.folder.path().join("log");
        let told = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        (output, told.lines().map(str::to_owned).collect())
    }
}

fn at(log: &[String], what: &str) -> usize {
    log.iter().position(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{what}: {log:?}"))
}

#[test]
fn the_first_installation_observes_and_an_upgrade_starts_nothing_that_is_stopped() {
    let stage = Stage::new("");
    let (output, log) = stage.run("postinst", &["configure", ""], false);
    assert!(output.status.success(), "{output:?}");
    let start = at(&log, "deb-systemd-invoke start ebb-restore.service ebb.service");
    for before in ["systemd-sysusers", "systemd-tmpfiles", "systemctl daemon-reload"] {
        assert!(at(&log, before) < start);
    }
    at(&log, "deb-systemd-helper enable ebb.service");
    // A target without namespaces, and who acts: the operator's to start.
    assert!(!log.iter().any(|line| line.contains("ebb-serve.service") && line.contains("enable")));
    let (_, log) = stage.run("postinst", &["configure", "0.1.0"], false);
    assert!(!log.iter().any(|line| line.starts_with("deb-systemd-invoke")), "{log:?}");
    let stage = Stage::new("ebb.service ebb-serve.service");
    let (output, log) = stage.run("postinst", &["configure", "0.1.0"], false);
    at(&log, "deb-systemd-invoke restart ebb.service");
    // Clients go on.
    assert!(!log.iter().any(|line| line.contains("restart ebb-serve")), "{log:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("systemctl restart ebb-serve"), "{told}");
}

#[test]
fn before_it_is_removed_everything_is_set_back_or_it_stays() {
    let stage = Stage::new("ebb.service");
    let (output, log) = stage.run("prerm", &["remove"], false);
    assert!(output.status.success(), "{output:?}");
    assert!(at(&log, "deb-systemd-invoke stop ebb.service") < at(&log, "ebb restore"));
    let (output, _) = stage.run("prerm", &["remove"], true);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("ebb restore --forget"));
    // An upgrade keeps it at work.
    let (output, log) = stage.run("prerm", &["upgrade", "0.2.0"], true);
    assert!(output.status.success() && log.is_empty(), "{log:?}");
}

fn dpkg(stage: &Stage, args: &[&str]) {
    let root = stage.folder.path().join("root");
    let mut dpkg = stage.command("dpkg");
    dpkg.arg(format!("--root={}", root.display()));
    dpkg.args(["--force-script-chrootless", "--log=/dev/null"]).args(args);
    let output = dpkg.env("DEBIAN_FRONTEND", "noninteractive").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A package of that version in which files are as in the true one, but for the binary.
fn build(stage: &Stage, version: &str) -> String {
    let tree = stage.folder.path().join("tree");
    let put = |name: &str, bytes: &[u8], mode: u32| {
        let file = tree.join(name.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, bytes).unwrap();
        allow(&file, mode);
    };
    for (to, from) in contents(&stage.folder.path().join("made")) {
        let is_binary = to == "/usr/bin/ebb";
        let bytes = if is_binary { Vec::new() } else { fs::read(from).unwrap() };
        put(&to, &bytes, if is_binary { 0o755 } else { 0o644 });
    }
    for script in SCRIPTS {
        let bytes = fs::read(root().join("packaging/debian").join(script)).unwrap();
        put(&format!("DEBIAN/{script}"), &bytes, 0o755);
    }
    let metadata = metadata();
    let files = metadata["conf-files"].as_array().unwrap().iter();
    let files: String = files.map(|file| format!("{}\n", file.as_str().unwrap())).collect();
    put("DEBIAN/conffiles", files.as_bytes(), 0o644);
    let control = format!(
        "Package: ebb\nVersion: {version}\nArchitecture: all\nMaintainer: {}\nDescription: Ebb\n",
        metadata["maintainer"].as_str().unwrap()
    );
    put("DEBIAN/control", control.as_bytes(), 0o644);
    let package = path(stage.folder.path(), &format!("{version}.deb"));
    let mut command = stage.command("dpkg-deb");
    command.args(["-Znone", "--root-owner-group", "--build", tree.to_str().unwrap(), &package]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    package
}

#[test]
fn dpkg_keeps_state_and_configuration_until_it_purges() {
    if !geteuid().is_root() || Command::new("dpkg-deb").arg("--version").output().is_err() {
        println!("skipped: needs root and dpkg");
        return;
    }
    let stage = Stage::new("");
    let root = stage.folder.path().join("root");
    for folder in ["info", "updates"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let there = |name: &str| root.join(name.trim_start_matches('/')).exists();
    dpkg(&stage, &["--install", &build(&stage, "1")]);
    for unit in UNITS {
        assert!(there(&format!("/usr/lib/systemd/system/{unit}")));
    }
    let own = "policy = \"eadc\"\n";
    fs::write(root.join("etc/ebb/ebb.toml"), own).unwrap();
    fs::create_dir_all(root.join("var/lib/ebb")).unwrap();
    fs::write(root.join("var/lib/ebb/originals"), "").unwrap();
    fs::create_dir_all(root.join("var/lib/ebb-serve")).unwrap();
    fs::write(root.join("var/lib/ebb-serve/disk.img"), "users' data").unwrap();
    let kept = || {
        let text = fs::read_to_string(root.join("etc/ebb/ebb.toml")).unwrap();
        text == own && there("/var/lib/ebb/originals")
    };
    dpkg(&stage, &["--install", &build(&stage, "2")]);
    assert!(kept() && there("/usr/bin/ebb"));
    dpkg(&stage, &["--remove", "ebb"]);
    assert!(kept() && !there("/usr/bin/ebb"));
    dpkg(&stage, &["--purge", "ebb"]);
    assert!(!there("/etc/ebb") && !there("/var/lib/ebb"));
    assert!(there("/var/lib/ebb-serve/disk.img"), "what users have stored is theirs");
}

/// The RPM package has the same files; where there is rpmbuild (Debian's package `rpm`).
#[test]
fn an_rpm_of_the_same_files_is_installed_upgraded_and_removed() {
    if !Command::new("rpmbuild").arg("--version").output().is_ok_and(|done| done.status.success()) {
        println!("skipped: no rpmbuild");
        return;
    }
    let own = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        let done = command.args(args).env("SOURCE_DATE_EPOCH", "1764288000").output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{program} {args:?}: {told}");
        String::from_utf8(done.stdout).unwrap()
    };
    let made = own.path().join("made");
    let files: Vec<_> = contents(&made).into_keys().collect();
    // Any binary will do.
    let ebb = own.path().join("ebb");
    fs::write(&ebb, "#!/bin/sh\n").unwrap();
    let spec = root().join("packaging/rpm-spec");
    let text = run(spec.to_str().unwrap(), &[ebb.to_str().unwrap(), made.to_str().unwrap()]);
    let build = |version: &str, to: &str| {
        let spec = path(own.path(), "ebb.spec");
        let (head, tail) = text.split_once("\nVersion: ").unwrap();
        let (_, tail) = tail.split_once('\n').unwrap();
        fs::write(&spec, format!("{head}\nVersion: {version}\n{tail}")).unwrap();
        let folders = ["_topdir", "_rpmdir"].map(|of| format!("{of} {}", path(own.path(), to)));
        run(
            "rpmbuild",
            &["-bb", "--quiet", "--define", &folders[0], "--define", &folders[1], &spec],
        );
        let built = fs::read_dir(own.path().join(to)).unwrap().flat_map(|arch| {
            let arch = arch.unwrap().path();
            let rpm = |file: PathBuf| file.extension().is_some_and(|kind| kind == "rpm");
            let all = fs::read_dir(arch).unwrap().map(|file| file.unwrap().path());
            all.filter(|file| rpm(file.clone())).collect::<Vec<_>>()
        });
        built.last().unwrap()
    };
    let first = build("1", "first");
    assert_eq!(fs::read(&first).unwrap(), fs::read(build("1", "again")).unwrap(), "reproducible");
    let mut listed: Vec<_> =
        run("rpm", &["-qpl", first.to_str().unwrap()]).lines().map(str::to_owned).collect();
    listed.sort();
    assert_eq!(listed, files);
    let tree = own.path().join("root");
    fs::create_dir(&tree).unwrap();
    let rpm = |args: &[&str]| {
        let fixed = ["--root", tree.to_str().unwrap(), "--nodeps", "--noscripts"];
        run("rpm", &[&fixed[..], args].concat())
    };
    rpm(&["-i", first.to_str().unwrap()]);
    assert_eq!(run("rpm", &["--root", tree.to_str().unwrap(), "-V", "--nodeps", "ebb"]), "");
    let config = tree.join("etc/ebb/ebb.toml");
    fs::write(&config, "apply = true\n").unwrap();
    rpm(&["-U", build("2", "second").to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&config).unwrap(), "apply = true\n");
    rpm(&["-e", "ebb"]);
    assert!(!tree.join("usr/bin/ebb").exists() && !config.exists());
    let kept = fs::read_to_string(tree.join("etc/ebb/ebb.toml.rpmsave")).unwrap();
    assert_eq!(kept, "apply = true\n");
}

#[test]
fn a_release_is_one_commit_and_a_tag_with_its_notes() {
    let folder = TempDir::new().unwrap();
    let own = folder.path().join("ebb");
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        for who in ["AUTHOR", "COMMITTER"] {
            let address = (format!("GIT_{who}_EMAIL"), "a@ebb.example");
            command.env(format!("GIT_{who}_NAME"), "A").env(address.0, address.1);
        }
        let done = command.args(words).current_dir(&own).output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(said).unwrap())
    };
    fs::create_dir_all(own.join("packaging")).unwrap();
    fs::create_dir_all(own.join("fuzz")).unwrap();
    for file in ["Cargo.toml", "Cargo.lock", "fuzz/Cargo.lock", "packaging/release"] {
        fs::copy(root().join(file), own.join(file)).unwrap();
    }
    let old = env!("CARGO_PKG_VERSION");
    let log = |changes: &str| fs::write(own.join("CHANGELOG.md"), changes).unwrap();
    log("# Changes\n\n## Unreleased\n\n### Added\n- A thing.\n\n## 0.0.1\n- Before.\n");
    assert!(run("git", &["init", "-q"]).0 && run("git", &["add", "."]).0);
    assert!(run("git", &["commit", "-qm", "All"]).0);

    let release = |version: &str| run("packaging/release", &[version, "--checked"]);
    assert!(release(old).1.contains("does not come after"));
    assert!(release("99.1").1.contains("packaging/release 0.3.0"));
    let (is_done, said) = release("99.1.0");
    assert!(is_done, "{said}");
    assert_eq!(run("git", &["status", "--porcelain"]).1, "");
    let notes = run("git", &["tag", "-l", "--format=%(contents)", "v99.1.0"]).1;
    assert_eq!(notes.trim(), "Ebb 99.1.0\n\n### Added\n- A thing.");
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let lock: toml::Table = fs::read_to_string(own.join(lock)).unwrap().parse().unwrap();
        let packages = lock["package"].as_array().unwrap();
        let ours = |name: &str| name.starts_with("ebb") && name != "ebb-fuzz";
        let ours = packages.iter().filter(|one| ours(one["name"].as_str().unwrap()));
        let versions: Vec<_> = ours.map(|one| one["version"].as_str().unwrap()).collect();
        assert!(versions.len() >= 5 && versions.iter().all(|it| *it == "99.1.0"), "{versions:?}");
    }
    let changes = fs::read_to_string(own.join("CHANGELOG.md")).unwrap();
    assert!(changes.contains("## Unreleased\n\n## 99.1.0 - 20") && changes.contains("- Before."));

    assert!(release("99.2.0").1.contains("nothing to release"));
    log(&changes.replace("## Unreleased\n", "## Unreleased\n\n- Another.\n"));
    assert!(release("99.2.0").1.contains("commit them first"));
}
