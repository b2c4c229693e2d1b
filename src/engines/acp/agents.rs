//! The agents that speak the protocol: how each is started, and what is known of it.

/// What the numbers in an agent's answer to a prompt count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tokens {
    /// The whole turn.
    Turn,
    /// The last request to its model only, or nobody knows: less than what was used.
    Part,
}

/// One agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agent {
    /// Name in specs, and in settings of its program.
    pub(super) name: &'static str,
    /// Name on PATH.
    pub(super) program: &'static str,
    /// Arguments that make it speak the protocol.
    pub(super) args: &'static [&'static str],
    /// Variables it documents for reaching its provider.
    pub(super) needed: &'static [&'static str],
    /// Variables set for it.
    pub(super) fixed: &'static [(&'static str, &'static str)],
    /// What its numbers count.
    pub(super) tokens: Tokens,
    /// How remarks of its own begin that it sends as if the model had said them.
    pub(super) remarks: &'static [&'static str],
    /// How to get it.
    pub(super) install: &'static str,
}

/// Those known by name. `opencode` and `codex-acp` were recorded; the others are started as their makers document.
pub(super) const AGENTS: &[Agent] = &[
    Agent {
        name: "opencode",
        program: "opencode",
        args: &["acp"],
        needed: &[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "AWS_*",
            "AZURE_*",
            "DEEPSEEK_API_KEY",
            "GEMINI_API_KEY",
            "GITHUB_TOKEN",
            "GOOGLE_*",
            "GROQ_API_KEY",
            "MISTRAL_API_KEY",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "OPENCODE_API_KEY",
            "OPENCODE_CONFIG",
            "OPENCODE_CONFIG_CONTENT",
            "OPENCODE_CONFIG_DIR",
            "OPENCODE_PERMISSION",
            "OPENROUTER_API_KEY",
            "XAI_API_KEY",
        ],
        fixed: &[("OPENCODE_DISABLE_AUTOUPDATE", "1")],
        tokens: Tokens::Part,
        remarks: &[],
        install: "npm install -g opencode-ai",
    },
    Agent {
        name: "claude-code-acp",
        program: "claude-code-acp",
        args: &[],
        needed: &[
            "ANTHROPIC_*",
            "API_TIMEOUT_MS",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CONFIG_DIR",
        ],
        fixed: &[("DISABLE_AUTOUPDATER", "1"), ("DISABLE_TELEMETRY", "1")],
        tokens: Tokens::Part,
        remarks: &[],
        install: "npm install -g @zed-industries/claude-code-acp",
    },
    Agent {
        name: "codex-acp",
        program: "codex-acp",
        args: &[],
        needed: &["CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"],
        fixed: &[],
        // The older program gives no numbers at all, the newer one the turn's sum.
        tokens: Tokens::Turn,
        remarks: &["Model metadata for `"],
        install: "npm install -g @zed-industries/codex-acp",
    },
    Agent {
        name: "gemini",
        program: "gemini",
        args: &["--experimental-acp"],
        needed: &["GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_*"],
        fixed: &[],
        tokens: Tokens::Part,
        remarks: &[],
        install: "npm install -g @google/gemini-cli",
    },
    Agent {
        name: "kimi",
        program: "kimi",
        args: &["acp"],
        needed: &["KIMI_*", "MOONSHOT_API_KEY"],
        fixed: &[],
        tokens: Tokens::Part,
        remarks: &[],
        install: "uv tool install kimi-cli",
    },
    Agent {
        name: "goose",
        program: "goose",
        args: &["acp"],
        needed: &[
            "ANTHROPIC_API_KEY",
            "DATABRICKS_*",
            "GOOGLE_API_KEY",
            "GOOSE_*",
            "GROQ_API_KEY",
            "OPENAI_*",
            "OPENROUTER_API_KEY",
            "XAI_API_KEY",
        ],
        fixed: &[],
        tokens: Tokens::Part,
        remarks: &[],
        install: "see the releases of goose",
    },
];

/// Needed by every agent that reaches its provider through a proxy or an own authority.
pub(super) const SHARED: &[&str] = &[
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];

/// The agent called `name`.
pub(super) fn find(name: &str) -> Option<&'static Agent> {
    AGENTS.iter().find(|a| a.name == name)
}

/// All names, for messages.
pub(super) fn names() -> String {
    AGENTS.iter().map(|a| a.name).collect::<Vec<_>>().join(", ")
}
