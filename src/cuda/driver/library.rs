//! The driver's library and the functions of it that are called.
//!
//! Declarations are those of NVIDIA's CUDA Driver API; answers and attributes are plain integers, so that one of a
//! newer driver is a number like any other.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

#[cfg(any(unix, windows))]
use libloading::Library;

use super::DriverError;
#[cfg(not(any(unix, windows)))]
use super::no_library::Library;
use crate::ptx::{DRIVER, SERIES};

/// Return value of a function: 0 for success.
pub(super) type Code = c_uint;
/// A device as the driver names it.
pub(super) type Device = c_int;
/// A context, a stream, a module or a kernel: what it points to is the driver's alone.
pub(super) type Handle = *mut c_void;
/// A place in a device's memory.
pub(super) type Address = u64;

/// Names of the library, in the order in which they are tried.
const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// A driver whose functions have been found.
pub(super) struct Driver {
    functions: Functions,
    /// Functions of graphs; a driver may lack them.
    graphs: Option<Graphs>,
    /// Functions between devices; a driver may lack them.
    peers: Option<Peers>,
    /// Function that names a return value.
    error_name: ErrorName,
    /// Keeps the functions where they are.
    _library: Library,
}

type ErrorName = unsafe extern "system" fn(Code, *mut *const c_char) -> Code;
type Version = unsafe extern "system" fn(*mut c_int) -> Code;

macro_rules! functions {
    ($(#[$whose:meta])* $table:ident by $method:ident: $($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) = $symbol:literal;)*) => {
        $(#[$whose])*
        struct $table {
            $($name: unsafe extern "system" fn($($ty),*) -> Code,)*
        }

        impl $table {
            /// # Errors
            /// A function is missing.
            fn find(library: &Library, name: &'static str) -> Result<$table, DriverError> {
                $(
                    // SAFETY: the declaration is the one of the driver's API for this name.
                    let $name = unsafe { function(library, name, $symbol)? };
                )*
                Ok($table { $($name),* })
            }
        }

        impl Driver {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Calls the driver; its answer if that is not 0.
                ///
                /// # Safety
                /// The arguments are what the API asks for: pointers point to room for what is written or read there,
                /// and handles are alive.
                // As many arguments as the function of the driver has.
                #[allow(clippy::too_many_arguments)]
                pub(super) unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), DriverError> {
                    // SAFETY: the caller's; the library is open as long as `self` is there.
                    let code = unsafe { (self.$method()?.$name)($($arg),*) };
                    match code {
                        0 => Ok(()),
                        code => Err(DriverError::Call {
                            call: $symbol,
                            code,
                            name: self.error_name(code),
                        }),
                    }
                }
            )*
        }
    };
}

