//! The events of several texts as they come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::api::ApiError;
use crate::engine::{Answer, Event, Refused, Request};
use crate::service::{Service, Weight};

/// Events that wait on their way from one of several texts.
const WAITING: usize = 16;
/// After how long it is tried again to begin a text for which there was no room among those of others.
const AGAIN: Duration = Duration::from_millis(50);

/// The events of the texts of a request. Dropping it cancels all of them.
pub enum Events {
    /// Events of one text.
    One(Answer),
    /// Events of several texts: each has a task that forwards its events here.
    Many {
        /// The events with the indices of their texts.
        from: mpsc::Receiver<(usize, Event)>,
        /// They end when this is dropped, and so do the texts.
        _tasks: JoinSet<()>,
    },
}

impl Events {
    /// Returns the events of a text that was begun and of those behind it, of which as many are begun as can run: the
    /// queue is for others too.
    pub fn of(service: &Arc<Service>, first: Answer, rest: &[Request]) -> Events {
        if rest.is_empty() {
            return Events::One(first);
        }
        let (to, from) = mpsc::channel(WAITING);
        let places = Arc::new(Semaphore::new(service.engine.options().parallel));
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        let place = places.clone().try_acquire_owned();
        let first_to = to.clone();
        tasks.spawn(async move {
            let _place = place;
            forward(first, 0, &first_to).await;
        });
        for (i, request) in rest.iter().enumerate() {
            let (service, places, to) = (service.clone(), places.clone(), to.clone());
            let request = request.clone();
            tasks.spawn(async move {
                let _place = places.acquire_owned().await;
                match begin(&service, request, begun).await {
                    Ok(answer) => forward(answer, i + 1, &to).await,
                    // Without a reader the request has ended.
                    Err(event) => drop(to.send((i + 1, event)).await),
                }
            });
        }
        Events::Many { from, _tasks: tasks }
    }

    /// The next event, and the index of its text; `None` after the last. Nothing is lost when it is not waited for.
    pub async fn next(&mut self) -> Option<(usize, Event)> {
        match self {
            Events::One(answer) => answer.next().await.map(|event| (0, event)),
            Events::Many { from, .. } => from.recv().await,
        }
    }
}

/// Begins a text of a request that came at `since`, as soon as there is room in the queue.
async fn begin(service: &Arc<Service>, request: Request, since: Instant) -> Result<Answer, Event> {
    loop {
        let mut request = request.clone();
        request.deadline = request.deadline.map(|most| most.saturating_sub(since.elapsed()));
        let submitted = service.blocking(Weight::Light, move |service| Ok(service.engine.submit(request)));
        match submitted.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(Refused::Busy { .. })) => tokio::time::sleep(AGAIN).await,
            Ok(Err(refused)) => return Err(Event::Refused(refused)),
            Err(ApiError { message, .. }) => return Err(Event::Failed(message)),
        }
    }
}

async fn forward(mut answer: Answer, index: usize, to: &mpsc::Sender<(usize, Event)>) {
    while let Some(event) = answer.next().await {
        if to.send((index, event)).await.is_err() {
            return;
        }
    }
}
