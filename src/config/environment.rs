//! Which variables children get: everything except what looks like a secret, unless it is asked for.

use std::collections::BTreeMap;

/// Shapes of names that are kept from children. Compared without regard to case; `*` stands for anything.
pub const SECRET_NAMES: &[&str] = &["*KEY*", "*TOKEN*", "*SECRET*", "*PASSW*", "*CREDENTIAL*", "AWS_*", "CLAWO_*"];

/// Members of the two families whose values are settings. They are kept from children like the rest, but hiding
/// such values everywhere would tear ordinary words and paths out of every text.
const PLAIN_VALUES: &[&str] = &[
    "AWS_*REGION",
    "AWS_*PROFILE",
    "AWS_*OUTPUT",
    "AWS_PAGER",
    "AWS_CONFIG_FILE",
    "AWS_*CREDENTIALS_FILE",
    "AWS_*_FILE",
    "AWS_EC2_METADATA_*",
    "AWS_SDK_LOAD_CONFIG",
    "AWS_*ENDPOINT*",
    "AWS_RETRY_MODE",
    "AWS_MAX_ATTEMPTS",
    "AWS_CA_BUNDLE",
    "CLAWO_HOME",
    "CLAWO_*_DIR",
    "CLAWO_CONFIG",
    "CLAWO_MCP_TOOLS",
    "CLAWO_API_URL",
    "CLAWO_HOST",
    "CLAWO_PORT",
    "CLAWO_RATE_LIMIT",
    "CLAWO_DEFAULT_ENGINE",
    "CLAWO_MAX_SESSIONS",
    "CLAWO_SESSION_TTL_MINUTES",
    "CLAWO_*_BIN",
    "CLAWO_ULTRAAPP_*",
    "CLAWO_LOG",
    "CLAWO_OWNER",
    "CLAWO_RUN_ID",
    "CLAWO_NODE_ID",
    "CLAWO_VISIT",
    "CLAWO_ATTEMPT",
    "CLAWO_IDEMPOTENCY_KEY",
];

/// The environment for children and the values that were kept from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Passed on.
    pub kept: Vec<(String, String)>,
    /// Values of what was dropped, for redaction.
    pub dropped_values: Vec<String>,
}

/// Splits `env` by the shape of the names. `extra` are further patterns with `*`.
pub fn clean(env: &BTreeMap<String, String>, extra: &[String]) -> Cleaned {
    let mut cleaned = Cleaned::default();
    for (name, value) in env {
        let extra_match = extra.iter().any(|pattern| matches(pattern, name));
        if !extra_match && !SECRET_NAMES.iter().any(|pattern| matches(pattern, name)) {
            cleaned.kept.push((name.clone(), value.clone()));
        } else if extra_match || !PLAIN_VALUES.iter().any(|pattern| matches(pattern, name)) {
            cleaned.dropped_values.push(value.clone());
        }
    }
    cleaned
}

/// Whether `name` has the shape of `pattern`: ASCII case is ignored, `*` stands for any run of characters.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_uppercase(), name.to_ascii_uppercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    // Without a star the whole name was compared.
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_kept_back_and_settings_are_not_hidden() {
        // SE-1.
        let env: BTreeMap<String, String> = [
            ("PATH", "/bin"),
            ("HOME", "/home/me"),
            ("OPENAI_API_KEY", "k1"),
            ("github_token", "k2"),
            ("Db_Password", "k3"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "k4"),
            ("AWS_SESSION", "k5"),
            ("AWS_PROFILE", "default"),
            ("CLAWO_SERVER_TOKEN", "k6"),
            ("CLAWO_HOME", "/home/me/.c"),
            ("CLAWO_CUSTOM_ENGINE_X", "k7"),
            ("MY_DSN", "k8"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let cleaned = clean(&env, &["*_dsn".to_owned()]);
        let kept: Vec<&str> = cleaned.kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["HOME", "PATH"]);
        let mut values = cleaned.dropped_values;
        values.sort();
        assert_eq!(values, ["k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"]);
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*KEY*", "MONKEY", true),
            ("*KEY*", "KE_Y", false),
            ("A*B*C", "AxxBC", true),
            ("A*B*C", "ACB", false),
            ("AB", "ab", true),
            ("AB", "ABC", false),
            ("*", "", true),
            ("A*A", "A", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
