//! Tiles of AMX: whether this process may use them, and their products of bytes.
//!
//! A tile is 16 rows of 64 bytes. `C[m][n] += sum over k of A[m][k] * B[k / 4][4 n + k % 4]`: A holds 16 rows of 64
//! bytes, B the same four bytes of 16 columns in each of its lines, C sums of 32 bits. Kernels are written over
//! [`Tiles`], which [`Hardware`] has in the processor's registers and [`Software`] in memory, so that their logic is
//! tested on every machine with AVX-512.
//!
//! Which tiles there are is state of a thread. Whoever multiplies sets them up first and gives them back at the end,
//! once per task, which costs 60 ns; nothing is remembered in between, because other code of the process may use tiles
//! too.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// Rows of a tile, and columns of sums.
pub const ROWS: usize = 16;
/// Bytes of a row.
pub const ROW: usize = 64;
/// Bytes of a tile.
pub const TILE: usize = ROWS * ROW;

/// Returns the features that AMX adds to AVX-512; true for those that this process may use. The first call asks the
/// system for the permission.
pub fn features() -> Vec<(&'static str, bool)> {
    static FOUND: OnceLock<[bool; 3]> = OnceLock::new();
    let [tile, int8, permitted] = *FOUND.get_or_init(detect);
    vec![("amx-tile", tile), ("amx-int8", int8), ("permission to use tiles", permitted)]
}

/// In this order, since each question may only be asked after the one before was answered with yes.
fn detect() -> [bool; 3] {
    const OSXSAVE: u32 = 1 << 27;
    // Miri's processor has neither tiles nor the instruction that says so.
    if cfg!(miri) || __cpuid(1).ecx & OSXSAVE == 0 || __cpuid(0).eax < 0x1D {
        return [false; 3];
    }
    let features = __cpuid_count(7, 0).edx;
    let (tile, int8) = (features >> 24 & 1 != 0, features >> 25 & 1 != 0);
    let ready = tile && int8 && state_is_saved() && is_palette_known();
    [tile, int8, ready && permission()]
}

/// True if the system saves configuration and data of tiles when it switches between threads.
fn state_is_saved() -> bool {
    const TILES: u32 = 3 << 17;
    let low: u32;
    // SAFETY: the caller has seen OSXSAVE, which says that the instruction is there.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    low & TILES == TILES
}

