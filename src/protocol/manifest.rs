//! STUB.
/// STUB.
pub fn text() -> String {
    String::new()
}
