//! The emulator as a device that programs run on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use trine_cuda::device;
use trine_cuda::plan;
use trine_cuda::ptx::{ALL, Text};

use super::{Argument, Buffer, Device, Fault, Kernel, Kind, Launch, Module, ParseError, Report, Schedule};

/// A module and its name.
type Named = (&'static str, Arc<Module>);

/// The checked-in modules, parsed once.
static CHECKED_IN: LazyLock<Result<Vec<Named>, ParseError>> = LazyLock::new(|| {
    let parsed = |text: &Text| Ok((text.name, Arc::new(Module::parse(text.text())?)));
    ALL.iter().map(parsed).collect()
});

/// The checked-in module of a name.
///
/// # Errors
/// PTX that the emulator does not know.
///
/// # Panics
/// When there is no module of that name.
pub fn checked_in(name: &str) -> Result<&'static Module, ParseError> {
    let modules = CHECKED_IN.as_ref().map_err(ParseError::clone)?;
    let found = modules.iter().find(|module| module.0 == name);
    Ok(&found.expect("a checked-in module").1)
}

/// The work of a kernel in all of its launches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// How often it was launched.
    pub launches: usize,
    /// Instructions that its warps executed.
    pub instructions: u64,
    /// Bytes that it loaded from global memory and stored there, had all lanes taken part.
    pub bytes: [u64; 2],
}

impl Work {
    fn add(&mut self, report: &Report, kernel: Option<&Kernel>) {
        self.launches += 1;
        self.instructions += report.instructions;
        let Some(kernel) = kernel else { return };
        for (bytes, opcode) in self.bytes.iter_mut().zip(["ld.global", "st.global"]) {
            *bytes += report.bytes(kernel, opcode);
        }
    }
}

/// An emulated GPU with the checked-in kernels.
#[derive(Debug)]
pub struct Emulated {
    /// Its memory.
    pub device: Device,
    /// In which order warps take their turns.
    pub schedule: Schedule,
    /// How many multiprocessors it says to have.
    pub multiprocessors: usize,
    /// False for a device that starts kernels one by one alone.
    pub records: bool,
    /// Kernels that were started one by one, and graphs.
    pub started: Arc<[AtomicUsize; 2]>,
    /// Copies that it has sent to other devices.
    pub sent: Arc<AtomicUsize>,
    /// The copy to another device, counted from 0, that it leaves out, to see that this is found.
    pub left_out: Option<usize>,
    /// Bytes that it says are free.
    pub free: u64,
    /// Bytes that were allocated.
    pub allocated: u64,
    /// Instructions that warps have executed.
    pub instructions: u64,
    /// The work of each kernel, for whoever keeps a copy of this while a model has the device.
    pub launched: Arc<Mutex<BTreeMap<String, Work>>>,
    modules: Vec<Named>,
}

impl Emulated {
    /// A GPU with much memory.
    ///
    /// # Errors
    /// PTX that the emulator does not know.
    pub fn new() -> Result<Emulated, ParseError> {
        Ok(Emulated {
            device: Device::new(),
            schedule: Schedule::InTurn,
            multiprocessors: 132,
            records: true,
            started: Arc::default(),
            sent: Arc::default(),
            left_out: None,
            free: 1 << 40,
            allocated: 0,
            instructions: 0,
            launched: Arc::default(),
            modules: CHECKED_IN.clone()?,
        })
    }

    fn run(&mut self, launch: &plan::Launch, arguments: &[Argument]) -> Result<(), Fault> {
        let found = self.modules.iter().find(|m| m.0 == launch.module.name);
        let module = found.map(|(_, module)| module.clone());
        let module = module.ok_or_else(|| Fault {
            kind: Kind::Launch,
            what: format!("no module '{}'", launch.module.name),
            kernel: launch.kernel.clone(),
            line: 0,
            text: String::new(),
            block: [0; 3],
            thread: 0,
        })?;
        let launched = Launch {
            blocks: launch.blocks,
            threads: [launch.threads, 1, 1],
            shared: launch.shared,
            arguments,
            schedule: self.schedule,
            ..Launch::default()
        };
        let report = self.device.launch(&module, &launch.kernel, &launched)?;
        if let Ok(mut launched) = self.launched.lock() {
            launched.entry(launch.kernel.clone()).or_default().add(&report, module.kernel(&launch.kernel));
        }
        self.instructions += report.instructions;
        Ok(())
    }

