//! The way of events to a client, which may read slowly or go away.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use trine::CancelToken;

use super::super::request::Event;

/// A client with the events that it had no room for.
pub struct Client {
    events: Sender<Event>,
    cancel: CancelToken,
    unsent: VecDeque<Event>,
    /// Since when it has not read.
    stalled: Option<Instant>,
    /// True if the last event was sent or waits.
    over: bool,
}

/// State of a client: have all events reached it?
pub enum Hears {
    /// It has.
    All,
    /// It does not read at the moment.
    Late,
    /// It went away, or did not read for too long.
    Nothing,
}

impl Client {
    /// A client that has heard nothing.
    pub fn new(events: Sender<Event>, cancel: CancelToken) -> Client {
        Client { events, cancel, unsent: VecDeque::new(), stalled: None, over: false }
    }

    /// Is cancelled when the client went away.
    pub fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    /// True if the last event was sent or waits.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Since when it has not read.
    pub fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    /// Sends an event, behind those that wait.
    pub fn send(&mut self, event: Event) {
        if self.over {
            return;
        }
        // Order is kept: nothing overtakes what waits.
        if !self.unsent.is_empty() {
            self.unsent.push_back(event);
            return;
        }
        if let Err(TrySendError::Full(event)) = self.events.try_send(event) {
            self.unsent.push_back(event);
        }
    }

    /// The last event, which waits until [`Client::hear`]: who hears of an end finds it counted.
    pub fn end(&mut self, event: Event) {
        if !self.over {
            self.unsent.push_back(event);
            self.over = true;
        }
    }

    /// Sends what waits. A client that has not read for longer than `patience` is given up.
    pub fn hear(&mut self, now: Instant, patience: Duration) -> Hears {
        if self.cancel.is_cancelled() {
            return Hears::Nothing;
        }
        while let Some(event) = self.unsent.pop_front() {
            match self.events.try_send(event) {
                Ok(()) => self.stalled = None,
                Err(TrySendError::Full(event)) => {
                    self.unsent.push_front(event);
                    let since = *self.stalled.get_or_insert(now);
                    return if now.duration_since(since) > patience { Hears::Nothing } else { Hears::Late };
                }
                Err(TrySendError::Closed(_)) => return Hears::Nothing,
            }
        }
        Hears::All
    }
}
