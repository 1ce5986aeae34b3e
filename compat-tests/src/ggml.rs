//! Matrix products through ggml's CPU backend, for benchmarks: the way llama.cpp asks for them, with
//! the library's own choice between plain kernels, tiles and repacked weights.
//!
//! The library is the one of [`oracle`], or that in the directory `TRINE_GGML_DIR`: a
//! build for this very processor is faster than the wheel's, which stops at AVX2.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use trine_formats::types::TypeInfo;

use crate::Unavailable;
use crate::oracle;

/// Any of ggml's structs, none of which is looked into.
type Opaque = *mut c_void;

/// `struct ggml_init_params`.
#[repr(C)]
struct InitParams {
    mem_size: usize,
    mem_buffer: Opaque,
    no_alloc: bool,
}

/// `ggml_log_callback`: level, text, what `ggml_log_set` was given.
type Log = extern "C" fn(c_int, *const c_char, Opaque);

/// Passes on errors, and not that a tensor was repacked.
extern "C" fn log(level: c_int, text: *const c_char, _: Opaque) {
    const ERROR: c_int = 4;
    if level == ERROR && !text.is_null() {
        // SAFETY: ggml hands over a C string.
        eprint!("{}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

/// Declares the functions that are used, with the types that ggml.h, ggml-backend.h and ggml-cpu.h give
/// them, and finds them in the libraries.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        #[derive(Clone, Copy)]
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)* }

        impl Functions {
            /// # Safety
            /// The libraries must be ggml's and stay loaded.
            unsafe fn find(libraries: &[Library]) -> Result<Functions> {
                Ok(Functions { $($name: {
                    let name = stringify!($name);
                    // SAFETY: the type is that of the C header.
                    let mut found = libraries.iter().filter_map(|l| unsafe {
                        l.get::<unsafe extern "C" fn($($arg),*) $(-> $ret)?>(name.as_bytes()).ok()
                    });
                    *found.next().with_context(|| format!("the C library lacks {name}"))?
                },)* })
            }
        }
    };
}

functions! {
    ggml_log_set: fn(Log, Opaque);
    ggml_init: fn(InitParams) -> Opaque;
    ggml_free: fn(Opaque);
    ggml_tensor_overhead: fn() -> usize;
    ggml_graph_overhead: fn() -> usize;
    ggml_new_tensor_2d: fn(Opaque, c_int, i64, i64) -> Opaque;
    ggml_mul_mat: fn(Opaque, Opaque, Opaque) -> Opaque;
    ggml_new_graph: fn(Opaque) -> Opaque;
    ggml_build_forward_expand: fn(Opaque, Opaque);
    ggml_backend_cpu_init: fn() -> Opaque;
    ggml_backend_cpu_set_n_threads: fn(Opaque, c_int);
    ggml_backend_cpu_reg: fn() -> Opaque;
    ggml_backend_cpu_buffer_type: fn() -> Opaque;
    ggml_backend_reg_dev_get: fn(Opaque, usize) -> Opaque;
    ggml_backend_reg_get_proc_address: fn(Opaque, *const c_char) -> Opaque;
    ggml_backend_buft_name: fn(Opaque) -> *const c_char;
    ggml_backend_dev_supports_op: fn(Opaque, Opaque) -> bool;
    ggml_backend_alloc_ctx_tensors_from_buft: fn(Opaque, Opaque) -> Opaque;
    ggml_backend_buffer_free: fn(Opaque);
    ggml_backend_tensor_set: fn(Opaque, *const c_void, usize, usize);
    ggml_backend_tensor_get: fn(Opaque, *mut c_void, usize, usize);
    ggml_backend_graph_compute: fn(Opaque, Opaque) -> c_int;
}

/// ggml's CPU backend.
pub struct Ggml {
    f: Functions,
    backend: Opaque,
    device: Opaque,
    plain: Opaque,
    repack: Option<Opaque>,
    dir: PathBuf,
}

