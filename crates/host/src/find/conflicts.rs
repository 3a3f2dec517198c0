//! Other programs that set what Ebb sets.

use schemars::JsonSchema;
use serde::Serialize;

use crate::sys::Sys;

/// How to keep a program of one's own service from setting anything.
macro_rules! disable {
    ($unit:literal) => {
        concat!("systemctl disable --now ", $unit)
    };
}

const PROFILES: &str = "governors, frequency limits, idle states and power of devices";
const GOVERNORS: &str = "governors and frequencies";
const LIMITS: &str = "power and frequency limits of processors";
const FANS: &str = "fans";
const TASKS: &str = "which CPUs tasks and control groups run on";
const GPU_FANS: &str = "clocks and fans of graphics cards";
const DISKS: &str = "when disks stop";
/// What schedulers in BPF set (sched_ext).
const SCHEDULER: &str = "frequencies, and which cores sleep";

const KUBELET: &str = "cpuManagerPolicy: none in its configuration, or leave its CPUs to it";

/// Names of processes, or of the scripts that they run; what they set; what to do.
/// Names in full: of a process the kernel keeps 15 characters; one that ends in `*` stands for all
/// that begin so.
const KNOWN: &[(&str, &str, &str)] = &[
    ("tuned", PROFILES, disable!("tuned")),
    ("tuned-ppd", PROFILES, disable!("tuned-ppd")),
    ("openshift-tuned", PROFILES, "take its node out of the Tuned profiles of its cluster"),
    (
        "power-profiles-daemon",
        "governors and energy preferences",
        disable!("power-profiles-daemon"),
    ),
    ("tlp-pd", PROFILES, disable!("tlp-pd tlp")),
    ("system76-power", PROFILES, disable!("com.system76.PowerDaemon")),
    ("slimbookbattery", PROFILES, "end it and take it out of the session's start"),
    ("auto-cpufreq", GOVERNORS, disable!("auto-cpufreq")),
    ("cpufreqd", GOVERNORS, disable!("cpufreqd")),
    ("cpuspeed", GOVERNORS, disable!("cpuspeed")),
    ("powernowd", GOVERNORS, disable!("powernowd")),
    ("watt", GOVERNORS, disable!("watt")),
    ("gamemoded", GOVERNORS, "systemctl --user disable --now gamemoded"),
    ("auto-epp", "energy preferences", disable!("auto-epp")),
    ("scx_*", SCHEDULER, disable!("scx_loader scx")),
    ("thermald", "frequency and power limits by temperature", disable!("thermald")),
    ("throttled", LIMITS, disable!("throttled")),
    ("lenovo_fix", LIMITS, disable!("lenovo_fix")),
    ("intel-undervolt", LIMITS, disable!("intel-undervolt")),
    ("intel_lpmd", "which CPUs rest", disable!("intel_lpmd")),
    ("nvidia-powerd", LIMITS, disable!("nvidia-powerd")),
    ("dptf", LIMITS, disable!("dptf")),
    ("geopmd", LIMITS, disable!("geopm")),
    ("eard", LIMITS, disable!("eard")),
    ("intel-speed-select", LIMITS, "end it; it runs as a daemon with -o"),
    ("undervolt", LIMITS, disable!("undervolt")),
    ("tccd", PROFILES, disable!("tccd")),
    ("legiond", "fans and power limits", disable!("legiond")),
    ("powertop", PROFILES, "end it; disable a powertop.service that runs --auto-tune"),
    ("fancontrol", FANS, disable!("fancontrol")),
    ("fan2go", FANS, disable!("fan2go")),
    ("hddfancontrol", FANS, disable!("hddfancontrol")),
    ("coolercontrold", FANS, disable!("coolercontrold")),
    ("coolerod", FANS, disable!("coolerod")),
    ("coolercontrol-liqctld", FANS, disable!("coolercontrol-liqctld")),
    ("liquidctl", "pumps and fans", "end what calls it, such as liquidcfg.service"),
    ("thinkfan", FANS, disable!("thinkfan")),
    ("zcfan", FANS, disable!("zcfan")),
    ("mbpfan", FANS, disable!("mbpfan")),
    ("macfanctld", FANS, disable!("macfanctld")),
    ("t2fanrd", FANS, disable!("t2fanrd")),
    ("nbfc", FANS, disable!("nbfc_service")),
    ("nbfc_service", FANS, disable!("nbfc_service")),
    ("asusd", "fans and power profiles", disable!("asusd")),
    ("fw-fanctrl", FANS, disable!("fw-fanctrl")),
    ("i8kmon", FANS, disable!("i8kmon")),
    ("dell-bmc-fan-control", FANS, disable!("dell-bmc-fan-control")),
    ("dell_fan_control", FANS, "end it, and set the fans of the controller to automatic"),
    ("ipmi-fan-control", FANS, disable!("ipmi-fan-control")),
    ("ipmi_fan_control", FANS, "end it, and set the fans of the controller to automatic"),
    ("smfc", FANS, disable!("smfc")),
    ("ventd", FANS, disable!("ventd")),
    ("autofan", FANS, "turn it off in Unraid's settings (Fan Auto Control)"),
    ("fanctl", FANS, disable!("fanctl")),
    ("afancontrol", FANS, disable!("afancontrol")),
    ("argononed", FANS, disable!("argononed")),
    ("amdgpu-fan", GPU_FANS, disable!("amdgpu-fan")),
    ("amdgpu-fancontrol", GPU_FANS, disable!("amdgpu-fancontrol")),
    ("lact", GPU_FANS, disable!("lactd")),
    ("lactd", GPU_FANS, disable!("lactd")),
    ("corectrl_helper", GPU_FANS, "end CoreCtrl and take it out of the session's start"),
    ("nvfancontrol", GPU_FANS, disable!("nvfancontrol")),
    ("gwe", GPU_FANS, "end it and take it out of the session's start"),
    (
        "irqbalance",
        "interrupts, which wake parked cores",
        "IRQBALANCE_BANNED_CPULIST in its settings",
    ),
    ("numad", TASKS, disable!("numad")),
    ("ananicy", "weights of tasks", disable!("ananicy")),
    ("ananicy-cpp", "weights of tasks", disable!("ananicy-cpp")),
    ("uresourced", "weights of control groups", disable!("uresourced")),
    ("cgrulesengd", TASKS, disable!("cgred")),
    ("system76-scheduler", "weights of tasks", disable!("com.system76.Scheduler")),
    ("stalld", "deadline priorities of tasks that starve", disable!("stalld")),
    ("kubelet", TASKS, KUBELET),
    ("kubelite", TASKS, KUBELET),
    (
        "nova-compute",
        "which CPUs are online, governors and which CPUs guests run on",
        "cpu_power_management = false in nova.conf",
    ),
    ("k3s-server", TASKS, KUBELET),
    ("k3s-agent", TASKS, KUBELET),
    ("slurmd", TASKS, "no task/affinity and task/cgroup in TaskPlugin, or leave its CPUs to it"),
    ("nomad", TASKS, "no cores in its jobs' resources, or leave its CPUs to it"),
    ("pvestatd", TASKS, "no cores limit of containers, or leave their CPUs to it"),
    ("lxd", TASKS, "limits.cpu of its instances by number, on CPUs that Ebb does not park"),
    ("incusd", TASKS, "limits.cpu of its instances by number, on CPUs that Ebb does not park"),
    ("libvirtd", TASKS, "no <vcpupin> in domains on CPUs that Ebb may park"),
    ("virtqemud", TASKS, "no <vcpupin> in domains on CPUs that Ebb may park"),
    ("ksmtuned", "how much the kernel scans memory, which wakes cores", disable!("ksmtuned")),
    ("hd-idle", DISKS, disable!("hd-idle")),
    ("spindownd", DISKS, disable!("spindownd")),
    ("middlewared", DISKS, "set HDD Standby of the disks to Always On in TrueNAS"),
    ("emhttpd", DISKS, "set the spin down delay of the disks to Never in Unraid"),
];