/// True if palette 1 has eight tiles of 16 rows of 64 bytes.
fn is_palette_known() -> bool {
    if __cpuid_count(0x1D, 0).eax < 1 {
        return false;
    }
    let palette = __cpuid_count(0x1D, 1);
    let (bytes, row) = ((palette.eax >> 16) as usize, (palette.ebx & 0xFFFF) as usize);
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

/// Tiles of tokens: 16 each, of which the last two overlap where the tokens are no whole tiles; fewer than 16 are one
/// tile of as many rows.
#[derive(Clone, Copy)]
pub struct Tokens {
    /// Tokens.
    pub count: usize,
    /// Rows of a tile.
    pub rows: usize,
    /// Number of tiles.
    pub tiles: usize,
}

impl Tokens {
    /// Tiles of `count` tokens, which are not 0.
    pub fn new(count: usize) -> Tokens {
        Tokens { count, rows: count.min(ROWS), tiles: count.div_ceil(ROWS) }
    }

    /// How many of `count` tokens tiles should take: all, or those of whole tiles where no more than `rest` are behind
    /// them, which are left to vectors. A tile is as long in work for a few tokens as for 16.
    pub fn in_tiles(count: usize, rest: usize) -> usize {
        match count % ROWS {
            few if few <= rest => count - few,
            _ => count,
        }
    }

    /// First token of a tile.
    #[inline(always)]
    pub fn start(self, tile: usize) -> usize {
        (tile * ROWS).min(self.count - self.rows)
    }
}

/// Eight tiles and their products of bytes. Tile numbers are below 8, and different within a product.
///
/// # Safety
/// of all functions: what they read and write is there, `rows` of the tile from `stride` to `stride`; a tile that is
/// read was loaded or cleared before.
pub trait Tiles: Sized {
    /// Tiles of which number `t` has `rows[t]` rows of 64 bytes, at most 16.
    ///
    /// # Safety
    /// The process has [`crate::Level::Amx`] where the tiles are the processor's.
    #[inline(always)]
    unsafe fn with_rows(rows: [u8; 8]) -> Self {
        // SAFETY: as here.
        unsafe { Self::with_shapes(rows, [ROW as u8; 8]) }
    }
    /// The same with `bytes[t]` bytes in each row, at most 64: a `B` has a row for every four bytes of an `A`.
    ///
    /// # Safety
    /// The process has [`crate::Level::Amx`] where the tiles are the processor's.
    unsafe fn with_shapes(rows: [u8; 8], bytes: [u8; 8]) -> Self;
    /// A tile of zeros.
    ///
    /// # Safety
    /// The tiles are set up.
    unsafe fn clear<const T: usize>(&mut self);
    /// A tile from memory.
    ///
    /// # Safety
    /// The tiles are set up; each row of tile `T` is readable, `stride` bytes after the one before.
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize);
    /// `C += A B`, bytes of both with a sign.
    ///
    /// # Safety
    /// The tiles are set up, and tiles `A`, `B` and `C` have shapes that may be multiplied and were loaded or cleared.
    unsafe fn dot_signed<const C: usize, const A: usize, const B: usize>(&mut self);
    /// `C += A B`, bytes of `A` with a sign and of `B` without.
    ///
    /// # Safety
    /// The tiles are set up, and tiles `A`, `B` and `C` have shapes that may be multiplied and were loaded or cleared.
    unsafe fn dot_signed_by_unsigned<const C: usize, const A: usize, const B: usize>(&mut self);
    /// `C += A B`, bytes of `A` without a sign and of `B` with one.
    ///
    /// # Safety
    /// The tiles are set up, and tiles `A`, `B` and `C` have shapes that may be multiplied and were loaded or cleared.
    unsafe fn dot_unsigned_by_signed<const C: usize, const A: usize, const B: usize>(&mut self);
    /// `C += A B`, bytes of both without a sign.
    ///
    /// # Safety
    /// The tiles are set up, and tiles `A`, `B` and `C` have shapes that may be multiplied and were loaded or cleared.
    unsafe fn dot_unsigned<const C: usize, const A: usize, const B: usize>(&mut self);
    /// A tile of sums to memory, row after row.
    ///
    /// # Safety
    /// The tiles are set up; `to` has room for the rows of tile `T`, 16 sums each.
    unsafe fn store<const T: usize>(&self, to: *mut i32);
}

/// The processor's own tiles, which are given back when this is dropped.
pub struct Hardware(());

/// Operand of the instruction that sets tiles up.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

/// Instructions that write tiles. The compiler has no use for tiles of its own, so what a block leaves there is there
/// for the next one; that it may find all of them changed is said nevertheless.
macro_rules! tiles {
    ([$($instruction:tt)*] $($operand:tt)*) => {
        asm!(
            $($instruction)*,
            $($operand)*
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags),
        )
    };
}

macro_rules! product {
    ($name:ident, $instruction:literal) => {
        /// # Safety
        /// As in [`Tiles`].
        #[inline(always)]
        unsafe fn $name<const C: usize, const A: usize, const B: usize>(&mut self) {
            // SAFETY: `with_rows` has set the tiles up; the caller has filled them.
            unsafe {
                tiles!([concat!($instruction, " tmm{c}, tmm{a}, tmm{b}")] c = const C, a = const A, b = const B,);
            }
        }
    };
}

