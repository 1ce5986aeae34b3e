//! Work that takes a processor for a while, such as tokenizing, where it keeps nobody from being served.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::error::ApiError;

/// The places for such work, one for each processor; clones are of the same ones.
#[derive(Clone)]
pub struct Work {
    places: Arc<Semaphore>,
}

impl Default for Work {
    fn default() -> Work {
        Work { places: Arc::new(Semaphore::new(trine_tools::args::threads(None))) }
    }
}

impl Work {
    /// Does `work` when there is a place.
    ///
    /// # Errors
    /// Those of `work`; it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self.places.clone().acquire_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        work.await.unwrap_or_else(|_| Err(ApiError::server("the request could not be read")))
    }
}
