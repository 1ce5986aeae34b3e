//! A device that does what it is told: its memory, the kernels that it has compiled, and the queue of its work.
//!
//! All work goes to one queue, so it is done in the order of the calls. The driver tells of a failure when something is
//! asked of it later, so an error of a launch may show in the download behind it.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use super::graph::Graph;
use super::library::{self, Driver, Handle};
use super::mark::Mark;
use super::open::{Memory, Open};
use super::{DriverError, Gpu};
use crate::device::{Argument, Device, Start};
use crate::plan::Launch;
use crate::ptx::Text;

/// The answer of the driver that there is no memory left.
const OUT_OF_MEMORY: u32 = 2;
/// A queue that does not wait for the work of others.
const APART: c_uint = 1;
/// Options of the driver's compiler: where it writes what it has to say, and how many bytes there are for that.
const LOG: c_int = 5;
const LOG_BYTES: c_int = 6;
/// The property of a kernel that is the most shared memory that a launch may bring.
const SHARED: c_int = 8;
/// Shared memory that a launch may bring without more ado.
const PLAIN_SHARED: u32 = 48 << 10;

/// A kernel that was compiled.
#[derive(Clone, Debug)]
struct Kernel {
    handle: Handle,
    /// Bytes of each of its arguments.
    arguments: Vec<usize>,
    /// The most shared memory that a launch of it has been allowed to bring.
    shared: u32,
}