impl Ggml {
    /// Loads the library and starts its backend.
    ///
    /// # Errors
    /// The machine cannot run it, it cannot be had, or it is not ggml.
    pub fn open() -> Result<Ggml, Unavailable> {
        let dir = match std::env::var_os("TRINE_GGML_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => oracle::library_dir()?,
        };
        let place = || format!("ggml in {}", dir.display());
        Ok(Ggml::load(&dir).with_context(place)?)
    }

    fn load(dir: &Path) -> Result<Ggml> {
        let open = |name: &str| {
            let path = dir.join(name);
            // SAFETY: ggml's initializers only set up tables and timers. RTLD_GLOBAL lets the second
            // library find the first one's symbols.
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
                .with_context(|| format!("cannot load {}", path.display()))
        };
        let libraries = [open("libggml-base.so.0")?, open("libggml-cpu.so.0")?];
        // SAFETY: these are ggml's libraries, and they are never closed (see below).
        let f = unsafe { Functions::find(&libraries) }?;
        // Their threads may outlive everything else.
        std::mem::forget(libraries);
        // SAFETY: the functions take no arguments, or a function that is always there.
        let (backend, reg, plain) = unsafe {
            (f.ggml_log_set)(log, ptr::null_mut());
            ((f.ggml_backend_cpu_init)(), (f.ggml_backend_cpu_reg)(), (f.ggml_backend_cpu_buffer_type)())
        };
        if backend.is_null() || reg.is_null() {
            bail!("its CPU backend does not start");
        }
        // SAFETY: the CPU backend has one device, number 0.
        let device = unsafe { (f.ggml_backend_reg_dev_get)(reg, 0) };
        let mut ggml = Ggml { f, backend, device, plain, repack: None, dir: dir.to_owned() };
        let mut extra = ggml.extra_buffers(reg).into_iter();
        ggml.repack = extra.find(|(name, _)| name.contains("REPACK")).map(|b| b.1);
        Ok(ggml)
    }

    /// The buffer types that change how weights lie, with their names.
    fn extra_buffers(&self, reg: Opaque) -> Vec<(String, Opaque)> {
        type Extra = unsafe extern "C" fn(Opaque) -> *const Opaque;
        let name = c"ggml_backend_dev_get_extra_bufts";
        // SAFETY: a registry and a C string.
        let found = unsafe { (self.f.ggml_backend_reg_get_proc_address)(reg, name.as_ptr()) };
        let mut list: *const Opaque = ptr::null();
        if let Some(found) = NonNull::new(found) {
            // SAFETY: ggml-backend.h gives the function of this name this type.
            let extra: Extra = unsafe { std::mem::transmute(found) };
            // SAFETY: the device is the backend's.
            list = unsafe { extra(self.device) };
        }
        let mut types = Vec::new();
        while !list.is_null() {
            // SAFETY: a list that ends with a null pointer.
            let buffer = unsafe { *list };
            if buffer.is_null() {
                break;
            }
            // SAFETY: a buffer type's name is a static C string.
            let name = unsafe { CStr::from_ptr((self.f.ggml_backend_buft_name)(buffer)) };
            types.push((name.to_string_lossy().into_owned(), buffer));
            // SAFETY: the end was not reached.
            list = unsafe { list.add(1) };
        }
        types
    }

    /// Where the library lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Threads of every product from now on.
    pub fn set_threads(&self, threads: usize) {
        // SAFETY: the backend is the CPU's and lives.
        unsafe { (self.f.ggml_backend_cpu_set_n_threads)(self.backend, threads as c_int) };
    }

