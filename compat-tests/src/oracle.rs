//! ggml's own C code, loaded from the PyPI wheel libggml-python.
//!
//! The wheel's `libggml-base` (quantizers, decoders) is plain x86-64. Its `libggml-cpu` is built for
//! AVX2 and FMA, which changes the low bits of most dot products: see [`DOTS`].

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use trine_formats::types::{TypeId, TypeInfo};

use crate::Unavailable;
use crate::fetch::{self, Wheel};

/// ggml 0.20.2 for x86-64 Linux.
const WHEEL: Wheel = Wheel {
    requirement: "libggml-python==0.20.2.post1",
    file: "libggml_python-0.20.2.post1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    sha256: "2808ac1a12f72ef2ab8565de634830b53cf3dac7b0c43a653e46ab44c47e4512",
};

/// The libraries do not use Python, so that the wheel's tag is named instead of the local interpreter's.
const PLATFORM: [&str; 8] = [
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_27_x86_64",
    "--python-version",
    "3.11",
    "--implementation",
    "cp",
    "--abi",
    "cp311",
];

/// The scalar dot products of this wheel, and whether the compiler fused a multiplication with an addition.
///
/// Found with `objdump -d libggml-cpu.so`: a function is `Fused` when it contains a `vfm*` or `vfnm*`
/// instruction. A fused one has another rounding than the portable build, so it is compared only on
/// scales that make every product exact, where fusing changes nothing. Q2_0 has no SIMD version on x86:
/// its plain name is the scalar code. F32, F16 and BF16 have only SIMD versions, which sum in another
/// order; they are left to the recorded vectors of `testdata/kernels`.
pub const DOTS: [(TypeId, &str, Rounding); 25] = [
    (TypeId::Q4_0, "ggml_vec_dot_q4_0_q8_0_generic", Rounding::Plain),
    (TypeId::Q4_1, "ggml_vec_dot_q4_1_q8_1_generic", Rounding::Fused),
    (TypeId::Q5_0, "ggml_vec_dot_q5_0_q8_0_generic", Rounding::Plain),
    (TypeId::Q5_1, "ggml_vec_dot_q5_1_q8_1_generic", Rounding::Fused),
    (TypeId::Q8_0, "ggml_vec_dot_q8_0_q8_0_generic", Rounding::Plain),
    (TypeId::Q2_K, "ggml_vec_dot_q2_K_q8_K_generic", Rounding::Fused),
    (TypeId::Q3_K, "ggml_vec_dot_q3_K_q8_K_generic", Rounding::Plain),
    (TypeId::Q4_K, "ggml_vec_dot_q4_K_q8_K_generic", Rounding::Fused),
    (TypeId::Q5_K, "ggml_vec_dot_q5_K_q8_K_generic", Rounding::Fused),
    (TypeId::Q6_K, "ggml_vec_dot_q6_K_q8_K_generic", Rounding::Plain),
    (TypeId::IQ4_NL, "ggml_vec_dot_iq4_nl_q8_0_generic", Rounding::Plain),
    (TypeId::IQ1_S, "ggml_vec_dot_iq1_s_q8_K_generic", Rounding::Fused),
    (TypeId::IQ1_M, "ggml_vec_dot_iq1_m_q8_K_generic", Rounding::Fused),
    (TypeId::IQ2_XXS, "ggml_vec_dot_iq2_xxs_q8_K_generic", Rounding::Plain),
    (TypeId::IQ2_XS, "ggml_vec_dot_iq2_xs_q8_K_generic", Rounding::Plain),
    (TypeId::IQ2_S, "ggml_vec_dot_iq2_s_q8_K_generic", Rounding::Plain),
    (TypeId::IQ3_XXS, "ggml_vec_dot_iq3_xxs_q8_K_generic", Rounding::Plain),
    (TypeId::IQ3_S, "ggml_vec_dot_iq3_s_q8_K_generic", Rounding::Plain),
    (TypeId::IQ4_XS, "ggml_vec_dot_iq4_xs_q8_K_generic", Rounding::Plain),
    (TypeId::NVFP4, "ggml_vec_dot_nvfp4_q8_0_generic", Rounding::Fused),
    (TypeId::TQ1_0, "ggml_vec_dot_tq1_0_q8_K_generic", Rounding::Plain),
    (TypeId::TQ2_0, "ggml_vec_dot_tq2_0_q8_K_generic", Rounding::Plain),
    (TypeId::MXFP4, "ggml_vec_dot_mxfp4_q8_0_generic", Rounding::Plain),
    (TypeId::Q1_0, "ggml_vec_dot_q1_0_q8_0_generic", Rounding::Plain),
    (TypeId::Q2_0, "ggml_vec_dot_q2_0_q8_0", Rounding::Plain),
];

/// How a dot product of the wheel rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// After every operation: the bits of the portable build.
    Plain,
    /// Not between some multiplications and additions.
    Fused,
}

