//! The library's state in a process.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, MutexGuard};

use trine_ptx::{Argument, Buffer, Device, Module};

use crate::Plan;
use crate::answer::{Code, INVALID_CONTEXT, NOT_INITIALIZED};
use crate::order::Order;

/// Where handles of each kind begin, so that none is taken for one of another kind.
pub(crate) const CONTEXT: usize = 0x1000_0000;
pub(crate) const STREAMS: usize = 0x2000_0000;
pub(crate) const MODULES: usize = 0x3000_0000;
pub(crate) const KERNELS: usize = 0x4000_0000;
pub(crate) const GRAPHS: usize = 0x5000_0000;
pub(crate) const READY: usize = 0x6000_0000;
pub(crate) const EVENTS: usize = 0x7000_0000;

/// A kernel that was asked for.
pub(crate) struct Kernel {
    pub module: usize,
    pub name: String,
    /// The most shared memory that launches may bring.
    pub shared: u32,
}

/// A launch whose handles and sizes were checked.
#[derive(Clone)]
pub(crate) struct Checked {
    pub module: usize,
    pub kernel: String,
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    pub shared: u32,
    pub arguments: Vec<Argument>,
}

/// Handles of one kind and device, at most.
const OF_DEVICE: usize = 1 << 20;

/// A device and what belongs to its context. Its handles are numbers behind those of the devices before it.
pub(crate) struct One {
    pub number: usize,
    /// How often the context is held.
    pub holds: usize,
    pub streams: Vec<bool>,
    pub modules: Vec<Module>,
    pub kernels: Vec<Kernel>,
    /// The launches of a queue that records.
    pub recorded: Option<Vec<Checked>>,
    /// Graphs, and what was made ready of some; `None` for those that were given back.
    pub graphs: Vec<Option<Vec<Checked>>>,
    pub ready: Vec<Option<Vec<Checked>>>,
    pub device: Device,
    /// Memory that was taken, by its address.
    pub taken: BTreeMap<u64, (Buffer, usize)>,
    /// Error of a kernel: every call that waits for the kernel returns it.
    pub failed: Option<Code>,
    /// The devices whose memory it may write itself.
    pub reached: BTreeSet<usize>,
}

/// The library's state.
pub(crate) struct State {
    pub plan: Plan,
    pub initialized: bool,
    pub devices: Vec<One>,
    pub order: Order,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let words = std::env::var("TRINE_FAKE_CUDA").unwrap_or_default();
    let plan = Plan::parse(&words);
    let one = |number| One {
        number,
        holds: 0,
        streams: Vec::new(),
        modules: Vec::new(),
        kernels: Vec::new(),
        recorded: None,
        graphs: Vec::new(),
        ready: Vec::new(),
        device: Device::new(),
        taken: BTreeMap::new(),
        failed: None,
        reached: BTreeSet::new(),
    };
    let devices: Vec<One> = (0..usize::try_from(plan.devices).unwrap_or(0)).map(one).collect();
    let order = Order::new(devices.len());
    Mutex::new(State { plan, initialized: false, devices, order })
});

thread_local! {
    /// The device whose context is that of the thread.
    static ENTERED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The state of the process.
pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Makes the context of a device that of the thread.
pub(crate) fn enter(device: usize) {
    ENTERED.set(Some(device));
}

/// Ends the process: whoever called has made a mistake that the real driver may not find.
pub(crate) fn mistake(what: &str) -> ! {
    eprintln!("fake driver: {what}");
    std::process::abort()
}

impl State {
    /// Fails unless the driver is ready.
    pub fn ready(&self) -> Result<(), Code> {
        match self.initialized {
            true => Ok(()),
            false => Err(NOT_INITIALIZED),
        }
    }

    /// The device of the thread's context; fails unless the thread may use it and no kernel has failed.
    pub fn entered(&mut self) -> Result<&mut One, Code> {
        let one = self.current()?;
        match one.failed {
            Some(code) => Err(code),
            None => Ok(one),
        }
    }

    /// The device of the thread's context, whose kernels may have failed.
    pub fn current(&mut self) -> Result<&mut One, Code> {
        self.ready()?;
        let entered = ENTERED.get().and_then(|number| self.devices.get_mut(number));
        entered.filter(|one| one.holds > 0).ok_or(INVALID_CONTEXT)
    }

    /// The device of a number.
    pub fn one(&mut self, number: i32) -> &mut One {
        let found = usize::try_from(number).ok().and_then(|number| self.devices.get_mut(number));
        found.unwrap_or_else(|| mistake("a device that is not there"))
    }

    /// The number of the device of the thread's context, whose queue is given something.
    pub fn work(&mut self, stream: usize) -> Result<usize, Code> {
        let one = self.entered()?;
        one.stream(stream);
        let (number, alone) = (one.number, one.streams.iter().filter(|there| **there).count() == 1);
        // The order of several queues of a device is not followed.
        if !self.order.work(number) && alone {
            mistake("work that does not wait for a copy from another device");
        }
        Ok(number)
    }

    /// The number of the device of a context.
    pub fn of_context(&self, context: usize) -> usize {
        let found = self.devices.iter().position(|one| one.first(CONTEXT) == context);
        found.unwrap_or_else(|| mistake("a context that is none"))
    }

    /// Bytes of memory of the device of the thread's context, and those of them that are free.
    pub fn memory(&mut self) -> Result<[usize; 2], Code> {
        let one = self.entered()?;
        let (number, used) = (one.number, one.used());
        let all = self.plan.memory(number);
        Ok([all, all - used])
    }

    /// Notes a call.
    pub fn note(&self, what: &str) {
        let Some(path) = &self.plan.log else { return };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{what}"));
        if let Err(e) = written {
            mistake(&format!("the log cannot be written: {e}"));
        }
    }
}

impl One {
    /// The first handle of a kind.
    pub fn first(&self, kind: usize) -> usize {
        kind + self.number * OF_DEVICE
    }

    /// Panics unless this is a queue that does what it is given.
    pub fn stream(&self, stream: usize) {
        if self.recorded.is_some() {
            mistake("something else than a launch is recorded");
        }
        self.queue(stream);
    }

    /// Panics unless this is a queue, whether it records or not.
    pub fn queue(&self, stream: usize) {
        let known = stream.checked_sub(self.first(STREAMS)).and_then(|i| self.streams.get(i));
        if known != Some(&true) {
            mistake("a stream that is not there");
        }
    }

    /// The memory that holds `bytes` bytes from an address on, and the place in it.
    pub fn memory(&self, address: u64, bytes: usize) -> (Buffer, usize) {
        let before = self.taken.range(..=address).next_back();
        match before {
            Some((start, (buffer, size))) if (address - start) as usize + bytes <= *size => {
                (*buffer, (address - start) as usize)
            }
            _ => mistake(&format!("{bytes} bytes at {address:#x} are in no memory")),
        }
    }

    /// The graph of a handle of a kind, taken away where it is `given_back`.
    pub fn graph(&mut self, kind: usize, handle: usize, given_back: bool) -> Vec<Checked> {
        let first = self.first(kind);
        let all = if kind == GRAPHS { &mut self.graphs } else { &mut self.ready };
        let found = handle.checked_sub(first).and_then(|number| all.get_mut(number));
        let graph = found.and_then(|graph| if given_back { graph.take() } else { graph.clone() });
        graph.unwrap_or_else(|| mistake("a graph that is not there"))
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.taken.values().map(|(_, bytes)| bytes).sum()
    }
}
