//! Reads arrays from `.npz` files: a zip archive of `.npy` entries, stored or deflated.

use std::collections::HashMap;
use std::io::Read;

/// The arrays of a file.
pub struct Npz {
    arrays: HashMap<String, Array>,
}

/// One array; those of the other order than C's can be listed and not read.
pub struct Array {
    dtype: String,
    in_c_order: bool,
    /// Extents, the slowest first.
    pub shape: Vec<usize>,
    data: Vec<u8>,
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()).into()
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

impl Npz {
    /// Reads a file by its path in `testdata`.
    #[track_caller]
    pub fn open(path: &str) -> Npz {
        let zip = super::read(&super::testdata(path));
        let end = zip.windows(4).rposition(|w| w == b"PK\x05\x06").unwrap();
        let (entries, mut at) = (u16_at(&zip, end + 10), u32_at(&zip, end + 16));
        let mut arrays = HashMap::new();
        for _ in 0..entries {
            let (method, packed) = (u16_at(&zip, at + 10), u32_at(&zip, at + 20));
            let [name, extra, comment] = [28, 30, 32].map(|field| u16_at(&zip, at + field));
            let local = u32_at(&zip, at + 42);
            let key = String::from_utf8(zip[at + 46..at + 46 + name].to_vec()).unwrap();
            let start = local + 30 + u16_at(&zip, local + 26) + u16_at(&zip, local + 28);
            let packed = &zip[start..start + packed];
            let mut npy = Vec::new();
            match method {
                0 => npy.extend_from_slice(packed),
                8 => {
                    let mut inflate = flate2::read::DeflateDecoder::new(packed);
                    inflate.read_to_end(&mut npy).unwrap();
                }
                other => panic!("{key}: zip method {other}"),
            }
            arrays.insert(key.trim_end_matches(".npy").to_owned(), Array::parse(&npy));
            at += 46 + name + extra + comment;
        }
        Npz { arrays }
    }

    /// The array of this name.
    pub fn array(&self, name: &str) -> &Array {
        &self.arrays[name]
    }

    /// An array of single precision.
    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.array(name).numbers("<f4", f32::from_le_bytes)
    }

    /// The bits of an array of half precision.
    pub fn f16_bits(&self, name: &str) -> Vec<u16> {
        self.array(name).numbers("<f2", u16::from_le_bytes)
    }

    /// An array of double precision.
    pub fn f64(&self, name: &str) -> Vec<f64> {
        self.array(name).numbers("<f8", f64::from_le_bytes)
    }

    /// An array of 32-bit integers.
    pub fn i32(&self, name: &str) -> Vec<i32> {
        self.array(name).numbers("<i4", i32::from_le_bytes)
    }

    /// An array of 16-bit integers.
    pub fn i16(&self, name: &str) -> Vec<i16> {
        self.array(name).numbers("<i2", i16::from_le_bytes)
    }

    /// An array of 32-bit integers without sign.
    pub fn u32(&self, name: &str) -> Vec<u32> {
        self.array(name).numbers("<u4", u32::from_le_bytes)
    }

    /// An array of 8-bit integers.
    pub fn i8(&self, name: &str) -> Vec<i8> {
        self.array(name).numbers("|i1", i8::from_le_bytes)
    }

    /// An array of bytes.
    pub fn u8(&self, name: &str) -> Vec<u8> {
        self.array(name).numbers("|u1", u8::from_le_bytes)
    }
}

impl Array {
    fn parse(npy: &[u8]) -> Array {
        assert_eq!(&npy[..8], b"\x93NUMPY\x01\0");
        let data = 10 + u16_at(npy, 8);
        let header = std::str::from_utf8(&npy[10..data]).unwrap();
        let field = |start: &str, end: char| {
            let rest = &header[header.find(start).unwrap() + start.len()..];
            &rest[..rest.find(end).unwrap()]
        };
        let shape = field("'shape': (", ')').split(',').map(str::trim);
        Array {
            dtype: field("'descr': '", '\'').to_owned(),
            in_c_order: header.contains("'fortran_order': False"),
            shape: shape.filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect(),
            data: npy[data..].to_vec(),
        }
    }

    fn numbers<const N: usize, T>(&self, dtype: &str, of: fn([u8; N]) -> T) -> Vec<T> {
        assert_eq!(self.dtype, dtype);
        assert!(self.in_c_order, "an array in Fortran's order");
        let (numbers, []) = self.data.as_chunks::<N>() else { panic!("half a number") };
        assert_eq!(numbers.len(), self.shape.iter().product::<usize>());
        numbers.iter().map(|&n| of(n)).collect()
    }
}
