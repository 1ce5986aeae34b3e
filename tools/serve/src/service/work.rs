//! Work that takes a processor for a while, such as tokenizing, where it keeps nobody from being served.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::error::ApiError;

/// The places for such work; clones are of the same ones.
#[derive(Clone)]
pub struct Work {
    light: Arc<Semaphore>,
    heavy: Arc<Semaphore>,
}

/// Amount of work: what takes milliseconds does not wait for what takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Milliseconds.
    Light,
    /// Perhaps a second.
    Heavy,
}

impl Weight {
    /// Bytes of a body from which on it is heavy to read.
    const LARGE: usize = 64 << 10;

    /// The weight of reading a body.
    pub fn of_body(bytes: usize) -> Weight {
        match bytes {
            ..=Self::LARGE => Weight::Light,
            _ => Weight::Heavy,
        }
    }
}

impl Default for Work {
    /// A place for each processor, for either kind.
    fn default() -> Work {
        let places = || Arc::new(Semaphore::new(trine_tools::args::threads(None)));
        Work { light: places(), heavy: places() }
    }
}

impl Work {
    /// Does `work` when there is a place.
    ///
    /// # Errors
    /// Those of `work`; it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        weight: Weight,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let places = match weight {
            Weight::Light => &self.light,
            Weight::Heavy => &self.heavy,
        };
        let permit = places.clone().acquire_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        work.await.unwrap_or_else(|_| Err(ApiError::server("the request could not be read")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn light_work_does_not_wait_for_heavy_work() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let work = Work::default();
            let all = trine_tools::args::threads(None) + 1;
            let ends: Vec<_> = (0..all)
                .map(|_| {
                    let (end, wait) = channel::<()>();
                    let work = work.clone();
                    let heavy = async move { work.run(Weight::Heavy, move || Ok(wait.recv().is_ok())).await };
                    (end, tokio::spawn(heavy))
                })
                .collect();
            tokio::task::yield_now().await;
            let light = tokio::time::timeout(Duration::from_secs(100), work.run(Weight::Light, || Ok(5)));
            assert_eq!(light.await, Ok(Ok(5)));
            for (end, heavy) in ends {
                end.send(()).unwrap();
                assert_eq!(heavy.await.unwrap(), Ok(true));
            }
        });
    }
}
