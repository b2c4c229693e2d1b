//! Random keys and comparison that takes the same time whatever differs.

use sha2::{Digest, Sha256};

/// 32 bytes from the system's generator.
pub fn random() -> Result<[u8; 32], String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|e| format!("the system gave no random bytes: {e}"))?;
    Ok(bytes)
}

/// Bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether two texts are equal, without telling by its duration where they differ or how long the secret is.
pub fn equal(given: &str, secret: &str) -> bool {
    let (a, b) = (Sha256::digest(given), Sha256::digest(secret));
    a.iter().zip(b.iter()).fold(0_u8, |acc, (x, y)| acc | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_compare() {
        let (a, b) = (hex(&random().unwrap()), hex(&random().unwrap()));
        assert_eq!(a.len(), 64);
        assert!(!equal(&a, &b) && equal(&a, &a) && !equal("", &a) && !equal(&a[..63], &a));
    }
}