impl Tiles for Hardware {
    #[inline(always)]
    unsafe fn with_shapes(rows: [u8; 8], bytes: [u8; 8]) -> Hardware {
        let mut configuration =
            Configuration { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row: [0; 16], rows: [0; 16] };
        for (to, bytes) in configuration.bytes_per_row.iter_mut().zip(bytes) {
            *to = bytes.into();
        }
        configuration.rows[..8].copy_from_slice(&rows);
        // SAFETY: the caller says that the process may use tiles; the configuration is of palette 1, which was found.
        unsafe { tiles!(["ldtilecfg [{}]"] in(reg) &raw const configuration,) };
        Hardware(())
    }
    #[inline(always)]
    unsafe fn clear<const T: usize>(&mut self) {
        // SAFETY: `with_rows` has set the tiles up.
        unsafe { tiles!(["tilezero tmm{t}"] t = const T,) };
    }
    #[inline(always)]
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
        // SAFETY: `with_rows` has set the tiles up; the caller has the rows there.
        unsafe {
            tiles!(["tileloadd tmm{t}, [{p} + {s}*1]"] t = const T, p = in(reg) from, s = in(reg) stride,);
        }
    }
    product!(dot_signed, "tdpbssd");
    product!(dot_signed_by_unsigned, "tdpbsud");
    product!(dot_unsigned_by_signed, "tdpbusd");
    product!(dot_unsigned, "tdpbuud");
    #[inline(always)]
    unsafe fn store<const T: usize>(&self, to: *mut i32) {
        // SAFETY: `with_rows` has set the tiles up; the caller has room for the rows.
        unsafe {
            asm!("tilestored [{p} + {s}*1], tmm{t}", t = const T, p = in(reg) to, s = in(reg) ROW,
                options(nostack, preserves_flags));
        }
    }
}

impl Drop for Hardware {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `with_rows` has made this value, so the instruction is there.
        unsafe { tiles!(["tilerelease"]) };
    }
}

/// Tiles in memory.
#[cfg(test)]
pub struct Software {
    tiles: [[u8; TILE]; 8],
    rows: [usize; 8],
    bytes: [usize; 8],
}

