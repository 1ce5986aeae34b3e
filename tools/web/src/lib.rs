//! The engine as a WebAssembly module, whose one caller is `worker.js` beside it.
//!
//! Four functions: memory is taken and given back by [`trine_alloc`] and [`trine_free`], and [`trine_call`] takes a request
//! in JSON and answers in JSON ([`request`] has them all). Texts are short beside what it takes to compute them, so nothing is
//! gained by more functions, and every language reads the same few lines.
//!
//! An instance holds one model for as long as it lives. Memory of WebAssembly never shrinks: who wants another model
//! ends the worker and begins a new one.

mod failure;
mod loaded;
mod memory;
mod options;
mod prompt;
mod request;

use std::cell::RefCell;

use loaded::Loaded;

thread_local! {
    /// The model of this instance.
    static LOADED: RefCell<Option<Loaded>> = const { RefCell::new(None) };
}

unsafe extern "C" {
    /// Constructors of the C library. The linker would have every function call them, did nobody else.
    fn __wasm_call_ctors();
    /// The first thread's own data. (No `target_feature = "atomics"`: a stable compiler does not tell that there are any.)
    #[cfg(threads)]
    fn __wasi_init_tp();
}

/// Begins the instance; called once, before everything else.
#[unsafe(no_mangle)]
pub extern "C" fn _initialize() {
    // SAFETY: both belong to the C library, in this order, before any other code of the instance.
    unsafe {
        #[cfg(threads)]
        __wasi_init_tp();
        __wasm_call_ctors();
    }
}

/// Returns the address of `len` bytes, for a file or a request; null where there is no room.
#[unsafe(no_mangle)]
pub extern "C" fn trine_alloc(len: usize) -> *mut u8 {
    memory::give(len)
}

/// Gives back what [`trine_alloc`] or [`trine_call`] has returned.
///
/// # Safety
/// It was returned so, with this length, and is neither used nor given back a second time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trine_free(at: *mut u8, len: usize) {
    // SAFETY: the caller promises that it is a whole allocation of this length, whose owner it is.
    drop(unsafe { memory::take(at, len) });
}

/// Answers the request of `len` bytes at `at`, which is given back here. The answer is JSON too, its address in the low
/// half of what is returned and its length in the high one.
///
/// # Safety
/// As [`trine_free`]; the same holds for the files that a request to open a model names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trine_call(at: *mut u8, len: usize) -> u64 {
    // SAFETY: the caller promises that it is a whole allocation of this length, whose owner it is.
    let request = unsafe { memory::take(at, len) };
    let answer = LOADED.with_borrow_mut(|loaded| request::answer(&request, loaded)).into_boxed_slice();
    let len = answer.len() as u64;
    len << 32 | Box::into_raw(answer).cast::<u8>().addr() as u64
}
