//! STUB until the schemas are merged.
/// STUB.
pub fn files() -> Vec<(String, String)> {
    Vec::new()
}
