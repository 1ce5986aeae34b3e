//! The order of work in the queues of several devices.
//!
//! Each queue counts what it is given, copies to other devices apart from all else, and knows up to which counts of
//! every other queue it comes behind. Copies between devices are checked with that: memory that a device may still use
//! is not written, and what arrives is not used by work that does not wait for it. Devices may send to each other at the
//! same time, from other memory than where something arrives.

/// The queues of all devices, one for each.
#[derive(Debug)]
pub(crate) struct Order {
    /// For each queue, up to which counts it comes behind each of all: of work, and then of copies to other devices. Of
    /// itself how much it was given.
    seen: Vec<Vec<u64>>,
    /// The same of the program that calls.
    caller: Vec<u64>,
    /// Copies that have no work behind them yet: where they go, and their place and value among the counts.
    arriving: Vec<(usize, usize, u64)>,
    /// The places that events stand for; `None` for those that were given back.
    events: Vec<Option<Vec<u64>>>,
}

/// Raises counts to those of others.
fn raise(counts: &mut [u64], others: &[u64]) {
    counts.iter_mut().zip(others).for_each(|(count, &other)| *count = other.max(*count));
}

impl Order {
    pub fn new(devices: usize) -> Order {
        let (seen, caller) = (vec![vec![0; 2 * devices]; devices], vec![0; 2 * devices]);
        Order { seen, caller, arriving: Vec::new(), events: Vec::new() }
    }

    /// A device's queue is given something. False if that does not wait for a copy that arrives.
    pub fn work(&mut self, device: usize) -> bool {
        raise(&mut self.seen[device], &self.caller);
        self.seen[device][device] += 1;
        let seen = &self.seen[device];
        let ordered = self.arriving.iter().all(|&(to, place, count)| to != device || seen[place] >= count);
        self.arriving.retain(|(to, ..)| *to != device);
        ordered
    }

    /// A device's queue copies to another device. False if that one may still use the memory.
    pub fn send(&mut self, from: usize, to: usize) -> bool {
        let place = self.seen.len() + from;
        raise(&mut self.seen[from], &self.caller);
        self.seen[from][place] += 1;
        self.arriving.push((to, place, self.seen[from][place]));
        self.seen[from][to] >= self.seen[to][to]
    }

    /// The caller has waited for a device's queue.
    pub fn waited(&mut self, device: usize) {
        raise(&mut self.caller, &self.seen[device]);
    }

    /// A new event; its number.
    pub fn event(&mut self) -> usize {
        self.events.push(Some(vec![0; self.caller.len()]));
        self.events.len() - 1
    }

    /// The place of an event.
    pub fn at(&mut self, event: usize) -> Option<&mut Option<Vec<u64>>> {
        self.events.get_mut(event).filter(|event| event.is_some())
    }

    /// Puts an event behind what a queue was given; false if there is no such event.
    pub fn record(&mut self, event: usize, device: usize) -> bool {
        let counts = self.seen[device].clone();
        self.at(event).map(|place| *place = Some(counts)).is_some()
    }

    /// Lets a queue come behind an event; false if there is no such event.
    pub fn wait_for(&mut self, event: usize, device: usize) -> bool {
        let Some(Some(counts)) = self.at(event).cloned() else { return false };
        raise(&mut self.seen[device], &counts);
        true
    }

    /// True if an event is there that was not given back.
    pub fn has_events(&self) -> bool {
        self.events.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_in_order_behind_events_and_waits_alone() {
        let mut order = Order::new(2);
        assert!(order.work(0) && order.work(1));
        // The other device was given something that the copy does not come behind.
        assert!(order.work(0) && !order.send(0, 1));
        let event = order.event();
        assert!(order.record(event, 1) && order.wait_for(event, 0) && order.send(0, 1));
        assert!(!order.work(1), "nothing waits for the copy");
        assert!(order.record(event, 1) && order.wait_for(event, 0) && order.work(0) && order.send(0, 1));
        assert!(order.record(event, 0) && order.wait_for(event, 1) && order.work(1));
        // Who has waited gives everything behind what was waited for.
        assert!(order.work(0));
        order.waited(1);
        assert!(order.work(0) && order.send(0, 1));
        order.waited(0);
        assert!(order.work(1));
        // Both send at the same time.
        let events = [0, 1].map(|_| order.event());
        let meet = |order: &mut Order| {
            (0..2).for_each(|device| assert!(order.record(events[device], device)));
            (0..2).for_each(|device| assert!(order.wait_for(events[1 - device], device)));
        };
        meet(&mut order);
        assert!(order.send(0, 1) && order.send(1, 0));
        meet(&mut order);
        assert!(order.work(0) && order.work(1));
        assert!(!order.record(7, 0) && !order.wait_for(7, 0));
    }
}
