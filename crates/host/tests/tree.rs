//! Trees of kernel files like those of real machines.

use std::path::Path;

use ebb_host::{Absent, Admin, Controllers, Driver, Health, Identity, Machine, Silence, Sys};
use ebb_policy::PowerStateSpec;
use ebb_policy::units::{Celsius, Nanos, Watts};
use tempfile::TempDir;

/// A machine to be.
pub struct Tree {
    root: TempDir,
    pub driver: Option<Driver>,
}

impl Tree {
    pub fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), driver: None }
    }

    /// The same with a driver behind its settings.
    pub fn driven(self, driver: Driver) -> Self {
        Self { driver: Some(driver), ..self }
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    pub fn machine(&self) -> Machine {
        let sys = Sys::new(self.path());
        Machine::found(self.driver.map_or(sys.clone(), |driver| sys.driven(driver))).unwrap()
    }

    /// The machine with drives that keep their power state in `dev/nvmeN` and log what is set in
    /// `dev/log`.
    pub fn with_drives(&self) -> Machine {
        self.put("dev/nvme0", 0).put("dev/nvme1", 0).put("dev/log", "");
        let mut machine = self.machine();
        machine.nvme = Controllers::new(|sys, name| {
            let drive = Drive { name: name.to_owned(), sys: sys.clone() };
            drive.is_live()?;
            drive.sys.text(drive.file(2)).map(|_| Box::new(drive) as Box<dyn Admin>)
        });
        machine
    }

    /// What a file says.
    pub fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap().trim().to_owned()
    }

    /// Every file that could be set, with what it says.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                let name = path.strip_prefix(self.path()).unwrap().display().to_string();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                } else if path.is_file() && name != "dev/log" {
                    all.push((name.clone(), self.get(&name)));
                }
            }
        }
        all.sort();
        all
    }

    pub fn put(&self, path: &str, text: impl ToString) -> &Self {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.to_string() + "\n").unwrap();
        self
    }

    pub fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
        self
    }

    /// `sockets` of `cores` with `threads` each; siblings as Linux numbers them: first all first
    /// threads.
    pub fn cpus(&self, sockets: u16, cores: u16, threads: u16) -> &Self {
        let all = sockets * cores;
        self.put("sys/devices/system/cpu/online", format!("0-{}", all * threads - 1));
        for cpu in 0..all * threads {
            let core = cpu % all;
            let siblings: Vec<_> = (0..threads).map(|t| (core + t * all).to_string()).collect();
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            self.put(&format!("{folder}/physical_package_id"), core / cores);
            self.put(&format!("{folder}/core_cpus_list"), siblings.join(","));
        }
        self.put("proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10")
    }

    /// A frequency domain over `cpus` from `low` to `high` kHz.
    pub fn policy(&self, number: u16, cpus: &str, driver: &str, (low, high): (u32, u32)) -> &Self {
        let folder = format!("sys/devices/system/cpu/cpufreq/policy{number}");
        let file = |name: &str| format!("{folder}/{name}");
        self.put(&file("related_cpus"), cpus)
            .put(&file("scaling_driver"), driver)
            .put(&file("scaling_governor"), "schedutil")
            .put(&file("cpuinfo_min_freq"), low)
            .put(&file("cpuinfo_max_freq"), high)
            .put(&file("scaling_min_freq"), low)
            .put(&file("scaling_max_freq"), high)
            .put(&file("scaling_cur_freq"), low)
    }

    /// An idle state of CPU 0.
    pub fn idle(&self, number: u16, name: &str, exit: u32, residency: u32) -> &Self {
        let folder = format!("sys/devices/system/cpu/cpu0/cpuidle/state{number}");
        self.put(&format!("{folder}/name"), name)
            .put(&format!("{folder}/latency"), exit)
            .put(&format!("{folder}/residency"), residency)
            .put(&format!("{folder}/disable"), 0)
            .put(&format!("{folder}/usage"), 5_000)
    }

    /// An energy counter.
    pub fn zone(&self, zone: &str, name: &str, range: u64) -> &Self {
        let folder = format!("sys/class/powercap/{zone}");
        self.put(&format!("{folder}/name"), name)
            .put(&format!("{folder}/max_energy_range_uj"), range)
            .put(&format!("{folder}/energy_uj"), 12_345_678)
    }

    /// A chip of `device` with its files.
    pub fn chip(&self, number: u16, name: &str, device: &str, files: &[(&str, &str)]) -> &Self {
        let folder = format!("sys/class/hwmon/hwmon{number}");
        self.put(&format!("{folder}/name"), name);
        self.link(&format!("{folder}/device"), &format!("../../../{device}"));
        for (file, text) in files {
            self.put(&format!("{folder}/{file}"), text);
        }
        self
    }

    /// An NVMe drive on PCIe.
    pub fn nvme(&self, number: u16, model: &str, serial: &str) -> &Self {
        let name = format!("nvme{number}n1");
        let folder = format!("sys/block/{name}");
        self.put(&format!("sys/class/nvme/nvme{number}/transport"), "pcie");
        self.put(&format!("{folder}/device/model"), format!("{model}      "))
            .put(&format!("{folder}/device/serial"), serial)
            .put(&format!("{folder}/size"), 7_501_476_528_u64)
            .put(&format!("{folder}/queue/rotational"), 0)
            .put(&format!("{folder}/stat"), "100 0 800 50 300 0 2400 75 2 100 125 0 0 0 0 0 0")
    }

    /// A SATA disk, `sda` on port 0.
    pub fn disk(&self, name: &str, wwid: &str) -> &Self {
        let folder = format!("sys/block/{name}");
        let device = format!("sys/devices/ata/{}:0:0:0", name.as_bytes()[2] - b'a');
        self.put(&format!("{device}/vendor"), "ATA     ")
            .put(&format!("{device}/model"), "ST18000NM000J")
            .put(&format!("{device}/type"), 0)
            .put(&format!("{device}/wwid"), wwid)
            .put(&format!("{folder}/size"), 35_156_656_128_u64)
            .put(&format!("{folder}/removable"), 0)
            .put(&format!("{folder}/ro"), 0)
            .put(&format!("{folder}/queue/rotational"), 1)
            .put(&format!("{folder}/stat"), "1 0 8 1 1 0 8 1 0 2 2")
            .link(&format!("{folder}/device"), &format!("../../../{device}"))
    }

    /// A SCSI disk at its place among all devices, such as `pci0000:00/…/target0:0:0/0:0:0:0`.
    pub fn scsi(&self, name: &str, place: &str, vendor: &str, model: &str) -> &Self {
        let device = format!("sys/devices/{place}");
        let folder = format!("{device}/block/{name}");
        let address = place.rsplit('/').next().unwrap();
        self.put(&format!("{device}/vendor"), vendor)
            .put(&format!("{device}/model"), model)
            .put(&format!("{device}/type"), 0)
            .put(&format!("{folder}/size"), 35_156_656_128_u64)
            .put(&format!("{folder}/queue/rotational"), 1)
            .put(&format!("{folder}/stat"), "100 0 800 50 300 0 2400 75 2 100 125")
            .link(&format!("{folder}/device"), &format!("../../../{address}"))
            .link(&format!("sys/block/{name}"), &format!("../devices/{place}/block/{name}"))
    }

    /// Its world-wide name and serial number.
    pub fn marks(&self, name: &str, wwid: &str, serial: &str) -> &Self {
        let file = |file: &str| format!("sys/block/{name}/device/{file}");
        let page = format!("\0\u{1}\0{}{serial}", serial.len() as u8 as char);
        self.put(&file("wwid"), wwid).put(&file("vpd_pg80"), page)
    }

    /// A control group with a list of CPUs.
    pub fn group(&self, name: &str, cpus: &str) -> &Self {
        let folder = format!("sys/fs/cgroup/{name}");
        self.put(&format!("{folder}/cpuset.cpus"), cpus)
            .put(&format!("{folder}/cpuset.cpus.partition"), "member")
            .put(&format!("{folder}/cgroup.threads"), "")
    }

    /// What is a block device and no drive.
    pub fn no_drives(&self) -> &Self {
        for name in ["loop0", "dm-0", "md127", "ram0", "zram0"] {
            self.put(&format!("sys/block/{name}/size"), 2048);
        }
        self
    }
}

