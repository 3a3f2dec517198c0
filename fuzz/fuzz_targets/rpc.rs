//! Lines of the control socket: a request from a client that may send anything, or an answer to
//! one from a server that may. Each is read or refused; what is written is read as it was meant.

#![no_main]
#![allow(dead_code, reason = "the commands use the rest")]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/ebb/src/rpc/protocol.rs"]
mod protocol;

fuzz_target!(|line: &[u8]| {
    let outcome = match protocol::parse(line) {
        Ok(request) => {
            if let Some(id) = request.id.as_ref().and_then(serde_json::Value::as_u64) {
                let params = serde_json::Value::Object(request.params.clone());
                let again = protocol::request(&request.method, &params, id);
                let again = protocol::parse(again.trim_end().as_bytes()).expect("what was written");
                assert_eq!((again.method, again.id), (request.method.clone(), request.id.clone()));
            }
            (Ok(request.method.into()), request.id.unwrap_or_default())
        }
        Err((fault, id)) => (Err(fault), id),
    };
    let answer = protocol::answer(outcome.0, &outcome.1);
    assert!(answer.ends_with('\n') && answer.matches('\n').count() == 1, "{answer:?}");
    let _ = protocol::outcome(line, 1);
});
