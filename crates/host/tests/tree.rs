//! Trees of kernel files like those of real machines.

use std::path::Path;

use ebb_host::{Machine, Sys};
use tempfile::TempDir;

/// A machine to be.
pub struct Tree {
    root: TempDir,
}

impl Tree {
    pub fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    pub fn machine(&self) -> Machine {
        Machine::found(Sys::new(self.path())).unwrap()
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

    /// A SATA disk.
    pub fn disk(&self, name: &str, wwid: &str) -> &Self {
        let folder = format!("sys/block/{name}");
        self.put(&format!("sys/devices/ata/{name}/model"), "ST18000NM000J")
            .put(&format!("sys/devices/ata/{name}/wwid"), wwid)
            .put(&format!("{folder}/size"), 35_156_656_128_u64)
            .put(&format!("{folder}/queue/rotational"), 1)
            .put(&format!("{folder}/stat"), "1 0 8 1 1 0 8 1 0 2 2")
            .link(&format!("{folder}/device"), &format!("../../devices/ata/{name}"))
    }

    /// What is a block device and no drive.
    pub fn no_drives(&self) -> &Self {
        for name in ["loop0", "dm-0", "md127", "ram0", "zram0"] {
            self.put(&format!("sys/block/{name}/size"), 2048);
        }
        self
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
            ("fan2_input", "0"),
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
        .put("sys/fs/cgroup/cgroup.subtree_control", "cpu io memory pids");
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
    tree.chip(1, "drivetemp", "sda", &[("temp1_input", "41000")]);
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
        "xgene",
        "APMC0D29:00",
        &[("temp1_input", "52000"), ("temp1_label", "SoC Temperature")],
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
