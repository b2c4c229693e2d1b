//! Access to the kernel that opens it on first use, so that a server answers before any disk is touched.

use std::{fmt, sync::Arc};

use tokio::sync::OnceCell;

use super::Boxed;
use crate::kernel::{Error, Kernel};

/// Opens the kernel; called again after a failure.
pub type Opener = Arc<dyn Fn() -> Boxed<'static, Result<Kernel, Error>> + Send + Sync>;

/// A kernel that is open, or will be when a call needs it. Cheap to clone; all clones share one kernel.
#[derive(Clone)]
pub struct KernelHandle {
    cell: Arc<OnceCell<Kernel>>,
    opener: Opener,
}

impl KernelHandle {
    /// An open kernel.
    pub fn ready(kernel: Kernel) -> Self {
        let copy = kernel.clone();
        Self {
            cell: Arc::new(OnceCell::new_with(Some(kernel))),
            opener: Arc::new(move || {
                let kernel = copy.clone();
                Box::pin(async move { Ok(kernel) })
            }),
        }
    }

    /// A kernel that `opener` opens on first use.
    pub fn lazy(opener: Opener) -> Self {
        Self { cell: Arc::new(OnceCell::new()), opener }
    }

    /// The kernel. A failure to open it is answered to this caller; the next one tries again.
    pub async fn get(&self) -> Result<Kernel, Error> {
        self.cell.get_or_try_init(|| (self.opener)()).await.cloned()
    }

    /// The kernel when it is open already.
    pub fn opened(&self) -> Option<&Kernel> {
        self.cell.get()
    }
}

impl fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelHandle").field("open", &self.cell.initialized()).finish_non_exhaustive()
    }
}
