//! Between the tools' own types and the protocol's.

use std::sync::Arc;

use base64::Engine;
use rmcp::model::{CallToolResult, ContentBlock, ProtocolVersion, Resource, Tool, ToolAnnotations};
use serde_json::Value;

use crate::tools::{
    self, Attachment, Outcome,
    outcome::{error_object, error_text},
};

/// A tool as `tools/list` shows it.
pub fn tool(tool: &tools::Tool) -> Tool {
    let about = &tool.about;
    let mut out = Tool::new(about.name, about.description, Arc::new(tool.input.clone()));
    out.title = Some(about.title.to_owned());
    out.output_schema = Some(Arc::new(tool.output.clone()));
    out.annotations = Some(ToolAnnotations::from_raw(
        Some(about.title.to_owned()),
        Some(about.hints.read_only),
        Some(about.hints.destructive),
        Some(about.hints.idempotent),
        Some(about.hints.open_world),
    ));
    out
}

/// An outcome as a result: structured content and a short text, errors included.
pub fn result(outcome: Outcome, version: Option<&ProtocolVersion>) -> CallToolResult {
    // Links and structured content came with 2025-06-18; older hosts get the object as text.
    let current = version.is_none_or(|v| v.as_str() >= ProtocolVersion::V_2025_06_18.as_str());
    let (structured, content, failed) = match outcome {
        Ok(result) => {
            let mut content = vec![ContentBlock::text(result.text)];
            for attachment in result.attachments {
                match attachment {
                    Attachment::Png { name, bytes } => {
                        content.push(ContentBlock::text(name));
                        let data = base64::engine::general_purpose::STANDARD.encode(bytes);
                        content.push(ContentBlock::image(data, "image/png"));
                    }
                    Attachment::Link { uri, name, mime } if current => {
                        content.push(ContentBlock::resource_link(Resource::new(uri, name).with_mime_type(mime)));
                    }
                    Attachment::Link { .. } => {}
                }
            }
            (Value::Object(result.structured), content, false)
        }
        Err(error) => (Value::Object(error_object(&error)), vec![ContentBlock::text(error_text(&error))], true),
    };
    let mut content = content;
    if !current {
        content.push(ContentBlock::text(structured.to_string()));
    }
    let mut out = CallToolResult::structured(structured);
    out.content = content;
    out.is_error = Some(failed);
    out
}
