//! Rust source as tokens, without white space and comments. Tolerant: unterminated pieces reach to the end.

/// Sorts of token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Identifier, keyword, number or lifetime.
    Word,
    /// String, byte string or character.
    Literal,
    /// Opening bracket of any kind.
    Open,
    /// Closing bracket of any kind.
    Close,
    /// Any other single character.
    Punct,
}

/// A token and its text.
pub(super) type Token<'a> = (Sort, &'a [u8]);

/// For each token that opens a group, the index just past the group; the number of tokens where it never
/// closes. Kinds of brackets are not told apart.
pub(super) fn group_ends(tokens: &[Token<'_>]) -> Vec<usize> {
    let mut open = Vec::new();
    let mut ends = vec![tokens.len(); tokens.len()];
    for (at, (sort, _)) in tokens.iter().enumerate() {
        match sort {
            Sort::Open => open.push(at),
            Sort::Close => {
                if let Some(end) = open.pop().and_then(|start| ends.get_mut(start)) {
                    *end = at + 1;
                }
            }
            Sort::Word | Sort::Literal | Sort::Punct => {}
        }
    }
    ends
}

/// Splits source into tokens, leaving out white space and comments.
pub(super) fn lex(source: &[u8]) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source.strip_prefix(b"\xef\xbb\xbf").unwrap_or(source);
    while let Some(&first) = rest.first() {
        if first.is_ascii_whitespace() {
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        if let Some(len) = comment(rest) {
            rest = rest.get(len..).unwrap_or_default();
            continue;
        }
        let (sort, len) = token(rest, first);
        let len = len.clamp(1, rest.len());
        let (text, after) = rest.split_at(len);
        tokens.push((sort, text));
        rest = after;
    }
    tokens
}

/// Length of the comment at the start of `rest`.
fn comment(rest: &[u8]) -> Option<usize> {
    if rest.starts_with(b"//") {
        return Some(rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with(b"/*") {
        return None;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match rest.get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                at += 2;
            }
            Some(b"*/") => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
    Some(rest.len())
}

fn token(rest: &[u8], first: u8) -> (Sort, usize) {
    match first {
        b'(' | b'[' | b'{' => (Sort::Open, 1),
        b')' | b']' | b'}' => (Sort::Close, 1),
        b'"' => (Sort::Literal, quoted(rest, 1, b'"')),
        b'\'' => quote(rest),
        b if is_word(b) => word(rest),
        _ => (Sort::Punct, 1),
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

fn word_len(rest: &[u8]) -> usize {
    rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len())
}

/// A word, or the literal that a prefix such as `r#"`, `b"` or `c"` begins.
fn word(rest: &[u8]) -> (Sort, usize) {
    let len = word_len(rest);
    let prefix = rest.get(..len).unwrap_or_default();
    let after = rest.get(len..).unwrap_or_default();
    match prefix {
        b"b" | b"c" if after.first() == Some(&b'"') => (Sort::Literal, quoted(rest, len + 1, b'"')),
        b"b" if after.first() == Some(&b'\'') => (Sort::Literal, quoted(rest, len + 1, b'\'')),
        b"r" | b"br" | b"cr" => {
            let hashes = after.iter().take_while(|b| **b == b'#').count();
            if after.get(hashes) == Some(&b'"') {
                let mut close = vec![b'"'];
                close.resize(hashes + 1, b'#');
                let start = len + hashes + 1;
                let body = rest.get(start..).unwrap_or_default();
                let end = body.windows(close.len()).position(|w| w == close);
                return (Sort::Literal, end.map_or(rest.len(), |e| start + e + close.len()));
            }
            if prefix == b"r" && hashes == 1 {
                let name = word_len(after.get(1..).unwrap_or_default());
                return (Sort::Word, len + 1 + name);
            }
            (Sort::Word, len)
        }
        _ => (Sort::Word, len),
    }
}

/// Length of a literal whose body starts at `from`, escapes respected.
fn quoted(rest: &[u8], from: usize, close: u8) -> usize {
    let mut at = from;
    while let Some(b) = rest.get(at) {
        match *b {
            b'\\' => at += 2,
            b if b == close => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal, or a lifetime.
fn quote(rest: &[u8]) -> (Sort, usize) {
    let body = rest.get(1..).unwrap_or_default();
    match body.first() {
        Some(b'\\') => (Sort::Literal, quoted(rest, 1, b'\'')),
        Some(b) if is_word(*b) => {
            let len = word_len(body);
            if body.get(len) == Some(&b'\'') { (Sort::Literal, len + 2) } else { (Sort::Word, len + 1) }
        }
        Some(_) if body.get(1) == Some(&b'\'') => (Sort::Literal, 3),
        _ => (Sort::Punct, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        lex(source.as_bytes()).into_iter().map(|(_, text)| std::str::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn literals_and_comments_end_where_rust_ends_them() {
        for (source, expected) in [
            ("a/*x/*y*/z*/b//c\n d", vec!["a", "b", "d"]),
            (
                r##"r#"a"b"# r"\" br"x" b"\"" c"y""##,
                vec![r##"r#"a"b"#"##, r#"r"\""#, r#"br"x""#, r#"b"\"""#, r#"c"y""#],
            ),
            ("'a' 'b '\\'' '\"' b'{' '{' 'é'", vec!["'a'", "'b", "'\\''", "'\"'", "b'{'", "'{'", "'é'"]),
            ("r#type 1_000u8 x'", vec!["r#type", "1_000u8", "x", "'"]),
            ("\"// no\" /", vec!["\"// no\"", "/"]),
        ] {
            assert_eq!(texts(source), expected, "{source}");
        }
    }

    #[test]
    fn groups_end_or_reach_to_the_end() {
        assert_eq!(group_ends(&lex(b"( [ ] ) ( x")), [4, 3, 6, 6, 6, 6]);
    }
}
