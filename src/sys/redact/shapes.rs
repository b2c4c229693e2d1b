//! What keys look like when nobody told us their values. Prefers names and prefixes to guesses about randomness.

use std::{borrow::Cow, sync::LazyLock};

use regex::bytes::{Captures, Regex};

use super::MASK;

/// The first line of a private key.
pub(super) const BEGIN_KEY: &str = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";

/// The last line of a private key.
pub(super) const END_KEY: &str = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";

/// Characters that end a value outside quotes.
const VALUE: &str = r#"(?:\\?"[^"\r\n\\]{6,}|\\?'[^'\r\n\\]{6,}|[^\s"'&,;\\<>(){}]{6,})"#;

/// Words in a name whose value is a secret, joined as in `api_key`, `clientSecret`, `access-token`.
const NAME: &str = r"(?i:(?:api|access|auth|secret|private|client|signing|encryption|refresh|bearer)[_-]?(?:access[_-]?)?(?:key|token|secret))";

static SHAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let key_block = format!(r"{BEGIN_KEY}(?s:.*?)(?:{END_KEY}|\z)");
    // Groups: what stays in front of the mask.
    let shapes = [
        format!(r"(?P<key>{key_block})"),
        r"(?P<bearer>\b(?i:bearer|basic)[ \t]+)[A-Za-z0-9._~+/=-]{8,}".to_owned(),
        r"\bsk-[A-Za-z0-9_-]{12,}".to_owned(),
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b".to_owned(),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})".to_owned(),
        r"\bxox[a-z]-[A-Za-z0-9-]{8,}".to_owned(),
        r"\bAIza[A-Za-z0-9_-]{30,}".to_owned(),
        r"\bnpm_[A-Za-z0-9]{30,}".to_owned(),
        r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}".to_owned(),
        // A password in an address.
        r"(?P<url>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,80}:)[^\s/@:]{3,200}@".to_owned(),
        format!(r#"(?P<named>{NAME}\\?["']?[ \t]*[:=][ \t]*){VALUE}"#),
        format!(r"(?P<env>(?i:_KEY|_TOKEN|_SECRET|_CREDENTIALS?|PASSW[A-Z_]*)=){VALUE}"),
    ];
    Regex::new(&format!("(?-u){}", shapes.join("|"))).ok()
});

static NAMES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"(?-u)^(?:[A-Za-z0-9_.-]*[_.-])?(?:{NAME}|(?i:passw(?:or)?d))$")).ok());

/// Masks every shape. If the patterns could not be built (a defect a test would show) everything is hidden.
pub(super) fn mask(bytes: &[u8]) -> Vec<u8> {
    let Some(shapes) = &*SHAPES else { return MASK.as_bytes().to_vec() };
    let masked = shapes.replace_all(bytes, |found: &Captures<'_>| {
        let kept = ["bearer", "named", "env", "url"].iter().find_map(|group| found.name(group));
        let mut shown = kept.map(|kept| kept.as_bytes().to_vec()).unwrap_or_default();
        let value = found.get(0).and_then(|whole| whole.as_bytes().get(shown.len()..)).unwrap_or_default();
        // The opening quote stays; the closing one was not taken.
        let quote = value.iter().take(2).take_while(|byte| matches!(byte, b'\\' | b'"' | b'\'')).count();
        shown.extend_from_slice(value.get(..quote).unwrap_or_default());
        shown.extend_from_slice(MASK.as_bytes());
        if found.name("url").is_some() {
            shown.push(b'@');
        }
        shown
    });
    match masked {
        Cow::Borrowed(same) => same.to_vec(),
        Cow::Owned(changed) => changed,
    }
}

/// Where the shapes are.
pub(super) fn spans(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    SHAPES.as_ref().map(|shapes| shapes.find_iter(bytes).map(|found| found.range()).collect()).unwrap_or_default()
}

/// Whether a member of this name holds a secret.
pub(super) fn names_secret(name: &str) -> bool {
    NAMES.as_ref().is_none_or(|names| names.is_match(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        String::from_utf8(mask(text.as_bytes())).unwrap()
    }

    #[test]
    fn shapes_are_hidden_and_masks_are_stable() {
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----";
        let cases = [
            ("Authorization: Bearer abc.def-ghi=".to_owned(), "Authorization: Bearer [redacted]"),
            ("a sk-ant-api03-AbCd_1234567 b".to_owned(), "a [redacted] b"),
            ("AKIAIOSFODNN7EXAMPLE".to_owned(), "[redacted]"),
            (format!("x ghp_{} y", "a1".repeat(18)), "x [redacted] y"),
            (format!("github_pat_{}", "a1_".repeat(12)), "[redacted]"),
            ("xoxb-1234-5678-abcdef".to_owned(), "[redacted]"),
            ("api_key = \"abcdefgh\", next".to_owned(), "api_key = \"[redacted]\", next"),
            ("{\"apiKey\":\"abcdefgh\"}".to_owned(), "{\"apiKey\":\"[redacted]\"}"),
            (r#"{\"client_secret\": \"abcdefgh\"}"#.to_owned(), r#"{\"client_secret\": \"[redacted]\"}"#),
            ("export MY_SERVICE_TOKEN=abcdef123 &&".to_owned(), "export MY_SERVICE_TOKEN=[redacted] &&"),
            ("DB_PASSWORD='with space' x".to_owned(), "DB_PASSWORD='[redacted]' x"),
            ("postgres://me:hunter22@host/db".to_owned(), "postgres://me:[redacted]@host/db"),
            (format!("a\n{key}\nb"), "a\n[redacted]\nb"),
            ("cut -----BEGIN PRIVATE KEY-----\nMII".to_owned(), "cut [redacted]"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(&text), expected);
            assert_eq!(shown(expected), expected, "not stable");
        }
        // What people write every day stays readable.
        let plain = "risk-assessment-of-something token count: 5, primary_key=True, task-list-of-everything, \
                     let token = parser.next(); http://localhost:8080/a@b";
        assert_eq!(shown(plain), plain);
    }

    #[test]
    fn time_is_linear() {
        for piece in ["a_key=\"", "-----BEGIN ", "api_key", "Bearer ", "eyJaaaaaaaaaa.", "://:", "_KEY=\\\""] {
            let text = piece.repeat(100_000 / piece.len());
            // Quadratic would take minutes and trip the test runner.
            assert!(!mask(text.as_bytes()).is_empty());
        }
    }
}
