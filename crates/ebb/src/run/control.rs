//! What `ebb ctl` can ask of `ebb run`: read and checked on a thread of its own, done by the run
//! between two cycles.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Result, ensure};
use ebb_cli::usage;
use ebb_policy::units::{Watts, parse_tolerance};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::board::Board;
use super::desk::{Asked, Order, Reply, What};
use super::status::Status;
use crate::exit;
use crate::log::Level;
use crate::rpc::{Fault, Methods, code};

/// A run answers between two cycles, or once it has set everything back.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time that an order can be given for, in days.
const DAYS: f64 = 366.0;

/// Asks a run.
pub struct Asker {
    board: Board,
    to: SyncSender<Asked>,
    /// Wakes the run.
    wake: UnixStream,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct For {
    for_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    watts: f64,
    for_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tolerance {
    share: f64,
    for_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    name: String,
    for_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelOf {
    level: Level,
    for_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Parameters of a method.
fn read<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T> {
    serde_json::from_value(Value::Object(params)).map_err(|error| usage(error.to_string()))
}

/// An order, and for how long.
fn order(method: &str, params: Map<String, Value>) -> Result<What> {
    let (order, for_s) = match method {
        "pause" => (Order::Pause(true), read::<For>(params)?.for_s),
        "budget.set" | "server-budget.set" => {
            let Budget { watts, for_s } = read(params)?;
            if !(watts.is_finite() && watts > 0.0) {
                return Err(usage(format!("{watts} W is no budget: write more than 0 W")));
            }
            let budget = Some(Watts(watts));
            let server = method == "server-budget.set";
            let order = if server { Order::ServerBudget } else { Order::Budget };
            (order(budget), for_s)
        }
        "tolerance.set" => {
            let Tolerance { share, for_s } = read(params)?;
            (Order::Tolerance(Some(parse_tolerance(&share.to_string()).map_err(usage)?)), for_s)
        }
        "policy.set" => {
            let Policy { name, for_s } = read(params)?;
            (Order::Policy(Some(name)), for_s)
        }
        "log-level.set" => {
            let LevelOf { level, for_s } = read(params)?;
            (Order::Level(Some(level)), for_s)
        }
        _ => {
            let Nothing {} = read(params)?;
            let order = match method {
                "resume" => Order::Pause(false),
                "budget.clear" => Order::Budget(None),
                "server-budget.clear" => Order::ServerBudget(None),
                "tolerance.clear" => Order::Tolerance(None),
                "policy.clear" => Order::Policy(None),
                _ => Order::Level(None),
            };
            (order, None)
        }
    };
    let is_time = |time: &f64| *time > 0.0 && *time <= 86_400.0 * DAYS;
    if let Some(time) = for_s.filter(|time| !is_time(time)) {
        return Err(usage(format!("for {time} s: write more than 0 s, up to {DAYS} days")));
    }
    Ok(What::Order(order, for_s.map(Duration::from_secs_f64)))
}

impl Asker {
    /// Of a run that `board` shows, which reads questions when it is woken.
    pub fn new(board: Board, to: SyncSender<Asked>, wake: UnixStream) -> Self {
        Self { board, to, wake }
    }

    fn ask(&self, what: What) -> Result<Reply> {
        let (reply, answer) = sync_channel(1);
        ensure!(
            self.to.try_send(Asked { what, reply }).is_ok(),
            "the run is ending, or too many ask at once; try again later"
        );
        // Where nobody empties it, it is awake.
        let _ = (&self.wake).write(&[0]);
        let late = "the run did not answer in time; ebb status says where it stands";
        answer.recv_timeout(PATIENCE).map_err(|_| anyhow::anyhow!(late))
    }

    fn dispatch(&self, method: &str, params: Map<String, Value>) -> Result<Reply> {
        match method {
            "status" => {
                let Nothing {} = read(params)?;
                Ok(Ok(serde_json::to_value(Status::of(&self.board.view()))?))
            }
            "verify" => {
                let Nothing {} = read(params)?;
                self.ask(What::Verify)
            }
            _ => self.ask(order(method, params)?),
        }
    }
}

impl Methods for Asker {
    fn names(&self) -> &'static [&'static str] {
        &[
            "status",
            "verify",
            "pause",
            "resume",
            "budget.set",
            "budget.clear",
            "server-budget.set",
            "server-budget.clear",
            "tolerance.set",
            "tolerance.clear",
            "policy.set",
            "policy.clear",
            "log-level.set",
            "log-level.clear",
        ]
    }

    fn call(&self, method: &str, params: Map<String, Value>) -> Reply {
        self.dispatch(method, params).unwrap_or_else(|error| {
            let code = if exit::is_usage(&error) { code::INVALID_PARAMS } else { code::FAILED };
            Err(Fault::new(code, exit::message(&error)))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(method: &str, params: Value) -> Result<What, String> {
        let Value::Object(params) = params else { panic!("parameters have names") };
        order(method, params).map_err(|error| error.to_string())
    }

    #[test]
    fn orders_are_read_or_refused() {
        let hour = Some(Duration::from_secs(3600));
        let read = of("budget.set", json!({ "watts": 200, "for_s": 3600 })).unwrap();
        assert!(matches!(read, What::Order(Order::Budget(Some(Watts(200.0))), end) if end == hour));
        let read = of("pause", json!({})).unwrap();
        assert!(matches!(read, What::Order(Order::Pause(true), None)));
        for (method, params, says) in [
            ("budget.set", json!({ "watts": -1 }), "more than 0 W"),
            ("budget.set", json!({ "watts": "200 W" }), "invalid type"),
            ("budget.set", json!({}), "missing field `watts`"),
            ("tolerance.set", json!({ "share": 20 }), "more than 1000%"),
            ("tolerance.set", json!({ "share": -0.1 }), "-0.1"),
            ("pause", json!({ "for_s": 0 }), "up to 366 days"),
            ("pause", json!({ "for_s": 1e300 }), "up to 366 days"),
            ("pause", json!({ "for": 1 }), "unknown field `for`"),
            ("resume", json!({ "for_s": 1 }), "unknown field"),
            ("log-level.set", json!({ "level": "loud" }), "unknown variant"),
        ] {
            let error = of(method, params.clone()).unwrap_err();
            assert!(error.contains(says), "{method} {params}: {error}");
        }
    }
}