/// A drive in a file: 25, 14 and 9 W, and states in which it does no I/O.
#[derive(Debug)]
struct Drive {
    name: String,
    sys: Sys,
}

/// Caps of its operational states.
pub const CAPS: [f64; 3] = [25.0, 14.0, 9.0];
/// Power of its idle states, and their wake-ups in us.
pub const IDLE: [(f64, u64); 2] = [(4.0, 200), (1.0, 10_000)];

impl Drive {
    /// Of the power state, or of another feature.
    fn file(&self, feature: u8) -> String {
        match feature {
            2 => format!("dev/{}", self.name),
            other => format!("dev/{}-{other:x}", self.name),
        }
    }
}

impl Drive {
    /// Not while it is being reset, for so many questions.
    fn is_live(&self) -> Result<(), Absent> {
        let resets = format!("dev/{}-resets", self.name);
        let Ok(left @ 1..) = self.sys.number::<u32>(&resets) else { return Ok(()) };
        self.sys.write(&resets, &(left - 1).to_string())?;
        Err(Absent::Silent { path: self.name.clone().into(), silence: Silence::Resets })
    }
}

impl Admin for Drive {
    fn feature(&mut self, feature: u8) -> Result<u32, Absent> {
        self.is_live()?;
        // So many milliseconds for one answer.
        let slow = format!("dev/{}-slow", self.name);
        if let Ok(length @ 1..) = self.sys.number(&slow) {
            self.sys.write(&slow, "0")?;
            std::thread::sleep(std::time::Duration::from_millis(length));
        }
        self.sys.number(self.file(feature))
    }
    fn set_feature(&mut self, feature: u8, value: u32) -> Result<(), Absent> {
        self.sys.write(self.file(feature), &value.to_string())?;
        let log = self.sys.text("dev/log")?;
        self.sys.write("dev/log", &format!("{log} {}={value}", self.name))
    }
    fn identify(&mut self) -> Result<Identity, Absent> {
        let state = |(watts, exit): (f64, u64)| PowerStateSpec {
            max_power: Watts(watts),
            operational: watts > 5.0,
            entry: Nanos::ZERO,
            exit: Nanos::from_micros(exit),
        };
        let states = CAPS.map(|cap| (cap, 0)).into_iter().chain(IDLE).map(state);
        let states: Vec<_> = states.collect();
        let (serial, model) = (self.name.clone(), "fake".to_owned());
        let idle = vec![None; states.len()];
        let limits_power = self.sys.has(self.file(0x23));
        let apst = self.sys.has(format!("dev/{}-apst", self.name));
        let warning = Some(Celsius(70.0));
        Ok(Identity { serial, model, idle, warning, limits_power, apst, states, absurd: None })
    }
    fn health(&mut self) -> Result<Health, Absent> {
        let power = self.sys.number(format!("dev/{}-watts", self.name)).ok().map(Watts);
        Ok(Health { warnings: 0, temperature: Some(Celsius(41.0)), power })
    }
}