functions! {
    /// Addresses of the functions that every driver has.
    Functions by functions:
    /// Makes the driver ready for this process.
    init(flags: c_uint) = "cuInit";
    /// How many devices there are.
    count(count: *mut c_int) = "cuDeviceGetCount";
    /// The device of a number.
    device(device: *mut Device, number: c_int) = "cuDeviceGet";
    /// The name of a device, with a zero behind it, in `size` bytes.
    name(name: *mut c_char, size: c_int, device: Device) = "cuDeviceGetName";
    /// A property of a device.
    attribute(value: *mut c_int, attribute: c_int, device: Device) = "cuDeviceGetAttribute";
    /// Bytes of a device's memory.
    memory(bytes: *mut usize, device: Device) = "cuDeviceTotalMem_v2";
    /// Takes hold of the context that all of a process share on a device.
    retain(context: *mut Handle, device: Device) = "cuDevicePrimaryCtxRetain";
    /// Lets go of it; with the last hold go its modules and memory.
    release(device: Device) = "cuDevicePrimaryCtxRelease_v2";
    /// Makes a context the one of the calling thread.
    enter(context: Handle) = "cuCtxSetCurrent";
    /// Free bytes and all bytes of the device of the thread's context.
    free_memory(free: *mut usize, all: *mut usize) = "cuMemGetInfo_v2";
    /// Takes memory of the device.
    allocate(address: *mut Address, bytes: usize) = "cuMemAlloc_v2";
    /// Gives it back, once what was started before has ended.
    give_back(address: Address) = "cuMemFree_v2";
    /// A queue of work; flag 1 keeps it apart from work of others.
    stream(stream: *mut Handle, flags: c_uint) = "cuStreamCreate";
    /// Ends a queue.
    end_stream(stream: Handle) = "cuStreamDestroy_v2";
    /// Waits for all that a queue was given.
    wait(stream: Handle) = "cuStreamSynchronize";
    /// Copies to the device; memory that was not locked in place has been read when the call ends.
    upload(to: Address, from: *const c_void, bytes: usize, stream: Handle) = "cuMemcpyHtoDAsync_v2";
    /// Copies from the device; memory that was not locked in place is written when the call ends.
    download(to: *mut c_void, from: Address, bytes: usize, stream: Handle) = "cuMemcpyDtoHAsync_v2";
    /// Copies within the device, between ranges that do not overlap.
    copy(to: Address, from: Address, bytes: usize, stream: Handle) = "cuMemcpyDtoDAsync_v2";
    /// Compiles PTX, a text with a zero behind it, for the device of the thread's context.
    module(module: *mut Handle, text: *const c_char, n: c_uint, options: *mut c_int, values: *mut *mut c_void) = "cuModuleLoadDataEx";
    /// A kernel of a module by its name, with a zero behind it.
    kernel(kernel: *mut Handle, module: Handle, name: *const c_char) = "cuModuleGetFunction";
    /// Sets a property of a kernel.
    set_kernel(kernel: Handle, attribute: c_int, value: c_int) = "cuFuncSetAttribute";
    /// Starts a kernel; `arguments` points to as many pointers to arguments as the kernel has.
    launch(
        kernel: Handle,
        x: c_uint,
        y: c_uint,
        z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    ) = "cuLaunchKernel";
}

functions! {
    /// Addresses of the functions of graphs.
    Graphs by graphs:
    /// From now on a queue records what it is given; mode 1 watches this thread alone.
    begin_capture(stream: Handle, mode: c_uint) = "cuStreamBeginCapture_v2";
    /// Ends that; the graph is null where something could not be recorded.
    end_capture(stream: Handle, graph: *mut Handle) = "cuStreamEndCapture";
    /// Makes a graph ready to be started.
    instantiate(ready: *mut Handle, graph: Handle, flags: u64) = "cuGraphInstantiateWithFlags";
    /// Gives a graph back; what was made ready of it stays.
    give_back_graph(graph: Handle) = "cuGraphDestroy";
    /// Starts what was made ready.
    launch_graph(ready: Handle, stream: Handle) = "cuGraphLaunch";
    /// Gives back what was made ready, once it has ended.
    give_back_ready(ready: Handle) = "cuGraphExecDestroy";
}

