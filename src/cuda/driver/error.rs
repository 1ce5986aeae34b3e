//! Why no kernel can run on a device.

use thiserror::Error;

/// Errors between a program and a GPU, and what can be done about them.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DriverError {
    /// The library is not there or cannot be opened.
    #[error("no NVIDIA driver is installed ({why})")]
    Missing {
        /// The system's error.
        why: String,
    },
    /// The library has not all functions.
    #[error(
        "the NVIDIA driver {library} has no function {function}, which drivers from R{release} on have: install it anew"
    )]
    Function {
        /// The library's name.
        library: &'static str,
        /// The function's name.
        function: &'static str,
        /// The oldest series of drivers that can be used.
        release: u32,
    },
    /// The driver is older than the PTX of the kernels.
    #[error(
        "the NVIDIA driver is of CUDA {}.{}, and the kernels ask for CUDA {}.{} or newer: install a driver from R{release} on",
        found.0, found.1, needed.0, needed.1
    )]
    Old {
        /// Release of CUDA that the driver is of.
        found: (u32, u32),
        /// The oldest one that reads the PTX.
        needed: (u32, u32),
        /// The series of drivers that came with it.
        release: u32,
    },
    /// The driver answers a call with an error.
    #[error("the NVIDIA driver fails in {call}: {name} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// Its answer.
        code: u32,
        /// The driver's name for this answer.
        name: String,
    },
    /// The device's memory has been taken by others since it was asked for.
    #[error(
        "the GPU has no room for {bytes} bytes more; end what else uses it, or lower the context, the sequences or -ngl"
    )]
    Room {
        /// Bytes that were wanted.
        bytes: usize,
    },
    /// The driver does not take the kernels.
    #[error(
        "the NVIDIA driver does not compile the kernels of '{module}': {name} ({code}){}; install a newer driver",
        shown(log)
    )]
    Module {
        /// The text of PTX.
        module: &'static str,
        /// The driver's answer.
        code: u32,
        /// The driver's name for it.
        name: String,
        /// The compiler's messages.
        log: String,
    },
    /// A launch that fits no kernel, or a copy that fits no memory.
    #[error("{0}")]
    Use(String),
    /// A kernel failed. The driver tells it late: it is the one that was started last, or one before it.
    #[error(
        "the GPU failed with {name} ({code}) in {call}; kernel '{kernel}' was started last; --device cpu needs no GPU"
    )]
    Kernel {
        /// The kernel that was started last.
        kernel: String,
        /// The function that told it.
        call: &'static str,
        /// Its answer.
        code: u32,
        /// The driver's name for it.
        name: String,
    },
    /// The number of a device that is not there.
    #[error("there is no cuda:{wanted}: the driver has {}", devices(*count))]
    NoDevice {
        /// The device that was asked for.
        wanted: u32,
        /// Number of devices.
        count: u32,
    },
    /// The device has not the instructions of the kernels.
    #[error(
        "cuda:{number} ({name}) has compute capability {}.{}, and the kernels ask for {}.{} or newer (A100, RTX 30 and later)",
        found.0, found.1, needed.0, needed.1
    )]
    Capability {
        /// The device's number.
        number: u32,
        /// Its name.
        name: String,
        /// Its compute capability.
        found: (u32, u32),
        /// The lowest one that has the instructions.
        needed: (u32, u32),
    },
}

/// The number of devices, in words.
fn devices(count: u32) -> String {
    match count {
        0 => "no device".to_owned(),
        1 => "one device, cuda:0".to_owned(),
        n => format!("{n} devices, cuda:0 to cuda:{}", n - 1),
    }
}

/// The compiler's message, in one line behind a comma; empty where there is none.
fn shown(log: &str) -> String {
    let line = log.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.is_empty() {
        true => line,
        false => format!(", {line}"),
    }
}
