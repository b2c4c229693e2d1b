//! `clawo mcp` and `clawo serve`: the transports of the MCP server.

use clap::Args;

use super::{
    context::Context,
    failure::{Failure, Outcome},
};
use crate::{
    app::{App, Mode},
    tools::select::{Access, Selection},
};

/// Which tools are offered. The list never changes after the start.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfferArgs {
    /// Toolsets, as a,b or 'all' or 'default'
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    toolsets: Option<Vec<String>>,
    /// Tools by name, as a,b
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Tools that are not offered, as a,b
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    exclude_tools: Vec<String>,
    /// Only tools that change nothing; beats every other choice
    #[arg(long)]
    read_only: bool,
}

/// Arguments of `clawo mcp`.
#[derive(Debug, Clone, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    offer: OfferArgs,
}

/// Arguments of `clawo serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    offer: OfferArgs,
    /// Port; 0 is any free one [default: 18796]
    #[arg(short, long)]
    port: Option<u16>,
    /// Address to bind [default: 127.0.0.1]; any but a loopback one needs --allowed-host
    #[arg(short = 'H', long)]
    host: Option<String>,
    /// A further Host value that is accepted; repeatable
    #[arg(long, value_name = "HOST")]
    allowed_host: Vec<String>,
    /// A further Origin value that is accepted; repeatable
    #[arg(long, value_name = "ORIGIN")]
    allowed_origin: Vec<String>,
    /// Most live agent sessions [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_sessions: Option<u16>,
}

impl OfferArgs {
    fn selection(&self, configured: Option<Vec<String>>) -> Selection {
        Selection {
            toolsets: self.toolsets.clone(),
            tools: self.tools.clone(),
            exclude: self.exclude_tools.clone(),
            access: if self.read_only { Access::ReadOnly } else { Access::Full },
            configured,
        }
    }
}

/// Serves standard input and output.
pub(crate) fn mcp(context: &Context, args: McpArgs) -> Outcome {
    let config = context.config()?;
    let selected = args.offer.selection(config.tools.clone()).apply().map_err(Failure::from)?;
    for warning in &selected.warnings {
        context.out.note(format!("warning: {warning}"));
    }
    context.block_on(async {
        let app = App::open(config, Mode::Stdio).await?;
        app.shutdown().await;
        Ok(0)
    })
}

/// Serves HTTP.
pub(crate) fn http(context: &Context, args: ServeArgs) -> Outcome {
    let _ = (context, args);
    Ok(0)
}
