//! The host's plant caps a drive that `ebb serve` models by its power limit, over NVMe/TCP.

use std::time::Duration;

use ebb_host::{
    Absent, Admin, Contest, Controllers, Health, Held, Host, Identity, Leave, Machine, State,
    Stated, restore,
};
use ebb_initiator::{Controller, Target};
use ebb_nvme::identify;
use ebb_nvme::log::Smart;
use ebb_policy::{Applied, Control, InForce, Outcome, Plant, Request, Signals};

use zerocopy::FromBytes;

use crate::common::{prints, valid};
use crate::serve::Serve;
use crate::tree::intel;

const NQN: &str = "nqn.2026-01.org.example:limited";
/// Power Limit, and Power Management.
const FEATURE: u8 = 0x23;
const STATE: u8 = 2;

/// A modelled pm1743 (25 to 9 W) that takes a power limit, or does not.
fn serve(power_limit: bool) -> (Serve, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let drive = include_str!("../../twin/profiles/drives/pm1743.toml");
    let key = format!("[drive]\npower_limit = {power_limit}\n");
    let file = folder.path().join("drive.toml");
    std::fs::write(&file, drive.replacen("[drive]\n", &key, 1)).unwrap();
    let namespace = format!("modelled:1MiB,drive={}", file.display());
    (Serve::start(&["--nqn", NQN, "--namespace", &namespace]), folder)
}

fn connect(address: &str) -> Controller {
    Controller::connect(&Target::new(address.parse().unwrap(), NQN)).unwrap()
}

/// A controller as the host asks it.
struct Remote(Controller);

impl std::fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Remote")
    }
}

fn absent(error: ebb_initiator::Error) -> Absent {
    Absent::Failed { path: "dev/nvme0".into(), error: error.to_string() }
}

impl Admin for Remote {
    fn feature(&mut self, feature: u8) -> Result<u32, Absent> {
        self.0.feature(feature).map_err(absent)
    }
    fn set_feature(&mut self, feature: u8, value: u32) -> Result<(), Absent> {
        self.0.set_feature(feature, value).map(drop).map_err(absent)
    }
    fn identify(&mut self) -> Result<Identity, Absent> {
        let bytes = self.0.identify_controller().map_err(absent)?;
        Ok(Identity::parse(&identify::Controller::read_from_bytes(&bytes).unwrap()))
    }
    fn health(&mut self) -> Result<Health, Absent> {
        let bytes = self.0.log_page(2, 0, 512).map_err(absent)?;
        Ok(Health::parse(&Smart::read_from_bytes(&bytes).unwrap()))
    }
}

#[test]
fn the_host_caps_a_served_drive_by_its_power_limit_and_sets_it_back() {
    let (serve, _folder) = serve(true);
    let mut other = connect(&serve.address);
    let found = 2 << 16 | 2_030;
    other.set_feature(FEATURE, found).unwrap();
    let tree = intel();
    tree.put("dev/nvme0", &serve.address);
    let machine = || {
        let mut machine: Machine = tree.machine();
        machine.nvme = Controllers::new(|sys, name| {
            let address = sys.text(format!("dev/{name}"))?;
            Ok(Box::new(Remote(connect(&address))))
        });
        machine
    };
    let mut host = Host::new(machine(), &Stated::default(), &[Control::PowerState]).unwrap();
    let topology = host.topology().clone();
    let caps: Vec<_> = topology.drives[0].operational().iter().map(|s| s.max_power.0).collect();
    assert_eq!((caps.len(), caps[0], caps[16]), (17, 25.0, 9.0));
    let state = tempfile::tempdir().unwrap();
    let state = State::open(state.path()).unwrap();
    let owns = &[Control::PowerState];
    host.act(owns, Held::default(), |_| Leave::Restore, Contest::Reassert, &state).unwrap();
    let mut ask = |step: u8, limit: u32| {
        let mut request = Request::new(&topology);
        request.power_state.ask(0, step, "test:");
        let mut given = InForce::new(&topology);
        given.follow(&request);
        let mut applied = Applied::new(&topology);
        host.apply(&given, &mut applied);
        assert_eq!(applied.of(Control::PowerState, 0), Outcome::Done, "step {step}");
        assert_eq!(other.feature(FEATURE).unwrap(), limit, "step {step}");
        assert_eq!(other.feature(STATE).unwrap(), 0, "the power state is left alone");
    };
    for step in 5..17 {
        ask(step, 2 << 16 | (2_500 - 100 * u32::from(step)));
    }
    ask(0, found); // Never above what was found.
    ask(12, 2 << 16 | 1_300);
    let mut signals = Signals::new(&topology);
    host.sense(&mut signals);
    assert_eq!(signals.drives[0].state, Some(12));
    // Its controller stays, as the kernel's does.
    let restorer = machine();
    restore(&restorer, &state, None).unwrap();
    assert_eq!(other.feature(FEATURE).unwrap(), found);
}

#[test]
fn a_served_drive_refuses_limits_that_it_cannot_keep() {
    let (limited, _folder) = serve(true);
    let mut controller = connect(&limited.address);
    for value in [2 << 16 | 899, 3 << 16 | 1_000, 1_000] {
        assert!(controller.set_feature(FEATURE, value).is_err(), "{value:#x}");
        assert_eq!(controller.feature(FEATURE).unwrap(), 0);
    }
    controller.set_feature(FEATURE, 2 << 16 | 900).unwrap();
    // A limit ends with the controller that has set it.
    let mut other = connect(&limited.address);
    drop(controller);
    while other.feature(FEATURE).unwrap() != 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (own, _folder) = serve(false);
    let mut controller = connect(&own.address);
    assert!(controller.feature(FEATURE).is_err());
    assert!(controller.set_feature(FEATURE, 2 << 16 | 1_500).is_err());
    assert_eq!(controller.feature(STATE).unwrap(), 0);
}

/// The limit in force of a modelled drive, wherever a server shows what it does.
fn shown(serve: &Serve) -> Option<f64> {
    let status = serve.status();
    valid("serve-status-1", &status);
    let limit = status["drives"][0].get("power_limit_w").map(|limit| limit.as_f64().unwrap());
    let (_, metrics) = serve.get("/metrics");
    let mut lines = metrics.lines();
    let metric = lines.find_map(|line| line.strip_prefix("ebb_drive_power_limit_watts{"));
    let metric = metric.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap());
    assert_eq!(metric, limit, "{metrics}");
    let text = prints(&["status", &serve.metrics]);
    let drive = text.lines().find(|line| line.contains("(namespace 2)")).unwrap();
    let cell = limit.map_or("–".to_owned(), |limit| format!("{limit:.2}"));
    assert_eq!(drive.split_whitespace().nth(4), Some(&*cell), "{text}");
    limit
}

#[test]
fn a_served_drive_shows_the_limit_in_force() {
    let (serve, _folder) = serve(true);
    assert_eq!(shown(&serve), None);
    let mut controller = connect(&serve.address);
    controller.set_feature(FEATURE, 2 << 16 | 1_050).unwrap();
    assert_eq!(shown(&serve), Some(10.5));
    controller.set_feature(FEATURE, 0).unwrap();
    assert_eq!(shown(&serve), None);
}