#[cfg(test)]
impl Software {
    fn dot<const C: usize, const A: usize, const B: usize>(&mut self, a: impl Fn(u8) -> i32, b: impl Fn(u8) -> i32) {
        assert!(C != A && C != B && A != B && self.rows[C] == self.rows[A]);
        assert!(4 * self.rows[B] == self.bytes[A] && self.bytes[B] == ROW && self.bytes[C] == ROW);
        for m in 0..self.rows[C] {
            for n in 0..ROWS {
                let at = ROW * m + 4 * n;
                let mut sum = i32::from_le_bytes(crate::shared::packed::dword(&self.tiles[C], at / 4));
                for k in 0..self.bytes[A] {
                    let (left, right) = (self.tiles[A][ROW * m + k], self.tiles[B][ROW * (k / 4) + 4 * n + k % 4]);
                    sum = sum.wrapping_add(a(left) * b(right));
                }
                self.tiles[C][at..at + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
impl Tiles for Software {
    unsafe fn with_shapes(rows: [u8; 8], bytes: [u8; 8]) -> Software {
        let fit = |all: [u8; 8], most| all.iter().all(|&n| (1..=most).contains(&usize::from(n)));
        assert!(fit(rows, ROWS) && fit(bytes, ROW));
        Software {
            // What was not loaded must not matter.
            tiles: [[0xA5; TILE]; 8],
            rows: rows.map(usize::from),
            bytes: bytes.map(usize::from),
        }
    }
    unsafe fn clear<const T: usize>(&mut self) {
        self.tiles[T].fill(0);
    }
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
        for row in 0..self.rows[T] {
            // SAFETY: the caller has the rows there.
            let bytes = unsafe { std::slice::from_raw_parts(from.add(row * stride), self.bytes[T]) };
            self.tiles[T][ROW * row..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    unsafe fn dot_signed<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.dot::<C, A, B>(|a| i32::from(a.cast_signed()), |b| i32::from(b.cast_signed()));
    }
    unsafe fn dot_signed_by_unsigned<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.dot::<C, A, B>(|a| i32::from(a.cast_signed()), i32::from);
    }
    unsafe fn dot_unsigned_by_signed<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.dot::<C, A, B>(i32::from, |b| i32::from(b.cast_signed()));
    }
    unsafe fn dot_unsigned<const C: usize, const A: usize, const B: usize>(&mut self) {
        self.dot::<C, A, B>(i32::from, i32::from);
    }
    unsafe fn store<const T: usize>(&self, to: *mut i32) {
        for (i, bytes) in self.tiles[T].as_chunks::<4>().0[..16 * self.rows[T]].iter().enumerate() {
            // SAFETY: the caller has room for the rows.
            unsafe { to.add(i).write(i32::from_le_bytes(*bytes)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, skipped};
    use crate::{Isa, Level};

    /// One product of each kind, of tiles with `tokens` rows, added to what was there.
    ///
    /// # Safety
    /// The process has [`Level::Amx`] where the tiles are the processor's; `tokens` is between 1 and 16.
    unsafe fn products<T: Tiles>(tokens: usize, a: &[u8; TILE], b: &[u8; TILE]) -> [[i32; 256]; 4] {
        let few = tokens as u8;
        let mut out = [[7; 256]; 4];
        // SAFETY: the caller says that there are such tiles; tiles and sums have room for 16 rows.
        unsafe {
            let mut tiles = T::with_rows([few, 16, few, few, few, few, 16, 16]);
            tiles.load::<0>(a.as_ptr(), ROW);
            tiles.load::<1>(b.as_ptr(), ROW);
            tiles.clear::<2>();
            tiles.clear::<3>();
            tiles.clear::<4>();
            tiles.load::<5>(a.as_ptr(), ROW);
            tiles.dot_signed::<2, 0, 1>();
            tiles.dot_signed_by_unsigned::<3, 0, 1>();
            tiles.dot_unsigned_by_signed::<4, 0, 1>();
            tiles.dot_unsigned::<5, 0, 1>();
            tiles.store::<2>(out[0].as_mut_ptr());
            tiles.store::<3>(out[1].as_mut_ptr());
            tiles.store::<4>(out[2].as_mut_ptr());
            tiles.store::<5>(out[3].as_mut_ptr());
        }
        out
    }

    #[test]
    fn tiles_in_memory_do_what_those_of_the_processor_do() {
        if Isa::of(Level::Amx).is_none() {
            return skipped("tiles of the processor", &Level::Amx.missing().join(", "));
        }
        let mut random = Random(0x711E5);
        for tokens in 1..=16 {
            let a: [u8; TILE] = std::array::from_fn(|_| random.bits() as u8);
            let b: [u8; TILE] = std::array::from_fn(|_| random.bits() as u8);
            // SAFETY: the instruction set was found.
            let (hardware, software) =
                unsafe { (products::<Hardware>(tokens, &a, &b), products::<Software>(tokens, &a, &b)) };
            assert_eq!(hardware, software, "{tokens} tokens");
        }
    }

    #[test]
    fn tiles_in_memory_multiply_bytes_with_and_without_signs() {
        let (mut a, mut b) = ([0; TILE], [0; TILE]);
        // -1 or 255 in row 2, column 9; -2 or 254 in column 5 of the sums
        a[ROW * 2 + 9] = 0xFF;
        b[ROW * 2 + 4 * 5 + 1] = 0xFE;
        // SAFETY: tiles in memory.
        let sums = unsafe { products::<Software>(3, &a, &b) };
        assert_eq!([sums[0][37], sums[1][37], sums[2][37]], [2, -254, -510]);
        assert_eq!(sums[3][37], 255 * 254);
        assert_eq!(sums[0].iter().filter(|&&sum| sum == 2).count(), 1);
        // rows that the tile does not have stay as they were
        assert!(sums[0][48..].iter().all(|&sum| sum == 7));
    }
}
