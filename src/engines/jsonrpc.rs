//! Messages of JSON-RPC, a line each: made, told apart, matched with what they answer.
//!
//! Does no I/O. Ids of the other side live in a space of their own and are echoed as they came.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Requests that may wait for their answer; a program that answers none of this many answers nothing.
const MAX_OPEN: usize = 256;

/// A message of the other side. `K` says what we had asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming<K> {
    /// It asks us, and has to be answered.
    Request {
        /// Its id, to be echoed.
        id: Value,
        /// What it asks.
        method: String,
        /// Its arguments.
        params: Value,
    },
    /// It tells us.
    Notification {
        /// What.
        method: String,
        /// Its arguments.
        params: Value,
    },
    /// It answers us.
    Answer {
        /// What we had asked.
        asked: K,
        /// What it says: a result, or its error.
        result: Result<Value, RpcError>,
    },
    /// Neither, or an answer to nothing.
    Noise,
}

/// A refusal of the other side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RpcError {
    /// Its number.
    pub code: i64,
    /// Its words.
    pub message: String,
    /// What else it says.
    pub data: Value,
}

/// Our side of a connection.
#[derive(Debug)]
pub struct Peer<K> {
    /// Whether `jsonrpc` is sent; one known program leaves it out.
    marked: bool,
    next: u64,
    open: BTreeMap<u64, K>,
}

impl<K> Peer<K> {
    /// Nothing was asked yet. `marked` sends the `jsonrpc` member.
    pub fn new(marked: bool) -> Self {
        Self { marked, next: 0, open: BTreeMap::new() }
    }

    /// A request as a line; the answer to it will come with `asked`.
    pub fn request(&mut self, asked: K, method: &str, params: &Value) -> String {
        self.next = self.next.saturating_add(1);
        if self.open.len() >= MAX_OPEN {
            self.open.pop_first();
        }
        self.open.insert(self.next, asked);
        self.line(json!({ "id": self.next, "method": method, "params": params }))
    }

    /// A notification as a line.
    pub fn notification(&self, method: &str, params: &Value) -> String {
        self.line(json!({ "method": method, "params": params }))
    }

    /// An answer as a line.
    pub fn answer(&self, id: &Value, result: &Value) -> String {
        self.line(json!({ "id": id, "result": result }))
    }

    /// A refusal as a line.
    pub fn refusal(&self, id: &Value, code: i64, message: &str) -> String {
        self.line(json!({ "id": id, "error": { "code": code, "message": message } }))
    }

    /// What a message of the other side is.
    pub fn take(&mut self, message: Value) -> Incoming<K> {
        let Value::Object(mut message) = message else { return Incoming::Noise };
        let id = message.remove("id").filter(|id| !id.is_null());
        if let Some(Value::String(method)) = message.remove("method") {
            let params = message.remove("params").unwrap_or(Value::Null);
            return match id {
                Some(id) => Incoming::Request { id, method, params },
                None => Incoming::Notification { method, params },
            };
        }
        let Some(asked) = id.and_then(|id| id.as_u64()).and_then(|id| self.open.remove(&id)) else {
            return Incoming::Noise;
        };
        let result = match message.remove("error") {
            Some(error) if !error.is_null() => Err(RpcError {
                code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
                message: error.get("message").and_then(Value::as_str).unwrap_or("no reason given").to_owned(),
                data: error.get("data").cloned().unwrap_or_default(),
            }),
            _ => Ok(message.remove("result").unwrap_or_default()),
        };
        Incoming::Answer { asked, result }
    }

    fn line(&self, mut message: Value) -> String {
        if self.marked
            && let Some(object) = message.as_object_mut()
        {
            object.insert("jsonrpc".to_owned(), "2.0".into());
        }
        message.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of both sides collide; the member `method` tells a request from an answer.
    #[test]
    fn equal_ids_of_both_sides_are_kept_apart() {
        let mut peer = Peer::new(true);
        let line: Value = serde_json::from_str(&peer.request("ask", "a/b", &json!({}))).unwrap();
        assert_eq!(line, json!({ "jsonrpc": "2.0", "id": 1, "method": "a/b", "params": {} }));
        let asked = peer.take(json!({ "id": 1, "method": "permit", "params": [1] }));
        assert_eq!(asked, Incoming::Request { id: json!(1), method: "permit".into(), params: json!([1]) });
        let answer = peer.take(json!({ "id": 1, "result": { "ok": true } }));
        assert_eq!(answer, Incoming::Answer { asked: "ask", result: Ok(json!({ "ok": true })) });
        assert_eq!(peer.take(json!({ "id": 1, "result": {} })), Incoming::Noise, "answered twice");
        peer.request("again", "c", &Value::Null);
        let refused = peer.take(json!({ "id": 2, "error": { "code": -32600, "message": "no" } }));
        let error = RpcError { code: -32600, message: "no".into(), data: Value::Null };
        assert_eq!(refused, Incoming::Answer { asked: "again", result: Err(error) });
        assert_eq!(peer.take(json!([1])), Incoming::Noise);
        assert_eq!(Peer::<()>::new(false).answer(&json!("x"), &json!(1)), r#"{"id":"x","result":1}"#);
    }
}
