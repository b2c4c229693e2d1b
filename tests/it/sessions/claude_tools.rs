//! What Claude Code says outside of sessions, over MCP: the real program, where `CLAWO_TEST_CLAUDE` names it, and files.

use serde_json::{Value, json};

use crate::{
    mcp_wire::Wire,
    support::{World, model::real},
};

async fn wire(world: &World) -> Wire {
    let mut wire = Wire::with(world.kernel().await, &["session", "claude"]);
    wire.initialize("2025-11-25").await;
    wire
}

async fn good(wire: &mut Wire, tool: &str, args: Value) -> Value {
    let answer = wire.call(tool, args).await;
    assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
    answer["result"]["structuredContent"].clone()
}

async fn code(wire: &mut Wire, tool: &str, args: Value) -> String {
    let answer = wire.call(tool, args).await;
    answer["result"]["structuredContent"]["code"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn put(world: &World, path: &str, text: &str) {
    let path = world.root().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Surfaces 5.6: background agents, the inventory of a plugin, and a purge that is dry unless told otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_is_asked() {
    let Some((world, _model)) = real(&json!({ "turns": [] })) else { return };
    let mut wire = wire(&world).await;
    let w = &mut wire;
    let cwd = world.project();
    for args in [json!({}), json!({ "all": true, "cwd": cwd })] {
        assert_eq!(good(w, "claude_agents_list", args).await["agents"], json!([]));
    }

    put(&world, "user/.claude/skills/demo/.claude-plugin/plugin.json", r#"{"name":"demo","version":"0.1.0"}"#);
    put(&world, "user/.claude/skills/demo/SKILL.md", "---\nname: demo\ndescription: A demo\n---\nDo it.\n");
    let plugin = good(w, "plugin_details", json!({ "name": "demo@skills-dir", "cwd": cwd })).await;
    assert!(plugin["inventory"].as_str().unwrap().contains("Component inventory"), "{plugin}");
    for name in ["nobody", "--help"] {
        assert_eq!(code(w, "plugin_details", json!({ "name": name, "cwd": cwd })).await, "invalid_argument");
    }

    let nothing = good(w, "project_purge", json!({ "cwd": cwd })).await;
    assert_eq!((&nothing["found"], &nothing["dryRun"]), (&json!(false), &json!(true)), "{nothing}");
    let dir: String = cwd.to_str().unwrap().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let file = format!("user/.claude/projects/{dir}/11111111-1111-4111-8111-111111111111.jsonl");
    put(&world, &file, "{}\n");
    let plan = good(w, "project_purge", json!({ "cwd": cwd })).await;
    assert!(plan["found"] == true && plan["plan"].as_str().unwrap().contains(&dir), "{plan}");
    assert!(world.root().join(&file).exists(), "a dry run deletes nothing");
    let done = good(w, "project_purge", json!({ "cwd": cwd, "dry_run": false })).await;
    assert!(done["found"] == true && done["dryRun"] == false, "{done}");
    assert!(!world.root().join(&file).exists());
    assert_eq!(code(w, "project_purge", json!({ "cwd": "project" })).await, "invalid_argument");
}

/// Surfaces 5.6: definitions of the project come before those of the user; of one name the first counts.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_agents_are_found() {
    let mut world = World::new();
    world.env.insert("HOME".to_owned(), world.root().join("user").to_string_lossy().into_owned());
    world.env.insert("CLAUDE_CONFIG_DIR".to_owned(), String::new());
    let agent = |name: &str, text: &str| format!("---\nname: {name}\ndescription: {text}\n---\nWork.\n");
    put(&world, "project/.claude/agents/rev.md", &agent("rev", "the project's"));
    put(&world, "project/.claude/agents/README.md", "No agent.\n");
    put(&world, "project/sub/.claude/agents/deep/near.md", &agent("near", "the nearest"));
    put(&world, "user/.claude/agents/rev.md", &agent("rev", "the user's"));
    put(&world, "user/.claude/agents/own.md", &agent("own", "the user's"));
    let mut wire = wire(&world).await;
    let found = good(&mut wire, "coding_agents_list", json!({ "cwd": world.project().join("sub") })).await;
    let found: Vec<(&str, &str)> = found["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| (agent["name"].as_str().unwrap(), agent["description"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [("near", "the nearest"), ("rev", "the project's"), ("own", "the user's")]);
}
