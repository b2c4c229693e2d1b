//! The one handler behind every transport and both protocol eras. Lists and dispatches only.

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
        CustomRequest, CustomResult, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
        Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
        RequestStateCodec, ResourceUpdatedNotification, ResourceUpdatedNotificationParam, ServerCapabilities,
        ServerConfig, ServerNotification, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
        UpdateTaskParams,
    },
    service::{RequestContext, SubscriptionContext},
};

use super::{
    INSTRUCTIONS, SERVER_NAME, completions, convert, elicit, errors,
    progress::Pump,
    prompts, resources, secret,
    subscribe::{self, Subscriptions},
    tasks,
};
use crate::{
    model::RunId,
    sys,
    tools::{CallContext, Detach, Elicit, KernelHandle, Registry, registry::Length},
};

/// Header by which an agent that connects back over HTTP says which run it belongs to.
const RUN_HEADER: &str = "x-clawo-run-id";

/// What a server is told beyond its tools.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Run this process itself belongs to (`CLAWO_RUN_ID`), for standard input.
    pub parent: Option<String>,
    /// Engine names, for completions.
    pub engines: Vec<String>,
}

/// The handler. Clones share everything.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    /// Of this connection alone.
    connection: Arc<Connection>,
}

struct Shared {
    kernel: KernelHandle,
    registry: Registry,
    list: Vec<Tool>,
    info: ServerConfig,
    codec: RequestStateCodec,
    options: Options,
}

#[derive(Default)]
struct Connection {
    declined: Arc<elicit::Declined>,
    subscriptions: Subscriptions,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("tools", &self.shared.list.len()).finish_non_exhaustive()
    }
}

/// Who the server is.
pub fn implementation() -> Implementation {
    Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION"))
        .with_title("claw-orchestrator")
        .with_description(env!("CARGO_PKG_DESCRIPTION"))
}

/// What the server can do.
pub fn capabilities() -> ServerCapabilities {
    ServerCapabilities::builder()
        .enable_tools()
        .enable_prompts()
        .enable_resources()
        .enable_resources_subscribe()
        .enable_completions()
        .enable_tasks()
        .build()
}

impl Server {
    /// A server that offers `registry`. Opens nothing. Fails only when the system has no random bytes.
    pub fn new(kernel: KernelHandle, registry: Registry, options: Options) -> Result<Self, String> {
        let list = registry.tools().iter().map(convert::tool).collect();
        let info = ServerConfig::new(capabilities())
            .with_server_info(implementation())
            .with_instructions(INSTRUCTIONS)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let codec = RequestStateCodec::try_new(secret::random()?).map_err(|e| e.to_string())?;
        let shared = Arc::new(Shared { kernel, registry, list, info, codec, options });
        Ok(Self { shared, connection: Arc::default() })
    }

