//! The events of several texts as they come.

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::engine::{Answer, Event};

/// Events that wait on their way from one of several texts.
const WAITING: usize = 16;

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
    /// The events of `answers`.
    pub fn of(mut answers: Vec<Answer>) -> Events {
        if answers.len() == 1
            && let Some(answer) = answers.pop()
        {
            return Events::One(answer);
        }
        let (to, from) = mpsc::channel(WAITING);
        let mut tasks = JoinSet::new();
        for (i, mut answer) in answers.into_iter().enumerate() {
            let to = to.clone();
            tasks.spawn(async move {
                while let Some(event) = answer.next().await {
                    if to.send((i, event)).await.is_err() {
                        return;
                    }
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
