//! What goes wrong is told with the option, line or file, and what would be valid.

use std::fs;

use crate::common::{ebb, fails, path, prints, small_trace};

/// Asserts exit code 2 and these words on standard error.
fn wrong(args: &[&str], words: &[&str]) {
    let (code, error) = fails(args);
    assert_eq!(code, 2, "{args:?}: {error}");
    assert!(error.starts_with("error: "), "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?}: '{word}' is not in: {error}");
    }
}

#[test]
fn unknown_names_list_the_valid_ones() {
    let web = ["sim", "--workload", "web"];
    wrong(&[&web[..], &["--policy", "pacr"]].concat(), &["--policy pacr", "pacr", "pacer, "]);
    wrong(&[&web[..], &["--policy", "pacer+x"]].concat(), &["'x'", "native"]);
    wrong(&[&web[..], &["--profile", "asg"]].concat(), &["'asg'", "asg-1115s"]);
    wrong(&["sim", "--workload", "wbe"], &["'wbe'", "fio-servers"]);
    wrong(&["sim", "--trace", "x", "--format", "vscsi9"], &["--format", "vscsi9", "msr-cut"]);
    wrong(&["simm"], &["simm"]);
}

#[test]
fn near_misses_are_told_what_was_meant() {
    let web = ["sim", "--workload", "web"];
    wrong(&[&web[..], &["--policy", "pacr"]].concat(), &["did you mean 'pacer'?"]);
    wrong(&[&web[..], &["--policy", "pacer+pacmna"]].concat(), &["did you mean 'pacman'?"]);
    wrong(&[&web[..], &["--profile", "asg-1115"]].concat(), &["did you mean 'asg-1115s'?"]);
    wrong(&["sim", "--workload", "fio-server"], &["did you mean 'fio-servers'?"]);
    wrong(&["trace", "info", "x", "--format", "msr-cutt"], &["'msr-cut'"]);
    wrong(&["sim", "--polcy", "native"], &["--policy"]);
}

#[test]
fn quantities_are_refused_as_quantities_with_their_units() {
    let web = ["sim", "--workload", "web"];
    wrong(&[&web[..], &["--ssd-budget", "-5 W"]].concat(), &["--ssd-budget", "144 W"]);
    wrong(&[&web[..], &["--ssd-budget", "224 V"]].concat(), &["(W, mW, kW, uW)"]);
    wrong(
        &[&web[..], &["--duration", "5 parsec"]].concat(),
        &["ns, us, µs, ms, s, sec, min, h, d"],
    );
    wrong(&[&web[..], &["--duration", "-1 s"]].concat(), &["--duration", "'-1 s'"]);
    wrong(&[&web[..], &["--block", "8 K"]].concat(), &["B, KiB, MiB"]);
    wrong(&[&web[..], &["--read", "170%"]].concat(), &["--read", "'170%'", "100%"]);
    wrong(&[&web[..], &["--random", "3"]].concat(), &["--random", "'3'"]);
    wrong(&[&web[..], &["--plf", "20"]].concat(), &["'20' is more than 1000%", "such as \"20%\""]);
    for rate in ["2k", "2000 IOPS", "0.002M IOPS", "0.002 M IOPS"] {
        let short = ["--rate", rate, "--duration", "100 ms"];
        prints(&[&["sim", "--workload", "rand-r", "--profile", "generic-1u"], &short[..]].concat());
    }
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let curve = ["sim", "--workload", "web", "--policy", "pacer", "--curve", "x.toml"];
    wrong(&curve, &["--curve", "eadc-plus", "pacer"]);
}

#[test]
fn a_cut_that_leaves_nothing_says_where_the_trace_is() {
    let folder = tempfile::tempdir().unwrap();
    let small = small_trace(folder.path());
    for command in [&["sim", "--trace"][..], &["trace", "info"]] {
        let args = [command, &[small.as_str(), "--from", "1 h"]].concat();
        wrong(&args, &["no request arrives at or after 3600 s", "the last one arrives at 0.999 s"]);
    }
    let args =
        ["trace", "convert", &small, "-o", "/dev/null", "--from", "0.2 ms", "--to", "0.4 ms"];
    wrong(&args, &["between 200 us and 400 us: one arrives at 0.001 s"]);
}

#[test]
fn what_is_read_is_not_written_over_and_no_file_is_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let small = small_trace(folder.path());
    wrong(&["sim", "--trace", &small, "--timeseries", &small], &["--timeseries", "also read"]);
    let both = path(folder.path(), "both.csv");
    fs::write(&both, "").unwrap();
    let args = ["sim", "--trace", &small, "--timeseries", &both, "--decisions", &both];
    wrong(&args, &["--timeseries and --decisions", "both.csv"]);
    let inside = folder.path().to_str().unwrap();
    wrong(&["trace", "convert", &small, "-o", inside, "--output-format", "parquet"], &["a folder"]);
    wrong(&["sim", "--trace", &small, "--decisions", inside], &["--decisions", "a folder"]);
    wrong(&["sim", "--trace", &small, "--report", &small], &["--report", "no folder"]);
    wrong(&["characterise", "--out", inside], &["--out", "a folder"]);
}