    /// A product of `rows` weight rows with `tokens` activation rows of `columns` floats; `None` when the
    /// library does not repack this type or shape, or lacks the type.
    pub fn product(
        &self,
        ty: &TypeInfo,
        [columns, rows, tokens]: [usize; 3],
        weights: &[u8],
        x: &[f32],
        repacked: bool,
    ) -> Option<Product<'_>> {
        assert_eq!(Some(weights.len() as u64), ty.tensor_bytes(columns as u64, rows as u64));
        assert_eq!(x.len(), columns * tokens);
        let buffer_type = if repacked { self.repack? } else { self.plain };
        let f = &self.f;
        let context = |extra: usize| {
            // SAFETY: plain numbers; room for more tensors than are made.
            let ctx = unsafe {
                (f.ggml_init)(InitParams {
                    mem_size: 8 * (f.ggml_tensor_overhead)() + extra,
                    mem_buffer: ptr::null_mut(),
                    no_alloc: true,
                })
            };
            assert!(!ctx.is_null(), "ggml_init");
            ctx
        };
        let (columns, rows, tokens) = (columns as i64, rows as i64, tokens as i64);
        let mut product = Product {
            ggml: self,
            contexts: Vec::new(),
            buffers: Vec::new(),
            graph: ptr::null_mut(),
            y: ptr::null_mut(),
            outputs: (rows * tokens) as usize,
        };
        // SAFETY: contexts with room for these tensors; sizes that fit (asserted above); every pointer
        // comes from ggml and lives until `product` is dropped. A type id that the library lacks
        // would be out of its tables, and all of trine's are ggml's own.
        unsafe {
            let of_weights = context(0);
            product.contexts.push(of_weights);
            let w = (f.ggml_new_tensor_2d)(of_weights, ty.id.file_id() as c_int, columns, rows);
            let buffer = (f.ggml_backend_alloc_ctx_tensors_from_buft)(of_weights, buffer_type);
            if buffer.is_null() {
                return None;
            }
            product.buffers.push(buffer);
            let ctx = context((f.ggml_graph_overhead)());
            product.contexts.push(ctx);
            let x_tensor = (f.ggml_new_tensor_2d)(ctx, 0, columns, tokens);
            product.y = (f.ggml_mul_mat)(ctx, w, x_tensor);
            // Before any weight is set: repacking a type it does not know would crash.
            if !(f.ggml_backend_dev_supports_op)(self.device, product.y) {
                return None;
            }
            product.graph = (f.ggml_new_graph)(ctx);
            (f.ggml_build_forward_expand)(product.graph, product.y);
            let buffer = (f.ggml_backend_alloc_ctx_tensors_from_buft)(ctx, self.plain);
            assert!(!buffer.is_null(), "ggml has no memory");
            product.buffers.push(buffer);
            (f.ggml_backend_tensor_set)(w, weights.as_ptr().cast(), 0, weights.len());
            (f.ggml_backend_tensor_set)(x_tensor, x.as_ptr().cast(), 0, size_of_val(x));
        }
        Some(product)
    }
}

/// A product that can be computed again and again.
pub struct Product<'a> {
    ggml: &'a Ggml,
    contexts: Vec<Opaque>,
    buffers: Vec<Opaque>,
    graph: Opaque,
    y: Opaque,
    outputs: usize,
}

impl Product<'_> {
    /// Encodes the activations and multiplies.
    pub fn run(&self) {
        let f = &self.ggml.f;
        // SAFETY: backend and graph live, and all tensors of the graph have memory.
        let status = unsafe { (f.ggml_backend_graph_compute)(self.ggml.backend, self.graph) };
        assert_eq!(status, 0, "ggml_backend_graph_compute");
    }

    /// The outputs of the last run, `[tokens][rows]`.
    pub fn outputs(&self) -> Vec<f32> {
        let mut out = vec![0f32; self.outputs];
        let bytes = size_of_val(&out[..]);
        // SAFETY: the tensor has exactly this many floats.
        unsafe {
            (self.ggml.f.ggml_backend_tensor_get)(self.y, out.as_mut_ptr().cast(), 0, bytes);
        }
        out
    }
}

impl Drop for Product<'_> {
    fn drop(&mut self) {
        let f = &self.ggml.f;
        for &buffer in &self.buffers {
            // SAFETY: made by this product, used by nobody else.
            unsafe { (f.ggml_backend_buffer_free)(buffer) };
        }
        for &ctx in &self.contexts {
            // SAFETY: `ggml_init` gave the context to this product, which ends here; the buffers of its tensors are
            // freed.
            unsafe { (f.ggml_free)(ctx) };
        }
    }
}