    /// The same server for a new connection.
    #[must_use]
    pub fn for_connection(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), connection: Arc::default() }
    }

    /// The kernel behind it.
    pub fn kernel(&self) -> &KernelHandle {
        &self.shared.kernel
    }

    /// Its tools.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Kills checks that still run; for the end of the process.
    pub fn stop_checks(&self) {
        self.shared.registry.checks().cancel_all();
    }

    fn parent(&self, context: &RequestContext<RoleServer>) -> Option<String> {
        match context.extensions.get::<http::request::Parts>() {
            Some(parts) => parts
                .headers
                .get(RUN_HEADER)
                .and_then(|v| v.to_str().ok())
                .and_then(|id| RunId::parse(id).ok())
                .map(String::from),
            None => self.shared.options.parent.clone(),
        }
    }

    async fn dispatch(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        let Some(tool) = self.shared.registry.get(name) else { return Err(errors::unknown_tool(name)) };
        let version = context.protocol_version();
        let modern = version.as_ref().is_some_and(|v| v.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        let capabilities = context.client_capabilities();
        let as_task =
            modern && tool.about.length == Length::Works && capabilities.as_ref().is_some_and(|c| c.supports_tasks());
        let pump = context.meta.get_progress_token().map(|token| Pump::start(context.peer.clone(), token));
        let mut asked = None;
        let elicit: Option<Arc<dyn Elicit>> =
            if tool.about.length == Length::Waits && elicit::can_ask(capabilities.as_ref()) {
                if modern {
                    let state = request.request_state.as_deref();
                    let asker = elicit::Modern::new(&self.shared.codec, name, state, request.input_responses.as_ref())?;
                    let asker = Arc::new(asker);
                    asked = Some(Arc::clone(&asker));
                    Some(asker)
                } else {
                    Some(Arc::new(elicit::Legacy {
                        peer: context.peer.clone(),
                        declined: Arc::clone(&self.connection.declined),
                    }))
                }
            } else {
                None
            };
        let call = CallContext {
            cancel: context.ct.clone(),
            progress: pump.as_ref().map(Pump::sink),
            elicit,
            parent: self.parent(&context),
            local: context.extensions.get::<http::request::Parts>().is_none(),
            detach: if as_task { Detach::AtOnce } else { Detach::Wait },
        };
        let outcome = tool.call(self.shared.kernel.clone(), request.arguments.unwrap_or_default(), call).await;
        drop(pump);
        if let Err(error) = &outcome {
            tracing::debug!(code = error.code.as_str(), "refused");
        }
        if let Some(question) = asked.and_then(|a| a.question(&self.shared.codec, name)) {
            return Ok(question.into());
        }
        if as_task && let Some(task) = tasks::create(&self.shared.kernel, self.shared.registry.checks(), &outcome).await
        {
            return Ok(task.into());
        }
        Ok(convert::result(outcome, version.as_ref()).into())
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        self.shared.info.clone()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.shared.list.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.list.iter().find(|t| t.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let traceparent = context.meta.get_traceparent().map(crate::tools::args::shown).unwrap_or_default();
        let span = tracing::info_span!("tool", name = %crate::tools::args::shown(&request.name), traceparent);
        // On the heap: the futures of all tools together would make every request's future large.
        tracing::Instrument::instrument(Box::pin(self.dispatch(request, context)), span).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(errors::not_understood(&request.method))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments: Option<&JsonObject> = request.arguments.as_ref();
        prompts::get(&request.name, arguments).map(Into::into)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        resources::list(&self.shared.kernel, request.and_then(|r| r.cursor).as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Box::pin(resources::read(&self.shared.kernel, &request.uri)).await.map(Into::into)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let engines = &self.shared.options.engines;
        Ok(completions::complete(&self.shared.kernel, engines, &request.r#ref, &request.argument).await)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let Some(run) = subscribe::target(&request.uri) else {
            return Err(ErrorData::resource_not_found(
                "only clawo://run/{id} and what is below it can be subscribed",
                None,
            ));
        };
        let Some(cancel) = self.connection.subscriptions.add(&request.uri) else {
            if self.connection.subscriptions.contains(&request.uri) {
                return Ok(());
            }
            let most = subscribe::SUBSCRIPTIONS_MAX;
            return Err(ErrorData::invalid_params(format!("at most {most} resources can be subscribed at once"), None));
        };
        let (kernel, peer, uri) = (self.shared.kernel.clone(), context.peer, request.uri);
        sys::tasks::spawn("subscription", async move {
            subscribe::watch(kernel, run, cancel, || {
                let (peer, uri) = (peer.clone(), uri.clone());
                async move { peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok() }
            })
            .await;
        });
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.connection.subscriptions.remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let uris = requested.resource_subscriptions.clone().unwrap_or_default();
        let good = uris.into_iter().filter(|u| subscribe::target(u).is_some()).take(subscribe::SUBSCRIPTIONS_MAX);
        Some(SubscriptionFilter::builder().resource_subscriptions(good).build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let cancel = context.request_context().ct.child_token();
        let _ends = cancel.clone().drop_guard();
        for uri in context.accepted().resource_subscriptions.clone().unwrap_or_default() {
            let Some(run) = subscribe::target(&uri) else { continue };
            let (kernel, sink, cancel) = (self.shared.kernel.clone(), context.sink().clone(), cancel.clone());
            sys::tasks::spawn("subscription", async move {
                subscribe::watch(kernel, run, cancel, || {
                    let params = ResourceUpdatedNotificationParam::new(uri.clone());
                    let note =
                        ServerNotification::ResourceUpdatedNotification(ResourceUpdatedNotification::new(params));
                    let sink = sink.clone();
                    async move { sink.send(note).await.is_ok() }
                })
                .await;
            });
        }
        context.cancelled().await;
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let asking = if elicit::can_ask(context.client_capabilities().as_ref()) {
            tasks::Asking::Possible
        } else {
            tasks::Asking::Impossible
        };
        let checks = self.shared.registry.checks();
        let task = Box::pin(tasks::get(&self.shared.kernel, checks, &request.task_id, asking)).await?;
        Ok(GetTaskResult::new(task))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Box::pin(tasks::update(&self.shared.kernel, &request.task_id, &request.input_responses)).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Box::pin(tasks::cancel(&self.shared.kernel, self.shared.registry.checks(), &request.task_id)).await
    }
}