/// Services that set something at the start or at an event and leave no process, and what they set.
const UNITS: &[(&str, &str, &str)] = &[
    ("tlp", PROFILES, disable!("tlp")),
    ("laptop-mode", PROFILES, disable!("laptop-mode")),
    ("cpupower", GOVERNORS, disable!("cpupower")),
    ("cpufrequtils", GOVERNORS, disable!("cpufrequtils")),
    ("powertop", PROFILES, disable!("powertop")),
    ("ryzenadj", LIMITS, disable!("ryzenadj")),
];

/// Where systemd has what starts with the machine.
const WANTED: [&str; 3] = [
    "etc/systemd/system/multi-user.target.wants",
    "etc/systemd/system/graphical.target.wants",
    "etc/systemd/system/sysinit.target.wants",
];
/// Where no programs are: configurations, logs, the kernel's files.
const NO_PROGRAMS: [&str; 4] = ["/etc/", "/var/", "/proc/", "/sys/"];
/// How the names of scripts end.
const SCRIPTS: [&str; 4] = [".py", ".pl", ".sh", ".tcl"];
/// What the kernel keeps of the name of a process (`TASK_COMM_LEN`).
const KEPT: usize = 15;

/// A program that runs, or that a service runs now and then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Conflict {
    /// Its name.
    pub program: &'static str,
    /// Its process; `None` of a service that has none in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What it sets.
    pub sets: &'static str,
    /// What to do before Ebb sets the same.
    pub remedy: &'static str,
}

impl Conflict {
    /// Who it is, for people.
    #[must_use]
    pub fn who(&self) -> String {
        match self.pid {
            Some(pid) => format!("{} (process {pid})", self.program),
            None => format!("{} (at the start and at events)", self.program),
        }
    }
}

