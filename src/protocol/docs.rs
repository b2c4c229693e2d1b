//! Documentation pages compiled into the program, served as resources.

/// A page.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Last part of its address.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Markdown.
    pub text: &'static str,
}

/// Every page.
pub const PAGES: [Page; 4] = [
    Page { name: "getting-started", title: "Getting started", text: include_str!("docs/getting-started.md") },
    Page { name: "contracts", title: "Contracts", text: include_str!("docs/contracts.md") },
    Page { name: "outcomes", title: "States and outcomes", text: include_str!("docs/outcomes.md") },
    Page { name: "workflow-spec", title: "Workflow specs", text: include_str!("docs/workflow-spec.md") },
];