/// Like an Intel Ice Lake server: two sockets, hyper-threads, NVMe and fans; fewer cores.
pub fn intel() -> Tree {
    let tree = Tree::new();
    tree.cpus(2, 4, 2);
    for core in 0..8_u16 {
        tree.policy(core, &format!("{core} {}", core + 8), "intel_pstate", (800_000, 3_400_000));
    }
    tree.idle(0, "POLL", 0, 0).idle(1, "C1", 1, 1).idle(2, "C1E", 4, 4).idle(3, "C6", 170, 600);
    tree.zone("intel-rapl:0", "package-0", 262_143_328_850)
        .zone("intel-rapl:0:0", "dram", 65_712_999_613)
        .zone("intel-rapl:1", "package-1", 262_143_328_850)
        .zone("intel-rapl-mmio:0", "package-0", 262_143_328_850);
    let coretemp =
        |t| [("temp1_input", t), ("temp1_label", "Package id 0"), ("temp2_input", "99000")];
    tree.chip(0, "coretemp", "coretemp.0", &coretemp("61000"));
    tree.chip(1, "coretemp", "coretemp.1", &coretemp("64000"));
    tree.chip(2, "nvme", "nvme0", &[("temp1_input", "38850"), ("temp1_label", "Composite")]);
    tree.chip(
        3,
        "nct6798",
        "nct6775.656",
        &[
            ("temp1_input", "25000"),
            ("temp1_label", "Inlet Temp"),
            ("fan1_input", "5400"),
            ("fan2_input", "4800"),
            ("pwm1", "102"),
            ("pwm1_enable", "2"),
            ("pwm2", "255"),
            ("pwm2_enable", "1"),
        ],
    );
    tree.chip(4, "power_meter", "ACPI000D:00", &[("power1_average", "412000000")]);
    tree.nvme(0, "SAMSUNG MZWLO3T8HCLS-00A07", "S795NC0W100001").nvme(
        1,
        "KCD81RUG3T84",
        "X3F0A00C",
    );
    tree.no_drives();
    tree.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids")
        .put("sys/fs/cgroup/cgroup.subtree_control", "cpu io memory pids cpuset");
    tree.group("system.slice", "").group("user.slice", "");
    tree.put("proc/sys/kernel/random/boot_id", "a6dfd9b5");
    tree.put("proc/4242/comm", "tuned").put("proc/17/comm", "systemd");
    tree
}

