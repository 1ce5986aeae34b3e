//! NVIDIA's driver library as far as trine calls it, whose devices are emulators of PTX.
//!
//! Programs open it as they would open the real one, so all that stands between a command line and the kernels runs in
//! tests: loading PTX, memory, copies, arguments, launches, errors. It is stricter than the real one where that is
//! allowed: handles, places and sizes that are wrong end the process with a line that says so. Accesses of kernels are
//! checked for their places alone, because races and bytes that nobody wrote are found by other tests, which watch
//! every byte.
//!
//! The environment variable `TRINE_FAKE_CUDA` says what the device is: words such as `capability=7.5`,
//! `memory=1000000` or `memory=1000000,2000000` for the devices in turn, `devices=2`, `version=13000`, `log=FILE`, which notes the calls that matter, `fail=FUNCTION:CODE`
//! or `fail=KERNEL:CODE` for a function or a kernel that fails with a code, `skip=FUNCTION` or `skip=KERNEL` for
//! one that does nothing, and `reaches=0` for devices that cannot write each other's memory.

mod answer;
mod calls;
mod order;
mod plan;
mod state;

use std::io;
use std::path::Path;

pub use answer::Code;
pub use plan::Plan;

/// Puts the library, which cargo has built beside the program that asks, into a folder under the driver's name.
///
/// # Errors
/// It is not there, or the folder takes no link.
#[cfg(unix)]
pub fn install(folder: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2);
    let mut places = folders.map(|place| place.join("libtrine_fake_cuda.so"));
    let found = places.find(|path| path.exists());
    let missing = || io::Error::new(io::ErrorKind::NotFound, "libtrine_fake_cuda.so");
    std::os::unix::fs::symlink(found.ok_or_else(missing)?, folder.join("libcuda.so.1"))
}