#[test]
fn a_wrong_name_is_told_even_where_nothing_says_what_to_run() {
    wrong(&["sim", "--policy", "nope"], &["--policy nope", "choose from", "pacer, "]);
    wrong(&["sim", "--profile", "nope"], &["'nope'", "asg-1115s"]);
    wrong(&["sim", "--ssd-budget", "10 W"], &["--ssd-budget", "144 W"]);
    wrong(&["sim", "--policy", "nope", "--trace", "/nowhere"], &["--policy nope"]);
    wrong(&["sim", "--policy", "pacer", "--plf", "3"], &["--trace", "--workload"]);
}

#[test]
fn unknown_figures_and_papers_list_the_valid_ones() {
    wrong(&["paper", "pacer", "--figure", "8"], &["--figure 8", "6, 7, 10, ", "table-1"]);
    wrong(&["paper", "pacman", "--figure", "table-2"], &["--figure table-2", "1, 2, 3, 5, "]);
    let known_too = ["paper", "pacman", "--figure", "2", "--figure", "x"];
    wrong(&known_too, &["--figure x"]);
    wrong(&["paper", "pacerman"], &["pacerman", "pacman"]);
    wrong(&["paper", "pacman", "--duration", "9 s"], &["--duration 9 s", "10 s"]);
    wrong(&["paper", "sandman", "--duration", "20 s"], &["--duration 20 s", "leave it out"]);
    wrong(&["paper", "storage-servers", "--duration", "20 s"], &["--duration 20 s", "their bytes"]);
    wrong(&["paper", "storage-servers", "--figure", "5"], &["1, 2, 3, 4, arithmetic, inputs"]);
    wrong(&["paper", "sandman", "--figure", "9"], &["--figure 9", "ablation, bursts, cloud"]);
}

#[test]
fn contradictions_name_both_options() {
    wrong(&["sim", "--trace", "x", "--workload", "web"], &["--trace", "--workload"]);
    wrong(&["sim", "--trace", "x", "--pressure", "10%"], &["--trace", "--pressure"]);
    wrong(&["sim", "--trace", "x", "--block", "4 KiB"], &["--trace", "--block"]);
    wrong(&["sim", "--workload", "web", "--fold"], &["--trace"]);
    wrong(&["sim", "--workload", "web", "--from", "1 s"], &["--trace"]);
    wrong(&["sim", "--rate", "max"], &["--rate", "--workload"]);
    let both = ["sim", "--workload", "rand-r", "--rate", "max", "--pressure", "10%"];
    wrong(&both, &["--rate", "--pressure"]);
    wrong(&["sim", "--policy", "native"], &["--trace", "--workload"]);
    let twice = ["sim", "--workload", "web", "--policy", "native", "--policy", "native"];
    wrong(&twice, &["native", "twice"]);
    wrong(&["sim", "--workload", "rocksdb", "--pressure", "10%"], &["--pressure", "rocksdb"]);
    wrong(&["sim", "--workload", "rocksdb", "--read", "10%"], &["read", "rocksdb"]);
}

#[test]
fn values_out_of_range_say_what_would_be_valid() {
    let web = |more: &[&'static str]| [&["sim", "--workload", "web"], more].concat();
    wrong(&web(&["--ssd-budget", "10 W", "--policy", "sspc"]), &["--ssd-budget", "144 W"]);
    wrong(&web(&["--ssd-budget", "10 W", "--policy", "pacer"]), &["--ssd-budget", "144 W"]);
    wrong(&web(&["--ssd-budget", "224 V"]), &["--ssd-budget", "224 W"]);
    wrong(&web(&["--plf", "-1"]), &["--plf"]);
    wrong(&web(&["--duration", "5 parsec"]), &["--duration", "500 ms"]);
    wrong(&web(&["--warmup", "5 s", "--duration", "5 s"]), &["--warmup", "--duration"]);
    wrong(&web(&["--threads", "0"]), &["--threads"]);
    wrong(&web(&["--drives", "25%"]), &["--drives", "0%-25%"]);
    wrong(&web(&["--timeseries", "x.xlsx"]), &["--timeseries", ".csv", ".parquet"]);
    wrong(&web(&["--timeseries", "/nowhere/x.csv"]), &["--timeseries", "/nowhere"]);
    wrong(&web(&["--decisions", "/nowhere/x"]), &["--decisions", "/nowhere"]);
    wrong(&["sim", "--workload", "rand-r", "--pressure", "0%"], &["--pressure", "above 0%"]);
}

#[test]
fn traces_are_refused_with_file_line_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = path(folder.path(), name);
        fs::write(&path, text).unwrap();
        path
    };
    wrong(&["sim", "--trace", "/nowhere.trace"], &["/nowhere.trace"]);
    let broken = file("broken.trace", b"0 0 0 8 1\n1000 0 oops 8 1\n");
    let mqsim = ["--format", "mqsim"];
    for command in [&["sim", "--trace"][..], &["trace", "info"]] {
        let args = [command, &[broken.as_str()], &mqsim].concat();
        wrong(&args, &["broken.trace:2:", "oops"]);
    }
    let backwards = file("backwards.trace", b"5000 0 0 8 1\n1000 0 8 8 1\n");
    wrong(&["trace", "info", &backwards, "--format", "mqsim"], &["backwards", ":2:"]);
    let text = file("text", b"this is no trace\n");
    wrong(&["sim", "--trace", &text], &["--format", "vscsi"]);
    let cut = file("cut.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    wrong(&["trace", "head", &cut], &["cut.gz"]);
    let beyond = file("beyond.trace", b"0 0 99999999999 8 1\n");
    let args = ["sim", "--trace", &beyond, "--format", "mqsim"];
    wrong(&args, &["request 1", "beyond", "--fold"]);
    let device = file("device.trace", b"0 77 0 8 1\n");
    wrong(&["sim", "--trace", &device, "--format", "mqsim"], &["device 77", "--fold"]);
    assert!(ebb(&["sim", "--trace", &device, "--format", "mqsim", "--fold"]).status.success());
    let small = small_trace(folder.path());
    wrong(&["sim", "--trace", &small, "--rate-scale", "0"], &["--rate-scale", "above 0"]);
    wrong(&["sim", "--trace", &small, "--from", "2 s", "--to", "1 s"], &["--from", "--to"]);
}