/// Like an AMD EPYC server: one socket, SMT, frequencies in steps, disks.
pub fn amd() -> Tree {
    let tree = Tree::new();
    tree.cpus(1, 8, 2);
    for cpu in 0..16_u16 {
        tree.policy(cpu, &cpu.to_string(), "acpi-cpufreq", (1_500_000, 2_450_000));
        let steps = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        tree.put(&format!("{steps}/scaling_available_frequencies"), "2450000 2000000 1500000 ");
    }
    tree.zone("intel-rapl:0", "package-0", 65_532_610_987);
    let input = [("temp1_input", "55250"), ("temp1_label", "Tctl"), ("temp3_input", "48000")];
    tree.chip(0, "k10temp", "0000:00:18.3", &input);
    tree.chip(1, "drivetemp", "0:0:0:0", &[("temp1_input", "41000")]);
    tree.disk("sda", "naa.5000c500d5f1a2b3").disk("sdb", "naa.5000c500d5f1a2b4");
    tree
}

/// Like an Ampere Altra: one socket without SMT, cppc, no energy counters.
pub fn ampere() -> Tree {
    let tree = Tree::new();
    tree.cpus(1, 8, 1);
    for cpu in 0..8_u16 {
        tree.policy(cpu, &cpu.to_string(), "cppc_cpufreq", (1_000_000, 3_000_000));
    }
    tree.chip(
        0,
        "apm_xgene",
        "APMC0D29:00",
        &[
            ("temp1_input", "52000"),
            ("temp1_label", "SoC Temperature"),
            ("power1_input", "16280000"),
            ("power1_label", "CPU power"),
            ("power2_input", "31900000"),
            ("power2_label", "IO power"),
        ],
    );
    tree
}

/// Like a Kunpeng 920: two sockets without SMT, packages numbered by the firmware's handles, no
/// frequency driver.
pub fn kunpeng() -> Tree {
    let tree = Tree::new();
    tree.cpus(2, 6, 1);
    for cpu in 0..12_u16 {
        let package = if cpu < 6 { 36 } else { 8228 };
        tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), package);
    }
    tree
}
