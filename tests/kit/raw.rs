//! Builds GGUF files byte by byte, independently of the library's writer, so that any field can lie.

use trine_formats::gguf::{Gguf, GgufError, Limits};

/// Bytes under construction.
#[derive(Clone, Default)]
pub struct File(pub Vec<u8>);

impl File {
    /// Magic, version 3 and the two counts.
    pub fn new(n_tensors: u64, n_kv: u64) -> File {
        File(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_kv)
    }

    /// These bytes.
    pub fn raw(mut self, bytes: &[u8]) -> File {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A number of 4 bytes.
    pub fn u32(self, v: u32) -> File {
        self.raw(&v.to_le_bytes())
    }

    /// A number of 8 bytes.
    pub fn u64(self, v: u64) -> File {
        self.raw(&v.to_le_bytes())
    }

    /// A length and as many bytes.
    pub fn str(self, s: impl AsRef<[u8]>) -> File {
        self.u64(s.as_ref().len() as u64).raw(s.as_ref())
    }

    /// Key and value type; the value follows.
    pub fn key(self, key: impl AsRef<[u8]>, ty: u32) -> File {
        self.str(key).u32(ty)
    }

    /// A whole `u32` pair.
    pub fn kv_u32(self, key: &str, v: u32) -> File {
        self.key(key, 4).u32(v)
    }

    /// A row of the tensor table.
    pub fn tensor(self, name: impl AsRef<[u8]>, shape: &[u64], ty: u32, offset: u64) -> File {
        let mut f = self.str(name).u32(shape.len() as u32);
        for &d in shape {
            f = f.u64(d);
        }
        f.u32(ty).u64(offset)
    }

    /// Zeros up to a multiple of `alignment`.
    pub fn pad(mut self, alignment: usize) -> File {
        let len = self.0.len().next_multiple_of(alignment);
        self.0.resize(len, 0);
        self
    }

    /// `n` bytes of data.
    pub fn data(self, n: usize) -> File {
        let bytes: Vec<u8> = (0..n).map(|i| (i * 7 + 1) as u8).collect();
        self.raw(&bytes)
    }

    /// The number of bytes so far.
    pub fn size(&self) -> u64 {
        self.0.len() as u64
    }

    /// Reads the header.
    pub fn parse(&self) -> Result<Gguf, GgufError> {
        Gguf::parse(&self.0, &Limits::default())
    }
}

/// A small valid file with every value type, every array type and three tensors. It ends with its last
/// tensor's last byte, so that every shorter file lacks something.
pub fn sample() -> File {
    let mut f = File::new(3, 26).key("a.u8", 0).raw(&[7]).key("a.i8", 1).raw(&[0xff]);
    f = f.key("a.u16", 2).raw(&[1, 2]).key("a.i16", 3).raw(&[1, 2]).kv_u32("a.u32", 9);
    f = f.key("a.i32", 5).u32(1).key("a.f32", 6).u32(0x7fc0_1234).key("a.bool", 7).raw(&[1]);
    f = f.key("a.str", 8).str("text").key("a.bytes", 8).str([0xff, 0, 0xc0]);
    f = f.key("a.u64", 10).u64(u64::MAX).key("a.i64", 11).u64(u64::MAX).key("a.f64", 12).u64(1);
    for (ty, size) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (10, 8), (11, 8), (12, 8)] {
        f = f.key(format!("b.{ty}"), 9).u32(ty).u64(3).data(3 * size);
    }
    f = f.key("b.bool", 9).u32(7).u64(2).raw(&[1, 0]).key("b.empty", 9).u32(8).u64(0);
    f = f.key("b.str", 9).u32(8).u64(3).str("").str("one").str([0xfe]);
    f = f.tensor("one.weight", &[8], 0, 0).tensor("two", &[4, 2], 1000, 32).tensor("three", &[256, 2], 35, 64);
    f.pad(32).data(32).data(32).data(132)
}

/// A file with these rows in its tensor table and `data` bytes behind it.
pub fn tensors(rows: &[(&str, &[u64], u32, u64)], data: usize) -> File {
    let mut f = File::new(rows.len() as u64, 0);
    for &(name, shape, ty, offset) in rows {
        f = f.tensor(name, shape, ty, offset);
    }
    f.pad(32).data(data)
}