/// A device with its queue of work, and the kernels that were asked for so far.
#[derive(Debug)]
pub struct Context {
    open: Arc<Open>,
    gpu: Gpu,
    /// By the name of the text.
    modules: HashMap<&'static str, Handle>,
    /// By the names of text and kernel.
    kernels: HashMap<(&'static str, String), Kernel>,
    /// The kernel that was started last.
    last: String,
    /// False once launches could not be recorded.
    records: bool,
    /// False once the driver did not copy to another device.
    sends: bool,
    /// The devices to which it was asked to copy directly.
    asked: HashSet<library::Device>,
}

// SAFETY: handles of modules and kernels are like those of `Open`, and every use goes through its context.
unsafe impl Send for Context {}

impl Context {
    /// Opens the device of a number.
    ///
    /// # Errors
    /// No driver, one that is too old or damaged, no such device, one whose compute capability is too low, or one that
    /// fails.
    pub fn open(number: u32) -> Result<Context, DriverError> {
        let driver = Driver::open()?;
        let (number, gpu) = Gpu::find(&driver, number)?;
        let mut context = ptr::null_mut();
        // SAFETY: there is room for one handle, and the device is one that the driver gave.
        unsafe { driver.retain(&mut context, number)? };
        // From here on the context is let go of whatever happens.
        let mut open = Open { driver, number, context, stream: ptr::null_mut() };
        let mut stream = ptr::null_mut();
        // SAFETY: there is room for one handle.
        unsafe { open.enter()?.stream(&mut stream, APART)? };
        open.stream = stream;
        Ok(Context {
            open: Arc::new(open),
            gpu,
            modules: HashMap::new(),
            kernels: HashMap::new(),
            last: "none".to_owned(),
            records: true,
            sends: true,
            asked: HashSet::new(),
        })
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Compiles a text for the device, unless that was done before.
    ///
    /// # Errors
    /// The driver does not take it.
    pub fn compile(&mut self, text: Text) -> Result<(), DriverError> {
        self.module(text).map(|_| ())
    }

    fn module(&mut self, text: Text) -> Result<Handle, DriverError> {
        if let Some(module) = self.modules.get(text.name) {
            return Ok(*module);
        }
        let source = CString::new(text.text())
            .map_err(|_| DriverError::Use(format!("a zero within the text of '{}'", text.name)))?;
        let mut log = vec![0u8; 4096];
        let mut options = [LOG, LOG_BYTES];
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            // The number itself stands where a pointer would.
            ptr::without_provenance_mut(log.len() - 1),
        ];
        let mut module = ptr::null_mut();
        let driver = self.open.enter()?;
        // SAFETY: there is room for one handle; the text ends with a zero; there are as many options as values, the log
        // has as many bytes as its option says and one more, which stays zero.
        let done = unsafe {
            driver.module(
                &mut module,
                source.as_ptr(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        done.map_err(|e| match e {
            DriverError::Call { code, name, .. } => {
                let said = log.split(|&byte| byte == 0).next().unwrap_or(&[]);
                DriverError::Module { module: text.name, code, name, log: String::from_utf8_lossy(said).into_owned() }
            }
            other => other,
        })?;
        self.modules.insert(text.name, module);
        Ok(module)
    }

    /// A kernel of a text, compiled with all others of it.
    fn find(&mut self, text: Text, name: &str) -> Result<Kernel, DriverError> {
        let unknown = || DriverError::Use(format!("there is no kernel '{name}'"));
        let arguments = text.arguments(name).ok_or_else(unknown)?;
        let name = CString::new(name).map_err(|_| unknown())?;
        let module = self.module(text)?;
        let mut handle = ptr::null_mut();
        // SAFETY: there is room for one handle, the module is loaded, the name ends with a zero.
        unsafe {
            let driver = self.open.enter()?;
            driver.kernel(&mut handle, module, name.as_ptr())?;
        }
        Ok(Kernel { handle, arguments, shared: PLAIN_SHARED })
    }

    /// The kernel of a launch, allowed as much shared memory as that brings.
    fn kernel(&mut self, launch: &Launch) -> Result<Kernel, DriverError> {
        let key = (launch.module.name, launch.kernel.clone());
        let mut kernel = match self.kernels.get(&key) {
            Some(kernel) if launch.shared <= kernel.shared => return Ok(kernel.clone()),
            Some(kernel) => kernel.clone(),
            None => self.find(launch.module, &launch.kernel)?,
        };
        if launch.shared > kernel.shared {
            let driver = self.open.enter()?;
            // SAFETY: the kernel is one that the driver gave.
            unsafe { driver.set_kernel(kernel.handle, SHARED, launch.shared as c_int)? };
            kernel.shared = launch.shared;
        }
        self.kernels.insert(key, kernel.clone());
        Ok(kernel)
    }

    /// Lets the device write another one's memory itself, where it can; otherwise the driver copies through the machine's.
    fn ask_for(&mut self, other: &Open) {
        if !self.asked.insert(other.number) {
            return;
        }
        let Ok(driver) = self.open.enter() else { return };
        let mut can = 0;
        // SAFETY: there is room for one integer, and both devices are ones that the driver gave.
        let asked = unsafe { driver.can_reach(&mut can, self.open.number, other.number) };
        if asked.is_ok() && can != 0 {
            // SAFETY: the context is held as long as `other`. Copies go on whatever the driver answers.
            let _ = unsafe { driver.reach(other.context, 0) };
        }
    }

    /// An error of a call behind launches.
    fn failed(&self, error: DriverError) -> DriverError {
        match error {
            DriverError::Call { call, code, name } => {
                DriverError::Kernel { kernel: self.last.clone(), call, code, name }
            }
            other => other,
        }
    }
}

/// An argument where the driver reads it: at a multiple of its size.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Slot([u8; 8]);

impl Slot {
    fn of<const N: usize>(bytes: [u8; N]) -> (Slot, usize) {
        let mut slot = [0; 8];
        slot[..N].copy_from_slice(&bytes);
        (Slot(slot), N)
    }
}

impl Device for Context {
    type Buffer = Memory;
    type Graph = Graph;
    type Mark = Mark;
    type Error = DriverError;

    fn multiprocessors(&self) -> usize {
        self.gpu.clocks.multiprocessors as usize
    }

    fn free_memory(&self) -> Result<u64, DriverError> {
        let (mut free, mut all) = (0, 0);
        // SAFETY: there is room for two sizes.
        unsafe { self.open.enter()?.free_memory(&mut free, &mut all)? };
        Ok(free as u64)
    }

    fn constant(&mut self, bytes: &[u8]) -> Result<Memory, DriverError> {
        let mut memory = self.allocate(bytes.len().max(1))?;
        self.upload(&mut memory, 0, bytes)?;
        Ok(memory)
    }

    fn allocate(&mut self, bytes: usize) -> Result<Memory, DriverError> {
        let mut address = 0;
        // SAFETY: there is room for one address.
        let done = unsafe { self.open.enter()?.allocate(&mut address, bytes) };
        done.map_err(|e| match e {
            DriverError::Call { code: OUT_OF_MEMORY, .. } => DriverError::Room { bytes },
            other => self.failed(other),
        })?;
        Ok(Memory::new(self.open.clone(), address, bytes))
    }

    fn upload(&mut self, to: &mut Memory, at: usize, bytes: &[u8]) -> Result<(), DriverError> {
        let address = to.part(at, bytes.len())?;
        let (driver, stream) = (self.open.enter()?, self.open.stream);
        // SAFETY: the range of the buffer was checked, and the bytes are read before the call ends, because nobody has
        // locked them in place.
        let done = unsafe { driver.upload(address, bytes.as_ptr().cast(), bytes.len(), stream) };
        done.map_err(|e| self.failed(e))
    }

    fn copy(&mut self, within: &mut Memory, from: usize, to: usize, bytes: usize) -> Result<(), DriverError> {
        if from.abs_diff(to) < bytes {
            let what = format!("{bytes} bytes from {from} to {to} overlap");
            return Err(DriverError::Use(what));
        }
        let (from, to) = (within.part(from, bytes)?, within.part(to, bytes)?);
        let (driver, stream) = (self.open.enter()?, self.open.stream);
        // SAFETY: both ranges lie in the buffer and do not overlap, as was checked.
        let done = unsafe { driver.copy(to, from, bytes, stream) };
        done.map_err(|e| self.failed(e))
    }

    fn launch(&mut self, launch: &Launch, arguments: &[Argument<'_, Memory>]) -> Result<(), DriverError> {
        let slots = arguments.iter().map(|argument| {
            Ok(match *argument {
                Argument::Address(memory, at) => Slot::of(memory.part(at, 0)?.to_ne_bytes()),
                Argument::U32(value) => Slot::of(value.to_ne_bytes()),
                Argument::F32(value) => Slot::of(value.to_ne_bytes()),
            })
        });
        let mut slots = slots.collect::<Result<Vec<_>, DriverError>>()?;
        let kernel = self.kernel(launch)?;
        let sizes = slots.iter().map(|(_, size)| *size);
        if !sizes.eq(kernel.arguments.iter().copied()) {
            return Err(DriverError::Use(format!("arguments that are not those of kernel '{}'", launch.kernel)));
        }
        let handle = kernel.handle;
        let mut pointers: Vec<*mut c_void> =
            slots.iter_mut().map(|(slot, _)| ptr::from_mut(&mut slot.0).cast()).collect();
        let [x, y, z] = launch.blocks;
        self.last.clone_from(&launch.kernel);
        let (driver, stream) = (self.open.enter()?, self.open.stream);
        // SAFETY: there are as many arguments as the kernel has, each of its size, which was checked against the
        // kernel's own text; the driver copies them before the call ends. That the kernel keeps to its buffers is what
        // `Device::launch` promises.
        let done = unsafe {
            driver.launch(
                handle,
                x,
                y,
                z,
                launch.threads,
                1,
                1,
                launch.shared,
                stream,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        done.map_err(|e| self.failed(e))
    }

    fn record(&mut self, starts: &[Start<'_, Memory>]) -> Option<Graph> {
        if !self.records {
            return None;
        }
        let buffers = starts.iter().flat_map(|(_, arguments)| arguments);
        let memory = buffers.filter_map(|argument| match argument {
            Argument::Address(memory, _) => Some(memory.range()),
            _ => None,
        });
        let (home, memory) = (self.open.clone(), memory.collect());
        let launch = || starts.iter().try_for_each(|(launch, arguments)| self.launch(launch, arguments));
        // Without graphs everything is launched one by one, and what else has failed is told there.
        let mut recorded = Graph::record(&home, memory, launch).ok();
        match &mut recorded {
            Some(graph) => graph.last.clone_from(&self.last),
            None => self.records = false,
        }
        recorded
    }

    fn replay(&mut self, graph: &Graph) -> Result<(), DriverError> {
        self.last.clone_from(&graph.last);
        graph.start().map_err(|e| self.failed(e))
    }

    fn download(&mut self, from: &Memory, at: usize, bytes: &mut [u8]) -> Result<(), DriverError> {
        let address = from.part(at, bytes.len())?;
        let (driver, stream) = (self.open.enter()?, self.open.stream);
        // SAFETY: the range of the buffer was checked, and there is room for as many bytes.
        let done = unsafe { driver.download(bytes.as_mut_ptr().cast(), address, bytes.len(), stream) };
        done.map_err(|e| self.failed(e))?;
        self.wait()
    }

    fn mark(&mut self, mark: &mut Mark) -> Result<(), DriverError> {
        mark.set(&self.open).map_err(|e| self.failed(e))
    }

    fn after(&mut self, mark: &Mark) -> Result<(), DriverError> {
        mark.before(&self.open).map_err(|e| self.failed(e))
    }

    fn send(
        &mut self,
        (from, at): (&Memory, usize),
        bytes: usize,
        other: &mut Context,
        (to, place): (&mut Memory, usize),
    ) -> Result<(), DriverError> {
        let (source, target) = (from.part(at, bytes)?, to.part(place, bytes)?);
        if self.sends {
            self.ask_for(&other.open);
            let driver = self.open.enter()?;
            let (there, here) = (other.open.context, self.open.context);
            // SAFETY: both ranges lie in their buffers, as was checked, which are of these contexts; the queue is there as
            // long as `self`.
            if unsafe { driver.send(target, there, source, here, bytes, self.open.stream) }.is_ok() {
                return Ok(());
            }
            self.sends = false;
        }
        let mut through = vec![0; bytes];
        self.download(from, at, &mut through)?;
        other.upload(to, place, &through)
    }

    fn wait(&mut self) -> Result<(), DriverError> {
        // SAFETY: the queue is there as long as `self`.
        let done = unsafe { self.open.enter()?.wait(self.open.stream) };
        done.map_err(|e| self.failed(e))
    }
}