type QuantizeRow = unsafe extern "C" fn(*const f32, *mut u8, i64);
type DequantizeRow = unsafe extern "C" fn(*const u8, *mut f32, i64);
type QuantizeChunk = unsafe extern "C" fn(u32, *const f32, *mut u8, i64, i64, i64, *const f32) -> usize;
type VecDot = unsafe extern "C" fn(i32, *mut f32, usize, *const u8, usize, *const u8, usize, i32);

/// The loaded libraries.
pub struct Oracle {
    base: Library,
    cpu: Library,
    quantize_chunk: QuantizeChunk,
}

/// Converts whole blocks between floats and a type.
#[derive(Clone, Copy)]
pub struct Encoder {
    f: QuantizeRow,
    ty: &'static TypeInfo,
}

/// Decodes whole blocks of a type.
#[derive(Clone, Copy)]
pub struct Decoder {
    f: DequantizeRow,
    ty: &'static TypeInfo,
}

/// A scalar dot product.
#[derive(Clone, Copy)]
pub struct Dot {
    f: VecDot,
    ty: &'static TypeInfo,
    act: &'static TypeInfo,
    /// How it rounds.
    pub rounding: Rounding,
}

/// The libraries, downloaded and loaded once per process.
///
/// # Errors
/// The machine cannot run them or the wheel cannot be had.
pub fn get() -> Result<&'static Oracle, &'static Unavailable> {
    static ORACLE: OnceLock<Result<Oracle, Unavailable>> = OnceLock::new();
    ORACLE.get_or_init(open).as_ref()
}

fn open() -> Result<Oracle, Unavailable> {
    Ok(load(&library_dir()?)?)
}