/// All that run, each once.
#[must_use]
pub fn found(sys: &Sys) -> Vec<Conflict> {
    let mut all: Vec<Conflict> = Vec::new();
    let mut add = |row: &(&'static str, &'static str, &'static str), pid| {
        let (program, sets, remedy) = *row;
        // One may have processes of its own name.
        if !all.iter().any(|one| one.program == program) {
            all.push(Conflict { program, pid, sets, remedy });
        }
    };
    for pid in sys.numbered("proc", "") {
        let Ok(comm) = sys.text(format!("proc/{pid}/comm")) else { continue };
        let is_it = |known: &str, name: &str| match known.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == known || name == kept(known),
        };
        let row = |name: &str| KNOWN.iter().find(|(known, ..)| is_it(known, name));
        let scripts = || scripts(sys, &pid).into_iter().find_map(|name| row(&name));
        if let Some(row) = row(&comm).or_else(scripts) {
            add(row, pid.parse().ok());
        }
    }
    for unit in WANTED.into_iter().flat_map(|folder| sys.names(folder)) {
        let name = unit.strip_suffix(".service").unwrap_or(&unit);
        if let Some(row) = UNITS.iter().find(|(known, ..)| *known == name) {
            add(row, None);
        }
    }
    all
}

/// What is kept of the name of a process.
fn kept(name: &str) -> &str {
    &name[..name.len().min(KEPT)]
}

/// The names of what may be the script that a process runs, whatever interprets it, such as `smfc`
/// of `python3 /opt/smfc/smfc.py`: the path that comes first in its arguments. What follows an
/// option may be its value: then the next one may be it, too.
fn scripts(sys: &Sys, pid: &str) -> Vec<String> {
    let line = sys.text(format!("proc/{pid}/cmdline")).unwrap_or_default();
    let (mut names, mut after_option) = (Vec::new(), false);
    for argument in line.split('\0').skip(1) {
        let is_option = argument.starts_with('-');
        if !is_option {
            let (folder, name) = argument.rsplit_once('/').unwrap_or(("", argument));
            let plain = SCRIPTS.into_iter().find_map(|end| name.strip_suffix(end));
            let is_else = NO_PROGRAMS.iter().any(|folder| argument.starts_with(folder));
            if plain.is_some() || !folder.is_empty() && !is_else {
                names.push(plain.unwrap_or(name).to_owned());
            }
        }
        if !is_option && !after_option || is_option && !names.is_empty() {
            break;
        }
        after_option = is_option;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_are_known_by_process_script_and_service() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (pid, comm, line) in [
            (7, "power-profiles-", ""),
            (9, "coolercontrol-l", ""),
            (11, "python3", "python3\0-u\0/opt/smfc/smfc.py\0-c\0x"),
            (12, "bash", "/bin/bash\0/usr/sbin/fancontrol\0/etc/fancontrol"),
            (13, "fancontrol", ""),
            (14, "sshd", ""),
            (15, "python3", "python3\0/usr/bin/other"),
            (16, "platform-python", "/usr/libexec/platform-python\0-Es\0/usr/sbin/tuned\0-l\0-P"),
            (17, "python3.11", "python3\0-W\0ignore\0/usr/bin/gwe\0lact"),
            (18, "k3s-agent", "/usr/local/bin/k3s agent"),
            (19, "zcfan", "/usr/bin/zcfan"),
            (20, "openshift-tuned", "/usr/bin/openshift-tuned\0-v=1"),
            (21, "python3", "python3\0/opt/web.py\0--conf\0/etc/nbfc"),
            (22, "tclsh", "tclsh\0/usr/bin/i8kmon\0--nouserconfig"),
            (23, "tail", "tail\0-f\0/var/log/thermald"),
            (24, "journalctl", "journalctl\0-u\0irqbalance"),
            (25, "scx_rustland", "/usr/bin/scx_rustland"),
            (26, "nova-compute", "/usr/bin/python3\0/usr/bin/nova-compute"),
        ] {
            put(&format!("proc/{pid}/comm"), comm);
            put(&format!("proc/{pid}/cmdline"), line);
        }
        put("etc/systemd/system/multi-user.target.wants/tlp.service", "");
        put("etc/systemd/system/multi-user.target.wants/cron.service", "");
        let found = found(&Sys::new(root.path()));
        let names: Vec<_> = found.iter().map(|one| (one.program, one.pid)).collect();
        let expected = [
            ("power-profiles-daemon", Some(7)),
            ("coolercontrol-liqctld", Some(9)),
            ("smfc", Some(11)),
            ("fancontrol", Some(12)),
            ("tuned", Some(16)),
            ("gwe", Some(17)),
            ("k3s-agent", Some(18)),
            ("zcfan", Some(19)),
            ("openshift-tuned", Some(20)),
            ("i8kmon", Some(22)),
            ("scx_*", Some(25)),
            ("nova-compute", Some(26)),
            ("tlp", None),
        ];
        assert_eq!(names, expected);
        assert_eq!(found[0].remedy, "systemctl disable --now power-profiles-daemon");
    }

    #[test]
    fn no_two_rows_are_one_process() {
        let mut kept: Vec<_> = KNOWN.iter().map(|(name, ..)| kept(name)).collect();
        kept.sort_unstable();
        assert!(kept.windows(2).all(|two| two[0] != two[1]), "{kept:?}");
    }
}
