//! The functions of the API.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::slice;

use trine_ptx::{Argument, Launch, Module};

use crate::Code;
use crate::answer::{self, INVALID_DEVICE, INVALID_PTX, LAUNCH_FAILED, NO_DEVICE, NOT_FOUND, OUT_OF_MEMORY, UNKNOWN};
use crate::state::{CONTEXT, Checked, KERNELS, Kernel, MODULES, STREAMS, State, enter, mistake, state};

/// Attributes of a device that are asked for.
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const CLOCK: c_int = 13;
const MULTIPROCESSORS: c_int = 16;
const MEMORY_CLOCK: c_int = 36;
const BUS: c_int = 37;
/// The attribute of a kernel that is the most shared memory that launches may bring, what they may bring without, and
/// the most that there is on compute capability 9.0.
const SHARED: c_int = 8;
const PLAIN_SHARED: u32 = 48 << 10;
const MOST_SHARED: c_int = 227 << 10;

/// Runs a call under the lock; one that the plan lets fail does nothing.
fn call(name: &str, f: impl FnOnce(&mut State) -> Result<(), Code>) -> Code {
    let mut state = state();
    if let Some(code) = state.plan.failure(name) {
        return code;
    }
    if state.plan.skipped.iter().any(|skipped| skipped == name) {
        return answer::SUCCESS;
    }
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&mut state)));
    match done {
        Ok(Ok(())) => answer::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    }
}

/// Declares functions of the API: their names, arguments and bodies, which run under the lock.
macro_rules! api {
    ($(fn $name:ident($state:ident $(, $arg:ident: $ty:ty)*) $body:block)*) => {
        $(
            /// The function of this name in the CUDA Driver API.
            ///
            /// # Safety
            /// That of the API: pointers point to room for what is written or read there.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the API's name")]
            pub unsafe extern "system" fn $name($($arg: $ty),*) -> Code {
                call(stringify!($name), |$state| $body)
            }
        )*
    };
}

mod graphs;
mod peers;

/// Writes the result of a function.
///
/// # Safety
/// There is room for it.
unsafe fn give<T>(to: *mut T, value: T) {
    if to.is_null() {
        mistake("no room for what a function gives");
    }
    // SAFETY: the caller's.
    unsafe { to.write(value) }
}

