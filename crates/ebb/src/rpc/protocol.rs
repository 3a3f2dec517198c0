//! JSON-RPC 2.0 (jsonrpc.org/specification), one object a line: what asks and answers look like.
//!
//! Parameters are given by name. Batches are refused: who has several requests sends several lines.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Bytes of a request, without the end of its line.
pub const MOST_REQUEST: usize = 64 << 10;

/// Codes of the specification, and below -32000 our own.
pub mod code {
    #![allow(missing_docs)]
    pub const PARSE_ERROR: i32 = -32700;
    pub const INVALID_REQUEST: i32 = -32600;
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL_ERROR: i32 = -32603;
    /// It was understood and could not be done.
    pub const FAILED: i32 = -32000;
    /// Who asks may not.
    pub const FORBIDDEN: i32 = -32001;
    /// Too many ask at once.
    pub const BUSY: i32 = -32002;
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub code: i32,
    /// What is wrong and what to do.
    pub message: String,
}

impl Fault {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// A request that is well formed.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub method: String,
    /// By name.
    pub params: Map<String, Value>,
    /// `None` for a notification, which is not answered.
    pub id: Option<Value>,
}

/// Reads a request from a line. Never panics, whatever is in it.
///
/// # Errors
/// What is wrong, and the identifier to answer it with.
pub fn parse(line: &[u8]) -> Result<Request, (Fault, Value)> {
    let invalid = |what: &str, id: Value| (Fault::new(code::INVALID_REQUEST, what), id);
    let value = serde_json::from_slice(line).map_err(|error| {
        let text = format!("the line is not JSON: {error}; send one JSON-RPC request a line");
        (Fault::new(code::PARSE_ERROR, text), Value::Null)
    })?;
    let mut object = match value {
        Value::Object(object) => object,
        Value::Array(_) => {
            return Err(invalid("batches are not taken; send one request a line", Value::Null));
        }
        _ => return Err(invalid("a request is a JSON object", Value::Null)),
    };
    let id = object.remove("id");
    if !matches!(id, None | Some(Value::Null | Value::String(_) | Value::Number(_))) {
        return Err(invalid("'id' must be a string, a number or null", Value::Null));
    }
    let answer = || id.clone().unwrap_or(Value::Null);
    if object.remove("jsonrpc") != Some(Value::from("2.0")) {
        return Err(invalid("'jsonrpc' must be \"2.0\"", answer()));
    }
    let Some(Value::String(method)) = object.remove("method") else {
        return Err(invalid("'method' must be a string", answer()));
    };
    let params = match object.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(Value::Array(_)) => {
            let fault = Fault::new(code::INVALID_PARAMS, "give parameters by name, in an object");
            return Err((fault, answer()));
        }
        Some(_) => return Err(invalid("'params' must be an object", answer())),
    };
    if let Some(unknown) = object.keys().next() {
        let what = format!("a request has no '{unknown}'; it has jsonrpc, method, params and id");
        return Err(invalid(&what, answer()));
    }
    Ok(Request { method, params, id })
}

/// A request as a line.
pub fn request(method: &str, params: &Value, id: u64) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": id }).to_string() + "\n"
}

/// An answer as a line.
pub fn answer(outcome: Result<Value, Fault>, id: &Value) -> String {
    let answer = match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "result": result, "id": id }),
        Err(error) => json!({ "jsonrpc": "2.0", "error": error, "id": id }),
    };
    answer.to_string() + "\n"
}

/// Reads the answer to request `id`.
///
/// # Errors
/// When it is none.
pub fn outcome(line: &[u8], id: u64) -> Result<Result<Value, Fault>, String> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<Value>,
        error: Option<Fault>,
        id: Value,
    }
    let answer: Answer = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match answer {
        // Who may not ask at all, or not yet, is told so before the request is read.
        Answer { error: Some(fault), id: told, .. } if told == id || told.is_null() => {
            Ok(Err(fault))
        }
        Answer { result: Some(result), id: told, .. } if told == id => Ok(Ok(result)),
        _ => Err("an answer to another request".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code_of(line: &str) -> (i32, Value) {
        let (fault, id) = parse(line.as_bytes()).unwrap_err();
        (fault.code, id)
    }

    #[test]
    fn requests_are_told_from_what_is_none() {
        let line = request("host.add", &json!({ "nqn": "x" }), 7);
        let read = parse(line.trim_end().as_bytes()).unwrap();
        assert_eq!((read.method.as_str(), read.id), ("host.add", Some(json!(7))));
        assert_eq!(Value::Object(read.params), json!({ "nqn": "x" }));
        let notification = parse(br#"{"jsonrpc":"2.0","method":"a"}"#).unwrap();
        assert_eq!((notification.id, notification.params.len()), (None, 0));
        assert_eq!(
            parse(br#"{"jsonrpc":"2.0","method":"a","id":null}"#).unwrap().id,
            Some(Value::Null)
        );
        let null = || Value::Null;
        for (line, code, id) in [
            ("", code::PARSE_ERROR, null()),
            ("{", code::PARSE_ERROR, null()),
            ("\u{fffd}", code::PARSE_ERROR, null()),
            ("[]", code::INVALID_REQUEST, null()),
            (r#"[{"jsonrpc":"2.0","method":"a","id":1}]"#, code::INVALID_REQUEST, null()),
            ("7", code::INVALID_REQUEST, null()),
            (r#"{"method":"a","id":1}"#, code::INVALID_REQUEST, json!(1)),
            (r#"{"jsonrpc":"1.0","method":"a","id":"x"}"#, code::INVALID_REQUEST, json!("x")),
            (r#"{"jsonrpc":"2.0","method":1,"id":2}"#, code::INVALID_REQUEST, json!(2)),
            (r#"{"jsonrpc":"2.0","method":"a","id":[2]}"#, code::INVALID_REQUEST, null()),
            (
                r#"{"jsonrpc":"2.0","method":"a","id":1,"params":[1]}"#,
                code::INVALID_PARAMS,
                json!(1),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"a","id":1,"params":3}"#,
                code::INVALID_REQUEST,
                json!(1),
            ),
            (r#"{"jsonrpc":"2.0","method":"a","id":1,"x":3}"#, code::INVALID_REQUEST, json!(1)),
        ] {
            assert_eq!(code_of(line), (code, id), "{line}");
        }
        let deep = "[".repeat(MOST_REQUEST);
        assert_eq!(code_of(&deep).0, code::PARSE_ERROR, "no stack is deep enough");
    }

    #[test]
    fn answers_belong_to_their_requests() {
        let done = answer(Ok(json!({ "done": true })), &json!(3));
        assert_eq!(outcome(done.as_bytes(), 3), Ok(Ok(json!({ "done": true }))));
        assert!(outcome(done.as_bytes(), 4).is_err());
        let fault = Fault::new(code::FAILED, "no");
        let failed = answer(Err(fault.clone()), &json!(3));
        assert_eq!(outcome(failed.as_bytes(), 3), Ok(Err(fault.clone())));
        assert_eq!(outcome(answer(Err(fault.clone()), &Value::Null).as_bytes(), 3), Ok(Err(fault)));
        assert!(outcome(b"{}", 3).is_err() && outcome(b"x", 3).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(line: Vec<u8>) {
            if let Ok(read) = parse(&line) {
                prop_assert!(read.id.is_none_or(|id| !id.is_array() && !id.is_object()));
            }
        }
    }
}