/// Where the wheel's libraries lie, downloaded when they are not there.
///
/// # Errors
/// The machine cannot run them or the wheel cannot be had.
pub fn library_dir() -> Result<PathBuf, Unavailable> {
    check_machine().map_err(Unavailable::Machine)?;
    let dir = fetch::once("libggml-python-0.20.2.post1", |dir| WHEEL.unpack(dir, &PLATFORM))?;
    Ok(dir.join("libggml/lib64"))
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn check_machine() -> Result<(), String> {
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi2")
    {
        return Ok(());
    }
    Err("the C reference's libraries need a processor with AVX2, FMA, F16C and BMI2".to_owned())
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn check_machine() -> Result<(), String> {
    Err("the C reference's libraries are for x86-64 Linux".to_owned())
}

fn load(dir: &Path) -> Result<Oracle> {
    let open = |name: &str| {
        let path = dir.join(name);
        // SAFETY: the file is the one whose hash was checked; its initializers only set up tables and
        // timers. RTLD_GLOBAL lets the second library find the first one's symbols.
        unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
            .with_context(|| format!("cannot load {}", path.display()))
    };
    let base = open("libggml-base.so.0")?;
    let cpu = open("libggml-cpu.so.0")?;
    // SAFETY: `void ggml_cpu_init(void)` in ggml-cpu.h.
    let init: unsafe extern "C" fn() = unsafe { symbol(&cpu, "ggml_cpu_init") }?;
    // SAFETY: it fills the table of half floats, without which every dot product is 0, under its own lock.
    unsafe { init() };
    // SAFETY: `size_t ggml_quantize_chunk(enum ggml_type, const float *, void *, int64_t start,
    // int64_t nrows, int64_t n_per_row, const float * imatrix)` in ggml.h.
    let quantize_chunk: QuantizeChunk = unsafe { symbol(&base, "ggml_quantize_chunk") }?;
    Ok(Oracle { base, cpu, quantize_chunk })
}

/// The address of a function.
///
/// # Safety
/// `T` must be the function pointer type that the C header declares for `name`, and the library must
/// stay loaded as long as the pointer is used.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: as the caller promises.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    Ok(*symbol.with_context(|| format!("the C library lacks {name}"))?)
}

impl Oracle {
    /// The reference encoder of a type, without importance; `None` where ggml has none.
    pub fn encoder(&self, ty: &'static TypeInfo) -> Option<Encoder> {
        let name = match ty.id {
            TypeId::F16 => "ggml_fp32_to_fp16_row".to_owned(),
            TypeId::BF16 => "ggml_fp32_to_bf16_row_ref".to_owned(),
            _ => format!("quantize_row_{}_ref", ty.name),
        };
        // SAFETY: all of these are `void (const float *, T *, int64_t)`, ggml.h and ggml-quants.h. The
        // oracle is a static, the libraries are never closed.
        let f: QuantizeRow = unsafe { symbol(&self.base, &name) }.ok()?;
        Some(Encoder { f, ty })
    }

    /// The decoder of a type; `None` where ggml has none.
    pub fn decoder(&self, ty: &'static TypeInfo) -> Option<Decoder> {
        let name = match ty.id {
            TypeId::F16 => "ggml_fp16_to_fp32_row".to_owned(),
            TypeId::BF16 => "ggml_bf16_to_fp32_row".to_owned(),
            _ => format!("dequantize_row_{}", ty.name),
        };
        // SAFETY: all of these are `void (const T *, float *, int64_t)`, ggml.h and ggml-quants.h. The
        // oracle is a static, the libraries are never closed.
        let f: DequantizeRow = unsafe { symbol(&self.base, &name) }.ok()?;
        Some(Decoder { f, ty })
    }

    /// The scalar dot product of a type with its activation type; `None` where [`DOTS`] has none.
    pub fn dot(&self, ty: &'static TypeInfo) -> Option<Dot> {
        let &(_, name, rounding) = DOTS.iter().find(|(id, ..)| *id == ty.id)?;
        let act = ty.act?.info()?;
        // SAFETY: `void (int n, float * s, size_t bs, const void * x, size_t bx, const void * y,
        // size_t by, int nrc)`, quants.h of ggml-cpu. The oracle is a static, the libraries are never closed.
        let f: VecDot = unsafe { symbol(&self.cpu, name) }.ok()?;
        Some(Dot { f, ty, act, rounding })
    }

    /// Rows of `columns` floats to a type, with one importance per column or none: what llama-quantize
    /// calls. Not for activation types.
    pub fn quantize(&self, ty: &TypeInfo, x: &[f32], columns: usize, importance: Option<&[f32]>, out: &mut [u8]) {
        assert!(columns > 0 && x.len().is_multiple_of(columns));
        assert_eq!(out.len() as u64, ty.row_bytes(x.len() as u64).unwrap());
        assert!(importance.is_none_or(|i| i.len() == columns));
        assert!(columns.is_multiple_of(ty.block));
        let rows = (x.len() / columns) as i64;
        let importance = importance.map_or(std::ptr::null(), <[f32]>::as_ptr);
        // SAFETY: `x` holds rows * columns floats and `out` room for exactly as many encoded weights
        // (asserted); the importance is null or one float per column.
        let written = unsafe {
            (self.quantize_chunk)(ty.id.0, x.as_ptr(), out.as_mut_ptr(), 0, rows, columns as i64, importance)
        };
        assert_eq!(written, out.len(), "{}", ty.name);
    }
}

/// C structs of blocks are aligned to 4 at most; buffers of the allocator are aligned to more.
fn assert_aligned(p: *const u8) {
    assert!((p as usize).is_multiple_of(4), "buffers must be aligned to 4");
}

impl Encoder {
    /// Encodes `x`, which is whole blocks, into `out`.
    pub fn run(&self, x: &[f32], out: &mut [u8]) {
        assert_eq!(Some(out.len() as u64), self.ty.row_bytes(x.len() as u64), "{}", self.ty.name);
        assert_aligned(out.as_ptr());
        // SAFETY: `out` has room for exactly the blocks of `x` (asserted) and is aligned.
        unsafe { (self.f)(x.as_ptr(), out.as_mut_ptr(), x.len() as i64) };
    }
}

impl Decoder {
    /// Decodes whole blocks.
    pub fn run(&self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(Some(bytes.len() as u64), self.ty.row_bytes(out.len() as u64), "{}", self.ty.name);
        assert_aligned(bytes.as_ptr());
        // SAFETY: `bytes` are exactly the blocks of `out.len()` weights (asserted) and aligned.
        unsafe { (self.f)(bytes.as_ptr(), out.as_mut_ptr(), out.len() as i64) };
    }
}

impl Dot {
    /// Products of all rows of `n` weights with all rows of `n` activations: `out[r * tokens + t]`.
    pub fn run(&self, w: &[u8], acts: &[u8], n: usize, out: &mut [f32]) {
        let row = |t: &TypeInfo| t.row_bytes(n as u64).unwrap() as usize;
        let (w_row, act_row) = (row(self.ty), row(self.act));
        assert!(w.len().is_multiple_of(w_row) && acts.len().is_multiple_of(act_row));
        assert_eq!(out.len(), (w.len() / w_row) * (acts.len() / act_row));
        let pairs = w.chunks(w_row).flat_map(|w| acts.chunks(act_row).map(move |a| (w, a)));
        for (out, (w, a)) in out.iter_mut().zip(pairs) {
            // Rows of 18-byte blocks start at even addresses only; their C struct needs no more.
            assert!((w.as_ptr() as usize).is_multiple_of(2));
            assert!((a.as_ptr() as usize).is_multiple_of(2));
            // SAFETY: `w` and `a` are whole rows of `n` (asserted), the result is one float; strides
            // of 0 and a row count of 1 are the plain form.
            unsafe { (self.f)(n as i32, out, 0, w.as_ptr(), 0, a.as_ptr(), 0, 1) };
        }
    }
}