    /// Replaces a module by another, to see that a mistake in it is found.
    pub fn replace(&mut self, name: &'static str, module: impl Into<Arc<Module>>) {
        self.modules.retain(|(n, _)| *n != name);
        self.modules.push((name, module.into()));
    }
}

/// Kernels with their arguments.
#[derive(Debug)]
pub struct Graph(Vec<(plan::Launch, Vec<Argument>)>);

/// The emulator's argument of a device's.
fn of(argument: &device::Argument<'_, Buffer>) -> Argument {
    match *argument {
        device::Argument::Address(buffer, at) => Argument::Place(*buffer, at),
        device::Argument::U32(value) => Argument::U32(value),
        device::Argument::F32(value) => Argument::F32(value),
    }
}

impl device::Device for Emulated {
    type Buffer = Buffer;
    type Graph = Graph;
    /// It has done what it was given when a call ends.
    type Mark = ();
    type Error = Fault;

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn free_memory(&self) -> Result<u64, Fault> {
        Ok(self.free - self.allocated)
    }

    fn constant(&mut self, bytes: &[u8]) -> Result<Buffer, Fault> {
        self.allocated += bytes.len() as u64;
        Ok(self.device.constant(bytes.to_vec()))
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, Fault> {
        self.allocated += bytes as u64;
        Ok(self.device.empty(bytes))
    }

    fn upload(&mut self, to: &mut Buffer, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        self.device.fill(*to, at, bytes);
        Ok(())
    }

    fn copy(&mut self, within: &mut Buffer, from: usize, to: usize, bytes: usize) -> Result<(), Fault> {
        self.device.copy(*within, from, to, bytes);
        Ok(())
    }

    fn launch(&mut self, launch: &plan::Launch, arguments: &[device::Argument<'_, Buffer>]) -> Result<(), Fault> {
        self.started[0].fetch_add(1, Ordering::Relaxed);
        self.run(launch, &arguments.iter().map(of).collect::<Vec<_>>())
    }

    fn record(&mut self, starts: &[device::Start<'_, Buffer>]) -> Option<Graph> {
        let start = |(launch, arguments): &device::Start<'_, Buffer>| {
            let arguments = arguments.iter().map(of).collect();
            ((*launch).clone(), arguments)
        };
        self.records.then(|| Graph(starts.iter().map(start).collect()))
    }

    fn replay(&mut self, graph: &Graph) -> Result<(), Fault> {
        self.started[1].fetch_add(1, Ordering::Relaxed);
        graph.0.iter().try_for_each(|(launch, arguments)| self.run(launch, arguments))
    }

    fn download(&mut self, from: &Buffer, at: usize, bytes: &mut [u8]) -> Result<(), Fault> {
        bytes.copy_from_slice(self.device.some_bytes(*from, at, bytes.len()));
        Ok(())
    }

    fn mark(&mut self, (): &mut ()) -> Result<(), Fault> {
        Ok(())
    }

    fn after(&mut self, (): &()) -> Result<(), Fault> {
        Ok(())
    }

    fn send(
        &mut self,
        (from, at): (&Buffer, usize),
        bytes: usize,
        other: &mut Emulated,
        (to, place): (&mut Buffer, usize),
    ) -> Result<(), Fault> {
        if self.left_out != Some(self.sent.fetch_add(1, Ordering::Relaxed)) {
            other.device.fill(*to, place, self.device.some_bytes(*from, at, bytes));
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