#[test]
fn toml_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let profile = path(folder.path(), "server.toml");
    fs::write(&profile, "name = \"x\"\nsummary = 3\n").unwrap();
    wrong(&["sim", "--workload", "web", "--profile", &profile], &["server.toml", "line 2"]);
    let workload = path(folder.path(), "load.toml");
    fs::write(&workload, "name = \"x\"\n\n[[jobs]]\nnamme = \"y\"\n").unwrap();
    wrong(&["sim", "--workload", &workload], &["load.toml", "line 4", "namme"]);
}

#[test]
fn trace_commands_refuse_what_they_cannot_do() {
    let folder = tempfile::tempdir().unwrap();
    let small = small_trace(folder.path());
    wrong(&["trace", "info"], &["FILE"]);
    let to = path(folder.path(), "out.trace");
    let convert = ["trace", "convert", &small, "--output", &to];
    wrong(&[&convert[..], &["--output-format", "spc"]].concat(), &["spc", "parquet"]);
    wrong(&["trace", "convert", &small, "-o", &small], &["--output", "small.csv"]);
    wrong(&["trace", "convert", &small, "-o", "/nowhere/x.csv"], &["--output", "/nowhere"]);
    wrong(&["trace", "pressure", &small, "--segment", "0 s"], &["--segment"]);
    assert!(!fs::exists(&to).unwrap(), "nothing half-written stays");
    wrong(&convert, &["--output", "the ending says no format", ".parquet or .csv"]);
    let packed = path(folder.path(), "o.csv.gz");
    wrong(&["trace", "convert", &small, "-o", &packed], &["not compressed from outside", "zstd"]);
    let json = ["trace", "convert", &small, "-o", "-", "--json"];
    wrong(&json, &["--json", "standard output"]);
}

#[test]
fn what_cannot_be_written_is_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "file");
    fs::write(&file, "").unwrap();
    let args = ["sim", "--workload", "web", "--rate", "100", "--duration", "1 s", "--quiet"];
    let (code, error) = fails(&[&args[..], &["--report", &format!("{file}/report")]].concat());
    assert_eq!(code, 1, "{error}");
    assert!(error.starts_with("error: cannot write ") && error.contains("index.html"), "{error}");
    assert_eq!(error.matches(&file).count(), 1, "named once: {error}");
}

#[test]
fn help_names_every_command() {
    let help = prints(&["--help"]);
    assert!(help.contains("sim") && help.contains("trace"));
}

/// What `ebb run` would refuse on any machine, the check of its configuration refuses.
#[test]
fn a_configuration_that_no_machine_can_keep_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "ebb.toml");
    let group = "[[machine.groups]]\nrole = \"front-end\"\ncpus =";
    for (text, says) in [
        ("policy = \"constant(ghz=0)\"", "line 1: policy = \"constant(ghz=0)\": ghz = 0 is out"),
        ("plf = 0.1\npolicy = \"pacer+fixed-fans(duty=2)\"", "line 2: policy = \"pacer+fixed"),
        ("policy = \"eadc(set_point=200)\"", "set_point = 200 is out of range: 40 to 85"),
        ("[hold]\n\npackage_power = \"0 W\"", "line 3: hold.package_power = 0 W: to some"),
        ("[hold]\nbackground = [\"/\"]", "line 2: hold.background: \"/\": write its path below"),
        ("[hold]\ndisk_standby = \"1 s\"", "line 2: hold.disk_standby = 1 s: write 60 s"),
        (&format!("{group} \"0-3\"\n{group} \"3-7\"")[..], "CPU 3 is in two groups"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, error) = fails(&["config", "check", &file]);
        assert_eq!(code, 2, "{text}: {error}");
        assert!(error.contains(&file) && error.contains(says), "{text}: {error}");
    }
}
