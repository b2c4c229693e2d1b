//! JSON out of a line that may hold bytes JSON does not allow.

use serde_json::Value;

/// The value on a line. Invalid UTF-8 and raw control characters inside strings are escaped rather than
/// making the line worthless; `None` when it is not JSON even then.
pub(in crate::engines) fn value(bytes: &[u8]) -> Option<Value> {
    let value = serde_json::from_slice(bytes).or_else(|_| serde_json::from_str(&escaped(bytes)));
    value.ok().filter(Value::is_object)
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 16);
    let (mut in_string, mut after_backslash) = (false, false);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if in_string && c < ' ' {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            } else {
                out.push(c);
            }
            match c {
                '"' if !after_backslash => in_string = !in_string,
                _ => {}
            }
            after_backslash = in_string && c == '\\' && !after_backslash;
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\\\x{byte:02x}"));
            after_backslash = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::value;

    /// HO-3.
    #[test]
    fn odd_bytes_survive_as_escapes() {
        let v = value(b"{\"a\":\"x\xff\xfey \0 \x1b[1m \\\"q\\\" \xc3\xa9\"}").unwrap();
        assert_eq!(v["a"], "x\\xff\\xfey \0 \x1b[1m \"q\" é");
        assert!(value(b"\0").is_none());
        assert!(value(b"[1]").is_none());
        assert!(value(b"{\"a\":").is_none());
    }
}
