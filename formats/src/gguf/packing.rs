//! Finds how the data of an I2_S, TL1 or TL2 tensor is laid out, which its type alone does not say.
//!
//! I2_S: the usual layout, unless the other is chosen. TL1 and TL2 need tile sizes, looked for in this order: the
//! caller's ([`PackingOptions`]), the keys below that trine writes ([`set_tiles`]), the published kernels for the shape
//! ([`tl1::published`], [`tl2::published`]). Without any, reading fails by the tensor's name.
//!
//! ```text
//! trine.tl1.tiles, trine.tl2.tiles    array of u32: rows, columns, BM, BK, bm of one matrix shape after another
//! ```

use std::fmt;
use std::str::FromStr;

use super::{Array, ErrorKind, GgufError, Metadata, TensorInfo, TensorView, Value};
use crate::types::i2_s::Interleave;
use crate::types::ternary::{Packing, TernaryData, TernaryError, Tiles};
use crate::types::{TypeId, tl1, tl2};

/// Properties of bitnet.cpp's tensors that only the user can know. The default is right for published files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackingOptions {
    /// Layout of I2_S.
    pub interleave: Interleave,
    /// Tiles of TL1 and TL2 by shape; the first that matches counts.
    pub tiles: Vec<ShapeTiles>,
}

/// The tile sizes of all matrices of one shape. As text `MxK=BM,BK,bm`, where `,32` can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShapeTiles {
    /// Rows of the matrix, `M`.
    pub rows: u64,
    /// Columns of the matrix, `K`.
    pub columns: u64,
    /// Its tiles.
    pub tiles: Tiles,
}

impl FromStr for ShapeTiles {
    type Err = String;

    fn from_str(s: &str) -> Result<ShapeTiles, String> {
        let parse = || {
            let (shape, tiles) = s.split_once('=')?;
            let (rows, columns) = shape.split_once('x')?;
            let tiles: Vec<u32> = tiles.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
            let tiles = match tiles[..] {
                [bm, bk] => Tiles::new(bm, bk, 32),
                [bm, bk, micro] => Tiles::new(bm, bk, micro),
                _ => return None,
            };
            Some(ShapeTiles { rows: rows.trim().parse().ok()?, columns: columns.trim().parse().ok()?, tiles })
        };
        parse().ok_or_else(|| {
            format!("'{s}' is not ROWSxCOLUMNS=BM,BK,bm, such as 1536x4096=256,128,32 (bm 32 when left out)")
        })
    }
}

impl fmt::Display for ShapeTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.tiles;
        write!(f, "{}x{}={},{},{}", self.rows, self.columns, t.rows, t.columns, t.micro)
    }
}

/// The key that holds the tiles of a type.
fn tiles_key(ty: TypeId) -> Option<&'static str> {
    match ty {
        TypeId::TL1 => Some("trine.tl1.tiles"),
        TypeId::TL2 => Some("trine.tl2.tiles"),
        _ => None,
    }
}

/// Records the tiles of all shapes that a file has in TL1 or TL2 (`ty`), so that trine can read it back.
///
/// # Errors
/// Another type, a shape beyond 32 bits.
pub fn set_tiles(meta: &mut Metadata, ty: TypeId, tiles: &[ShapeTiles]) -> Result<(), GgufError> {
    let key = tiles_key(ty).ok_or_else(|| GgufError::new("tiles", ErrorKind::NotPerTensor(ty)))?;
    let mut list = Vec::with_capacity(5 * tiles.len());
    for t in tiles {
        let (Ok(rows), Ok(columns)) = (u32::try_from(t.rows), u32::try_from(t.columns)) else {
            return Err(GgufError::key(key, ErrorKind::TileList));
        };
        list.extend([rows, columns, t.tiles.rows, t.tiles.columns, t.tiles.micro]);
    }
    meta.set(key, Value::Array(Array::U32(list)));
    Ok(())
}

fn recorded(meta: &Metadata, ty: TypeId) -> Result<Vec<ShapeTiles>, GgufError> {
    let Some(key) = tiles_key(ty) else {
        return Ok(Vec::new());
    };
    let Some(list) = meta.get_u32s(key)? else {
        return Ok(Vec::new());
    };
    let (entries, rest) = list.as_chunks::<5>();
    if !rest.is_empty() || entries.iter().any(|e| e.contains(&0)) {
        return Err(GgufError::key(key, ErrorKind::TileList));
    }
    let entries = entries.iter().map(|&[rows, columns, bm, bk, micro]| ShapeTiles {
        rows: rows.into(),
        columns: columns.into(),
        tiles: Tiles::new(bm, bk, micro),
    });
    Ok(entries.collect())
}

/// The layout of an I2_S, TL1 or TL2 tensor.
///
/// # Errors
/// Any other type; TL1 and TL2 of a shape whose tiles nobody knows; a damaged tile list. Tiles that do
/// not fit the matrix are found by [`TensorView::ternary`].
pub fn packing(info: &TensorInfo, meta: &Metadata, options: &PackingOptions) -> Result<Packing, GgufError> {
    type Published = fn(u64, u64) -> Option<Tiles>;
    let (make, published): (fn(Tiles) -> Packing, Published) = match info.ty {
        TypeId::I2_S => return Ok(Packing::I2S(options.interleave)),
        TypeId::TL1 => (Packing::Tl1, tl1::published),
        TypeId::TL2 => (Packing::Tl2, tl2::published),
        other => {
            return Err(GgufError::tensor(&info.name, ErrorKind::NotPerTensor(other)));
        }
    };
    let (columns, rows) = (info.columns(), info.rows());
    let of_shape = |list: &[ShapeTiles]| {
        let mut list = list.iter();
        let found = list.find(|t| (t.rows, t.columns) == (rows, columns))?;
        Some(found.tiles)
    };
    let tiles = match of_shape(&options.tiles) {
        Some(tiles) => Some(tiles),
        None => of_shape(&recorded(meta, info.ty)?).or_else(|| published(columns, rows)),
    };
    let ty = info.ty;
    tiles.map(make).ok_or_else(|| GgufError::tensor(&info.name, ErrorKind::NoTiles { ty, rows, columns }))
}

impl TensorView {
    /// The data of an I2_S, TL1 or TL2 tensor as a matrix of `info.rows()` x `info.columns()` codes.
    ///
    /// # Errors
    /// Those of [`packing`]; a shape that the layout cannot hold. All name the tensor.
    pub fn ternary(&self, meta: &Metadata, options: &PackingOptions) -> Result<TernaryData<'_>, GgufError> {
        let packing = packing(&self.info, meta, options)?;
        let size = |n| usize::try_from(n).unwrap_or(usize::MAX);
        let (columns, rows) = (size(self.info.columns()), size(self.info.rows()));
        TernaryData::new(packing, columns, rows, &self.data).map_err(|e| self.ternary_error(e))
    }

    /// All codes of an I2_S, TL1 or TL2 tensor, row after row, and its scale.
    ///
    /// # Errors
    /// Those of [`TensorView::ternary`]; a code that stands for no weight.
    pub fn ternary_codes(&self, meta: &Metadata, options: &PackingOptions) -> Result<(Vec<i8>, f32), GgufError> {
        let data = self.ternary(meta, options)?;
        let codes = data.codes().map_err(|e| self.ternary_error(e))?;
        Ok((codes, data.scale()))
    }

    /// Names this tensor in an error of its [`TernaryData`].
    pub fn ternary_error(&self, e: TernaryError) -> GgufError {
        GgufError::tensor(&self.info.name, e)
    }
}