api! {
    fn cuDriverGetVersion(state, version: *mut c_int) {
        // SAFETY: the caller's.
        unsafe { give(version, state.plan.version) };
        Ok(())
    }

    fn cuInit(state, flags: c_uint) {
        if flags != 0 || state.devices.is_empty() {
            return Err(NO_DEVICE);
        }
        state.initialized = true;
        Ok(())
    }

    fn cuDeviceGetCount(state, count: *mut c_int) {
        state.ready()?;
        // SAFETY: the caller's.
        unsafe { give(count, state.plan.devices) };
        Ok(())
    }

    fn cuDeviceGet(state, device: *mut c_int, number: c_int) {
        state.ready()?;
        if !(0..state.plan.devices).contains(&number) {
            return Err(INVALID_DEVICE);
        }
        // SAFETY: the caller's.
        unsafe { give(device, number) };
        Ok(())
    }

    fn cuDeviceGetName(state, name: *mut c_char, size: c_int, _device: c_int) {
        state.ready()?;
        let text = b"Emulated GPU\0";
        let count = text.len().min(usize::try_from(size).unwrap_or(0));
        // SAFETY: the caller has room for `size` bytes.
        unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count) };
        Ok(())
    }

    fn cuDeviceGetAttribute(state, value: *mut c_int, attribute: c_int, _device: c_int) {
        state.ready()?;
        let (major, minor) = state.plan.capability;
        let [multiprocessors, clock, memory_clock, bus] = state.plan.clocks;
        let found = match attribute {
            MAJOR => major,
            MINOR => minor,
            MULTIPROCESSORS => multiprocessors,
            CLOCK => clock,
            MEMORY_CLOCK => memory_clock,
            BUS => bus,
            _ => mistake("an attribute of a device that is not known"),
        };
        // SAFETY: the caller's.
        unsafe { give(value, found) };
        Ok(())
    }

    fn cuDeviceTotalMem_v2(state, bytes: *mut usize, device: c_int) {
        state.ready()?;
        let all = state.plan.memory(usize::try_from(device).unwrap_or(0));
        // SAFETY: the caller's.
        unsafe { give(bytes, all) };
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(state, context: *mut *mut c_void, device: c_int) {
        state.ready()?;
        let one = state.one(device);
        one.holds += 1;
        // SAFETY: the caller's.
        unsafe { give(context, std::ptr::without_provenance_mut(one.first(CONTEXT))) };
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(state, device: c_int) {
        state.ready()?;
        let one = state.one(device);
        match one.holds.checked_sub(1) {
            Some(holds) => one.holds = holds,
            None => mistake("a context that nobody holds is let go of"),
        }
        let used = one.used();
        if one.holds == 0 && used > 0 {
            mistake(&format!("the context ends with {used} bytes taken"));
        }
        if state.order.has_events() && state.devices.iter().all(|one| one.holds == 0) {
            mistake("the last context ends with an event");
        }
        let one = state.one(device);
        if one.holds == 0 && one.graphs.iter().chain(&one.ready).any(Option::is_some) {
            mistake("the context ends with a graph");
        }
        state.note("end");
        Ok(())
    }

    fn cuCtxSetCurrent(state, context: *mut c_void) {
        state.ready()?;
        let found = state.devices.iter().position(|one| one.first(CONTEXT) == context.addr());
        match found {
            Some(device) => enter(device),
            None => mistake("a context that is none"),
        }
        Ok(())
    }

    fn cuMemGetInfo_v2(state, free: *mut usize, all: *mut usize) {
        let [bytes, left] = state.memory()?;
        // SAFETY: the caller's.
        unsafe {
            give(free, left);
            give(all, bytes);
        }
        Ok(())
    }

    fn cuMemAlloc_v2(state, address: *mut u64, bytes: usize) {
        let [_, left] = state.memory()?;
        if bytes == 0 {
            mistake("no bytes are taken");
        }
        if bytes > left {
            return Err(OUT_OF_MEMORY);
        }
        let one = state.entered()?;
        // As f16, f32 and codes these bytes are NaN or nonsense.
        let buffer = one.device.unwatched(vec![0xff; bytes]);
        let at = trine_ptx::Device::address(buffer);
        one.taken.insert(at, (buffer, bytes));
        // SAFETY: the caller's.
        unsafe { give(address, at) };
        Ok(())
    }

    fn cuMemFree_v2(state, address: u64) {
        let one = state.current()?;
        match one.taken.remove(&address) {
            Some((buffer, _)) => one.device.free(buffer),
            None => mistake("memory is given back that was not taken"),
        }
        state.entered().map(|_| ())
    }

    fn cuStreamCreate(state, stream: *mut *mut c_void, _flags: c_uint) {
        let one = state.entered()?;
        one.streams.push(true);
        let number = one.first(STREAMS) + one.streams.len() - 1;
        // SAFETY: the caller's.
        unsafe { give(stream, std::ptr::without_provenance_mut(number)) };
        Ok(())
    }

    fn cuStreamDestroy_v2(state, stream: *mut c_void) {
        let one = state.current()?;
        one.stream(stream.addr());
        let first = one.first(STREAMS);
        one.streams[stream.addr() - first] = false;
        Ok(())
    }

    fn cuStreamSynchronize(state, stream: *mut c_void) {
        let one = state.current()?;
        one.stream(stream.addr());
        let number = one.number;
        state.order.waited(number);
        state.entered().map(|_| ())
    }

    fn cuMemcpyHtoDAsync_v2(state, to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        let number = state.work(stream.addr())?;
        let one = &mut state.devices[number];
        let (buffer, at) = one.memory(to, bytes);
        // SAFETY: the caller's: `bytes` bytes can be read.
        let from = unsafe { slice::from_raw_parts(from.cast::<u8>(), bytes) };
        one.device.fill(buffer, at, from);
        Ok(())
    }

    fn cuMemcpyDtoHAsync_v2(state, to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        let number = state.work(stream.addr())?;
        let one = &mut state.devices[number];
        let (buffer, at) = one.memory(from, bytes);
        let from = one.device.some_bytes(buffer, at, bytes);
        // SAFETY: the caller's: there is room for `bytes` bytes.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.as_ptr(), bytes) };
        Ok(())
    }

    fn cuMemcpyDtoDAsync_v2(state, to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        let number = state.work(stream.addr())?;
        let one = &mut state.devices[number];
        let ((source, at), (target, place)) = (one.memory(from, bytes), one.memory(to, bytes));
        let copied = one.device.some_bytes(source, at, bytes).to_vec();
        one.device.fill(target, place, &copied);
        state.note("copy");
        Ok(())
    }

    fn cuModuleLoadDataEx(
        state,
        module: *mut *mut c_void,
        text: *const c_char,
        n: c_uint,
        options: *mut c_int,
        values: *mut *mut c_void
    ) {
        let one = state.entered()?;
        // SAFETY: the caller's: a text with a zero behind it.
        let text = unsafe { CStr::from_ptr(text) };
        let text = text.to_str().map_err(|_| INVALID_PTX)?;
        match Module::parse(text) {
            Ok(parsed) => one.modules.push(parsed),
            Err(e) => {
                // SAFETY: the caller's: there are `n` options with their values.
                unsafe { log(n, options, values, &e.to_string()) };
                return Err(INVALID_PTX);
            }
        }
        let number = one.first(MODULES) + one.modules.len() - 1;
        // SAFETY: the caller's.
        unsafe { give(module, std::ptr::without_provenance_mut(number)) };
        Ok(())
    }

    fn cuModuleGetFunction(state, kernel: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        let one = state.entered()?;
        let number = module.addr().wrapping_sub(one.first(MODULES));
        let Some(found) = one.modules.get(number) else {
            mistake("a module that is not there");
        };
        // SAFETY: the caller's: a name with a zero behind it.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        found.kernel(&name).ok_or(NOT_FOUND)?;
        one.kernels.push(Kernel { module: number, name, shared: PLAIN_SHARED });
        let number = one.first(KERNELS) + one.kernels.len() - 1;
        // SAFETY: the caller's.
        unsafe { give(kernel, std::ptr::without_provenance_mut(number)) };
        Ok(())
    }

    fn cuFuncSetAttribute(state, kernel: *mut c_void, attribute: c_int, value: c_int) {
        let one = state.entered()?;
        let number = kernel.addr().wrapping_sub(one.first(KERNELS));
        match (one.kernels.get_mut(number), attribute, value) {
            (Some(kernel), SHARED, 0..=MOST_SHARED) => kernel.shared = value as u32,
            _ => mistake("a property of a kernel that is none"),
        }
        Ok(())
    }

    fn cuLaunchKernel(
        state,
        kernel: *mut c_void,
        x: c_uint,
        y: c_uint,
        z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared: c_uint,
        stream: *mut c_void,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    ) {
        let one = state.entered()?;
        one.queue(stream.addr());
        if !extra.is_null() {
            mistake("arguments in two ways");
        }
        let number = kernel.addr().wrapping_sub(one.first(KERNELS));
        let Some(Kernel { module, name, shared: most }) = one.kernels.get(number) else {
            mistake("a kernel that is not there");
        };
        if shared > *most {
            mistake("more shared memory than the kernel was allowed");
        }
        let sizes = one.modules[*module].kernel(name).map_or(&[][..], |k| k.arguments());
        let arguments: Vec<Argument> = sizes
            .iter()
            .enumerate()
            .map(|(i, size)| {
                // SAFETY: the caller's: as many pointers as the kernel has arguments, each to one of the kernel's size.
                unsafe {
                    let at = *arguments.add(i);
                    match size {
                        8 => Argument::U64(at.cast::<u64>().read()),
                        4 => Argument::U32(at.cast::<u32>().read()),
                        _ => mistake("an argument of another size"),
                    }
                }
            })
            .collect();
        let checked = Checked {
            module: *module,
            kernel: name.clone(),
            blocks: [x, y, z],
            threads: [threads_x, threads_y, threads_z],
            shared,
            arguments,
        };
        match &mut one.recorded {
            Some(recorded) => recorded.push(checked),
            None => {
                state.work(stream.addr())?;
                launch(state, &checked)?;
            }
        }
        Ok(())
    }
}

/// Runs a kernel. As on a GPU its failure is told by the calls behind it.
fn launch(state: &mut State, checked: &Checked) -> Result<(), Code> {
    let name = &checked.kernel;
    state.note(name);
    let planned = state.plan.failure(name);
    let skipped = state.plan.skipped.contains(name);
    let one = state.entered()?;
    if skipped {
        return Ok(());
    }
    let launch = Launch {
        blocks: checked.blocks,
        threads: checked.threads,
        shared: checked.shared,
        arguments: &checked.arguments,
        ..Launch::default()
    };
    one.failed = planned.or_else(|| {
        let done = one.device.launch(&one.modules[checked.module], name, &launch);
        done.err().map(|fault| {
            eprintln!("fake driver: {fault}");
            LAUNCH_FAILED
        })
    });
    Ok(())
}

/// Writes into the buffer that options name for what the compiler says.
///
/// # Safety
/// There are `n` options with their values, and room for as many bytes as they say.
unsafe fn log(n: c_uint, options: *mut c_int, values: *mut *mut c_void, text: &str) {
    const LOG: c_int = 5;
    const LOG_BYTES: c_int = 6;
    // SAFETY: the caller's.
    let pairs = (0..n as usize).map(|i| unsafe { (*options.add(i), *values.add(i)) });
    let pairs: Vec<(c_int, *mut c_void)> = pairs.collect();
    let value = |option| pairs.iter().find(|p| p.0 == option).map(|p| p.1);
    if let (Some(to), Some(room)) = (value(LOG), value(LOG_BYTES)) {
        let count = text.len().min(room.addr());
        // SAFETY: the caller's.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count) };
    }
}

/// The name of an answer.
///
/// # Safety
/// There is room for a pointer.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the API's name")]
pub unsafe extern "system" fn cuGetErrorName(code: Code, text: *mut *const c_char) -> Code {
    match answer::name(code) {
        Some(name) => {
            // SAFETY: the caller's.
            unsafe { give(text, name.as_ptr()) };
            answer::SUCCESS
        }
        None => 1,
    }
}