functions! {
    /// Addresses of the functions between devices.
    Peers by peers:
    /// Tells whether a device can read and write the memory of another one itself.
    can_reach(can: *mut c_int, device: Device, other: Device) = "cuDeviceCanAccessPeer";
    /// Lets the device of the thread's context do so; the only flags that the API has are none.
    reach(other: Handle, flags: c_uint) = "cuCtxEnablePeerAccess";
    /// Copies from the device of a context to that of another, through the machine's memory where they do not reach each
    /// other.
    send(to: Address, to_context: Handle, from: Address, from_context: Handle, bytes: usize, stream: Handle) = "cuMemcpyPeerAsync";
    /// A place in a queue; flag 2 is one without a time.
    event(event: *mut Handle, flags: c_uint) = "cuEventCreate";
    /// Puts an event behind all that a queue was given.
    record_event(event: Handle, stream: Handle) = "cuEventRecord";
    /// Lets what a queue is given from now on wait for where an event is now.
    wait_for(stream: Handle, event: Handle, flags: c_uint) = "cuStreamWaitEvent";
    /// Gives an event back.
    end_event(event: Handle) = "cuEventDestroy_v2";
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens the library, and looks at what it is before it has anything to do.
    ///
    /// # Errors
    /// It is not there, too old or not whole, or it finds no device.
    pub(super) fn open() -> Result<Driver, DriverError> {
        let (name, library) = load()?;
        let version = version(&library, name)?;
        // The number is 1000 for each major and 10 for each minor release.
        let found = (version / 1000, version % 1000 / 10);
        if found < DRIVER {
            return Err(DriverError::Old { found, needed: DRIVER, release: SERIES });
        }
        let functions = Functions::find(&library, name)?;
        // SAFETY: the declaration is the one of the driver's API for this name.
        let error_name = unsafe { function(&library, name, "cuGetErrorName")? };
        let graphs = Graphs::find(&library, name).ok();
        let peers = Peers::find(&library, name).ok();
        let driver = Driver { functions, graphs, peers, error_name, _library: library };
        // SAFETY: the only flags that the API has are none.
        unsafe { driver.init(0)? };
        Ok(driver)
    }

    fn functions(&self) -> Result<&Functions, DriverError> {
        Ok(&self.functions)
    }

    /// # Errors
    /// The driver has no graphs.
    fn graphs(&self) -> Result<&Graphs, DriverError> {
        self.graphs.as_ref().ok_or_else(|| DriverError::Use("the driver has no graphs".to_owned()))
    }

    /// # Errors
    /// The driver has no functions between devices.
    fn peers(&self) -> Result<&Peers, DriverError> {
        self.peers.as_ref().ok_or_else(|| DriverError::Use("the driver has no copies between devices".to_owned()))
    }

    /// The driver's name for an answer.
    fn error_name(&self, code: Code) -> String {
        let mut text = ptr::null();
        // SAFETY: there is room for one pointer. Whatever is answered, it was null before.
        unsafe { (self.error_name)(code, &mut text) };
        if text.is_null() {
            return "an error without a name".to_owned();
        }
        // SAFETY: the driver's names are texts with a zero at their end that are never given back.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

/// The library, by the first of its names that can be opened.
fn load() -> Result<(&'static str, Library), DriverError> {
    let mut why = String::new();
    for &name in NAMES {
        // SAFETY: what the driver's library does when it is loaded is the system's matter: it is installed by whoever
        // may.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((name, library)),
            // The first name is the one to look for.
            Err(error) if why.is_empty() => why = reason(&error),
            Err(_) => {}
        }
    }
    Err(DriverError::Missing { why })
}

/// Address of a function of the library.
///
/// # Errors
/// The library has no such function.
///
/// # Safety
/// `F` is a pointer to a function that is declared as the library's is.
unsafe fn function<F: Copy>(library: &Library, name: &'static str, function: &'static str) -> Result<F, DriverError> {
    // SAFETY: the caller's.
    let found = unsafe { library.get::<F>(function) };
    found.map(|f| *f).map_err(|_| DriverError::Function { library: name, function, release: SERIES })
}

/// The release of CUDA that the driver is of. It is asked first, because older drivers lack functions that newer ones
/// have.
fn version(library: &Library, name: &'static str) -> Result<u32, DriverError> {
    const CALL: &str = "cuDriverGetVersion";
    // SAFETY: the declaration is the one of the driver's API for this name.
    let tell: Version = unsafe { function(library, name, CALL)? };
    let mut version = 0;
    // SAFETY: there is room for one integer.
    let code = unsafe { tell(&mut version) };
    if code != 0 {
        return Err(DriverError::Call { call: CALL, code, name: "it does not tell its version".to_owned() });
    }
    Ok(version.try_into().unwrap_or(0))
}

/// The system's message for an error, in one line.
fn reason(error: &impl Error) -> String {
    let cause = error.source().map(ToString::to_string);
    let text = cause.unwrap_or_else(|| error.to_string());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
