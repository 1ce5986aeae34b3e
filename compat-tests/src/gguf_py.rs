//! gguf-py, llama.cpp's own Python package, as an independent reader and writer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use serde_json::{Value as Json, json};
use trine_formats::gguf::{Array, Gguf, Limits, Value};

use crate::fetch::{self, Wheel};
use crate::{Unavailable, programs, root};

const WHEEL: Wheel = Wheel {
    requirement: "gguf==0.19.0",
    file: "gguf-0.19.0-py3-none-any.whl",
    sha256: "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd",
};
/// Packages that the reader and writer import. numpy's wheels differ between Python versions, so that it is not pinned
/// closer: it only holds the arrays.
const NEEDS: [&str; 5] = ["numpy>=1.26,<3", "pyyaml>=6,<7", "requests>=2.31,<3", "tqdm>=4.66,<5", "urllib3<3"];

/// gguf-py in a directory of its own.
pub struct GgufPy {
    packages: PathBuf,
}

/// gguf-py, installed once.
///
/// # Errors
/// It cannot be downloaded.
pub fn get() -> Result<&'static GgufPy, &'static Unavailable> {
    static INSTALLED: OnceLock<Result<GgufPy, Unavailable>> = OnceLock::new();
    let install = || {
        let packages = fetch::once("gguf-py-0.19.0", |dir| {
            WHEEL.unpack(dir, &[])?;
            let mut pip = fetch::python();
            pip.args(["-m", "pip", "install", "--quiet"])
                .args(["--disable-pip-version-check", "--no-warn-script-location"])
                .args(["--only-binary=:all:", "--target"])
                .arg(dir)
                .args(NEEDS);
            fetch::run(&mut pip).context("cannot install what gguf-py needs")
        })?;
        Ok(GgufPy { packages })
    };
    INSTALLED.get_or_init(install).as_ref()
}

impl GgufPy {
    fn script(&self) -> Command {
        let mut command = fetch::python();
        command
            .arg(root().join("compat-tests/python/gguf_listing.py"))
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// gguf-py's listing of each file, in the form of [`listing`].
    ///
    /// # Errors
    /// gguf-py refuses a file.
    pub fn list(&self, paths: &[PathBuf]) -> Result<Vec<Json>> {
        let output = programs::succeed(self.script().arg("list").args(paths))?;
        let text = String::from_utf8(output.stdout)?;
        let listings: Vec<Json> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(listings.len() == paths.len(), "{text}");
        Ok(listings)
    }

    /// Writes gguf-py's test file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        programs::succeed(self.script().arg("write").arg(path))?;
        Ok(())
    }
}

/// trine's listing of a file: keys with types and values, tensors with places, hashes and decoded hashes.
///
/// # Errors
/// The file cannot be read.
pub fn listing(path: &Path) -> Result<Json> {
    let bytes = fs::read(path)?;
    let gguf = Gguf::parse(&bytes, &Limits::default())?;
    let fields: Vec<Json> = gguf
        .meta
        .iter()
        .map(|(key, value)| {
            let (kinds, value) = match value {
                Value::Array(a) => array(a),
                scalar => {
                    let (kind, value) = self::scalar(scalar);
                    (vec![kind], value)
                }
            };
            json!([key, kinds, value])
        })
        .collect();
    let mut tensors = Vec::new();
    for t in &gguf.tensors {
        let start = usize::try_from(gguf.data_offset + t.offset)?;
        let data = &bytes[start..start + usize::try_from(t.bytes)?];
        tensors.push(json!({
            "name": t.name,
            "shape": t.shape,
            "type": t.ty.file_id(),
            "offset": t.offset,
            "bytes": t.bytes,
            "sha256": fetch::sha256(data),
            "floats": t.ty.info().and_then(|info| info.decode).map(|decode| {
                let mut x = vec![0.0; t.elements() as usize];
                decode(data, &mut x);
                let quiet = x.iter().map(|v| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() });
                fetch::sha256(&quiet.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
            }),
        }));
    }
    Ok(json!({
        "alignment": gguf.alignment,
        "data_offset": gguf.data_offset,
        "fields": fields,
        "tensors": tensors,
    }))
}

/// GGUF's id of the type, and the value.
fn scalar(value: &Value) -> (u32, Json) {
    match value {
        Value::U8(v) => (0, json!(v)),
        Value::I8(v) => (1, json!(v)),
        Value::U16(v) => (2, json!(v)),
        Value::I16(v) => (3, json!(v)),
        Value::U32(v) => (4, json!(v)),
        Value::I32(v) => (5, json!(v)),
        Value::F32(v) => (6, json!(v.to_bits())),
        Value::Bool(v) => (7, json!(u8::from(*v))),
        Value::Str(v) => (8, json!(fetch::hex(&v.0))),
        Value::Array(a) => (9, json!(a.len())),
        Value::U64(v) => (10, json!(v)),
        Value::I64(v) => (11, json!(v)),
        Value::F64(v) => (12, json!(v.to_bits())),
    }
}

/// gguf-py does not keep the element type of an empty array.
fn array(array: &Array) -> (Vec<u32>, Json) {
    let values: Vec<(u32, Json)> = (0..array.len()).filter_map(|i| array.value(i)).map(|v| scalar(&v)).collect();
    let mut kinds = vec![9];
    kinds.extend(values.first().map(|(kind, _)| *kind));
    (kinds, values.into_iter().map(|(_, v)| v).collect())
}
