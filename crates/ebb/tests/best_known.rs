//! The best plan that is known for a load beside settings that are not.

use crate::common::json;

/// What clairvoyant-cores draws, and the constants that keep what it keeps, W.
fn beside(server: &str, load: &[&str], plf: &str) -> (f64, Vec<(String, f64)>) {
    let mut args = vec!["sim", "--profile", server, "--plf", plf, "--json", "--policy", "native"];
    args.extend(load);
    let ghz = ["0.8", "1.6", "2.1", "3.4"];
    let cores = ["0.05", "0.1", "0.25", "0.4", "0.6", "1"];
    let grid = ghz.iter().flat_map(|ghz| cores.iter().map(move |share| (ghz, share)));
    let constants = grid.flat_map(|(ghz, share)| {
        let constant = format!("constant(ghz={ghz}, cores={share})");
        [format!("{constant}+apst"), constant]
    });
    let mut policies: Vec<String> = constants.collect();
    policies.push("clairvoyant-cores".to_owned());
    args.extend(policies.iter().flat_map(|policy| ["--policy", policy]));
    let found = json(&args);
    let verdicts = found["verdicts"].as_array().unwrap();
    let saved = |at: usize| verdicts[at]["saved_watts"].as_f64().unwrap();
    let kept = |at: &usize| verdicts[*at]["kept"] == true;
    assert_eq!(verdicts.len(), policies.len(), "{found}");
    let best = policies.len() - 1;
    assert!(saved(best) <= 0.0 || kept(&best), "{server} {load:?} {plf}: {}", verdicts[best]);
    let constants = (0..best).filter(kept).map(|at| (policies[at].clone(), saved(at)));
    (saved(best), constants.collect())
}

/// Also where parking lowers latency, and where windows break what the mean keeps.
#[test]
fn no_constant_of_a_grid_saves_more() {
    for (server, load, tolerated) in [
        ("generic-1u", "poisson --rate 8k --duration 2s", &["0.001", "0.02", "0.2"][..]),
        ("generic-1u", "on-off --rate 20k --duration 12s", &["0.1"]),
        ("pass-10", "poisson --rate 20k --duration 2s", &["0.01", "0.2"]),
        ("asg-1115s", "poisson --rate 10k --duration 1s", &["0.05"]),
    ] {
        let load: Vec<&str> = ["--workload"].into_iter().chain(load.split(' ')).collect();
        for plf in tolerated {
            let (saved, constants) = beside(server, &load, plf);
            for (constant, own) in constants {
                assert!(
                    own <= saved + 1e-6,
                    "{server} {load:?} {plf}: {constant} {own}, known {saved} W"
                );
            }
        }
    }
}

/// Also where queues that its first passes did not leave let others serve more.
#[test]
fn no_policy_of_caps_serves_more() {
    for (load, budget) in [("vdi", "80 W"), ("mail", "84 W")] {
        let mut args = vec!["sim", "--profile", "converged-1u", "--workload", load, "--seed", "3"];
        args.extend(["--json", "--duration", "8 s", "--warmup", "0s", "--ssd-budget", budget]);
        let policies = ["sspc", "pacman", "pacman-plus", "clairvoyant-caps"];
        args.extend(policies.iter().flat_map(|policy| ["--policy", policy]));
        let found = json(&args);
        let bytes = |at: usize| found["runs"][at]["bytes"].as_u64().unwrap();
        for (at, policy) in policies.iter().enumerate() {
            assert!(
                bytes(at) <= bytes(3),
                "{load}: {policy} serves {}, of {}",
                bytes(at),
                bytes(3)
            );
        }
    }
}
