//! Tiles of AMX: whether this process may use them, and their products of bytes.
//!
//! A tile is 16 rows of 64 bytes. `C[m][n] += sum over k of A[m][k] * B[k / 4][4 n + k % 4]`: A holds 16 rows of 64
//! bytes, B the same four bytes of 16 columns in each of its lines, C sums of 32 bits. Kernels are written over [`Tiles`], which
//! [`Hardware`] has in the processor's registers and [`Software`] in memory, so that their logic is tested on every
//! machine with AVX-512.
//!
//! Which tiles there are is state of a thread. Whoever multiplies sets them up first and gives them back at the end, once
//! per task, which costs 60 ns; nothing is remembered in between, because other code of the process may use tiles too.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// Rows of a tile, and columns of sums.
pub const ROWS: usize = 16;
/// Bytes of a row.
pub const ROW: usize = 64;
/// Bytes of a tile.
pub const TILE: usize = ROWS * ROW;

/// What AMX adds to AVX-512, and whether this process may use it. The first call asks the system for the permission.
pub fn features() -> Vec<(&'static str, bool)> {
    static FOUND: OnceLock<[bool; 3]> = OnceLock::new();
    let [tile, int8, permitted] = *FOUND.get_or_init(detect);
    vec![
        ("amx-tile", tile),
        ("amx-int8", int8),
        ("permission to use tiles", permitted),
    ]
}

/// In this order, since each question may only be asked after the one before was answered with yes.
fn detect() -> [bool; 3] {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & OSXSAVE == 0 || __cpuid(0).eax < 0x1D {
        return [false; 3];
    }
    let features = __cpuid_count(7, 0).edx;
    let (tile, int8) = (features >> 24 & 1 != 0, features >> 25 & 1 != 0);
    let ready = tile && int8 && state_is_saved() && is_palette_known();
    [tile, int8, ready && permission()]
}

/// Whether the system saves configuration and data of tiles when it switches between threads.
fn state_is_saved() -> bool {
    const TILES: u32 = 3 << 17;
    let low: u32;
    // SAFETY: the caller has seen OSXSAVE, which says that the instruction is there.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    low & TILES == TILES
}

/// Whether palette 1 has eight tiles of 16 rows of 64 bytes.
fn is_palette_known() -> bool {
    if __cpuid_count(0x1D, 0).eax < 1 {
        return false;
    }
    let palette = __cpuid_count(0x1D, 1);
    let (bytes, row) = (
        (palette.eax >> 16) as usize,
        (palette.ebx & 0xFFFF) as usize,
    );
    let (tiles, rows) = (palette.ebx >> 16, (palette.ecx & 0xFFFF) as usize);
    bytes == TILE && row == ROW && tiles == 8 && rows == ROWS
}

/// Asks Linux, from 5.16 on, for the right to use tiles; all threads of the process get it.
#[cfg(target_os = "linux")]
fn permission() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: a system call that reads and writes no memory of the process; it clobbers rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Other systems are not known to hand tiles out in this way.
#[cfg(not(target_os = "linux"))]
fn permission() -> bool {
    false
}
