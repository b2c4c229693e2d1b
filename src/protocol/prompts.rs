//! Prompts: fill in the arguments and say which tool to call. Bonus only; every tool works without them.

use rmcp::{
    ErrorData,
    model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role},
};
use serde_json::Value;

/// Longest argument taken into a prompt, in bytes.
const ARGUMENT_MAX: usize = 64 * 1024;

struct Known {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    /// Name, description, required.
    arguments: &'static [(&'static str, &'static str, Need)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

const KNOWN: [Known; 4] = [
    Known {
        name: "council",
        title: "Let a council work on a task",
        description: "Have several agents plan, work and vote on a task in worktrees of one repository.",
        arguments: &[
            ("task", "What is to be done", Need::Required),
            ("projectDir", "Absolute directory in a git repository", Need::Required),
            ("check", "Command that must succeed, for example: cargo test", Need::Optional),
        ],
    },
    Known {
        name: "explain-run",
        title: "Explain a run",
        description: "Explain how a run ended or where it stands, from its record and evidence.",
        arguments: &[("runId", "Id of the run", Need::Required)],
    },
    Known {
        name: "review",
        title: "Review a directory",
        description: "Have several agents review the changes in a directory.",
        arguments: &[
            ("cwd", "Absolute directory", Need::Required),
            ("focus", "What to look at in particular", Need::Optional),
            ("engine", "Engine of the reviewers", Need::Optional),
        ],
    },
    Known {
        name: "solve",
        title: "Solve a task, verified",
        description: "Have agents solve a task in a directory and check the result with a command.",
        arguments: &[
            ("task", "What is to be done", Need::Required),
            ("cwd", "Absolute directory", Need::Required),
            ("check", "Command that must succeed, for example: cargo test", Need::Optional),
        ],
    },
];

/// Every prompt, sorted.
pub fn list() -> Vec<Prompt> {
    KNOWN
        .iter()
        .map(|p| {
            let arguments = p
                .arguments
                .iter()
                .map(|(name, description, need)| {
                    PromptArgument::new(*name).with_description(*description).with_required(*need == Need::Required)
                })
                .collect();
            Prompt::new(p.name, Some(p.description), Some(arguments)).with_title(p.title)
        })
        .collect()
}

/// One prompt with its arguments filled in.
pub fn get(name: &str, arguments: Option<&JsonObject>) -> Result<GetPromptResult, ErrorData> {
    let Some(known) = KNOWN.iter().find(|p| p.name == name) else {
        let names: Vec<&str> = KNOWN.iter().map(|p| p.name).collect();
        return Err(ErrorData::invalid_params(
            format!("there is no such prompt; there are {}", names.join(", ")),
            None,
        ));
    };
    let value = |field: &str| -> Result<Option<String>, ErrorData> {
        match arguments.and_then(|a| a.get(field)) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= ARGUMENT_MAX => {
                Ok(Some(text.clone()).filter(|t| !t.trim().is_empty()))
            }
            Some(Value::String(_)) => {
                Err(ErrorData::invalid_params(format!("{field}: is longer than {ARGUMENT_MAX} bytes"), None))
            }
            Some(_) => Err(ErrorData::invalid_params(format!("{field}: must be a text"), None)),
        }
    };
    for (field, _, need) in known.arguments {
        if *need == Need::Required && value(field)?.is_none() {
            return Err(ErrorData::invalid_params(format!("{field}: is required"), None));
        }
    }
    let quoted = |field: &str| value(field).map(|v| Value::from(v.unwrap_or_default()).to_string());
    let contract = || {
        value("check").map(|check| match check {
            Some(check) => {
                let words: Vec<&str> = check.split_whitespace().collect();
                let (cmd, args) = words.split_first().map_or(("", &[][..]), |(c, a)| (*c, a));
                let contract = serde_json::json!({ "checks": [{ "type": "command", "cmd": cmd, "args": args }] });
                format!(", \"contract\": {contract}")
            }
            None => String::new(),
        })
    };
    let text = match known.name {
        "council" => format!(
            "Call council_start with {{\"task\": {}, \"projectDir\": {}{}}}. If there is no contract, first ask me how the \
result should be checked and add one. Then call council_status with the id and waitMs 50000 until its status is no \
longer running. Call council_review, read every changed file as its guidance says, and show me what you found. Call \
council_accept only when I say so, and council_reject with my feedback when I do not want it; a new council_start with \
continueFrom then goes on from there.",
            quoted("task")?,
            quoted("projectDir")?,
            contract()?
        ),
        "solve" => {
            let contract = contract()?;
            format!(
                "Call workflow_start with {{\"template\": \"solve\", \"task\": {}, \"cwd\": {}{contract}}}. If there is no \
contract, first ask me how the result should be checked and add one. Then call workflow_status with the runId and \
waitMs 50000 until the run ends, pass every open gate to me, and at the end call workflow_evidence and report the \
outcome with the failing checks, if any.",
                quoted("task")?,
                quoted("cwd")?
            )
        }
        "review" => {
            let engine = value("engine")?.map(|e| format!(", \"engine\": {}", Value::from(e))).unwrap_or_default();
            let focus = value("focus")?.map(|f| format!(" Look at this in particular: {f}")).unwrap_or_default();
            let task = Value::from(format!(
                "Review the uncommitted changes and the last commit in this repository. Report defects with file and line, most severe first. Change nothing.{focus}"
            ));
            format!(
                "Call workflow_start with {{\"template\": \"fanout\", \"cwd\": {}, \"task\": {task}, \"agents\": [{{\"name\": \
\"correctness\"{engine}, \"persona\": \"You look for wrong behaviour.\"}}, {{\"name\": \"safety\"{engine}, \"persona\": \
\"You look for security and data-loss problems.\"}}]}}. Follow it with workflow_status (waitMs 50000) until it ends, then \
merge the two reports and show them to me.",
                quoted("cwd")?
            )
        }
        _ => format!(
            "Call workflow_status with {{\"runId\": {run}, \"events\": 100}} and, if there is evidence, workflow_evidence with \
{{\"runId\": {run}}}. Explain what the run was to do, what happened at each node, why it has this state and outcome, and \
what I can do next.",
            run = quoted("runId")?
        ),
    };
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).with_description(known.description))
}
