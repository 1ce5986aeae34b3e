//! Layouts of I2_S, TL1 and TL2 in the output, and the keys that record them.

use trine_formats::gguf::write::Layout;
use trine_formats::gguf::{
    Dialect, ErrorKind, GgufError, KEY_DIALECT, Metadata, PackingOptions, ShapeTiles, Value, packing, set_tiles,
};
use trine_formats::types::ternary::{Packing, TernaryError, Tiles};
use trine_formats::types::{TypeId, tl1, tl2};

use super::types::is_packed;
use crate::quant::recipe::Recipe;
use crate::quant::row::{OutShard, Row};

/// Most rows of a tile of our choice: as many as the published kernels mostly have.
const MOST_ROWS: u64 = 256;
/// Rows of a micro-tile of our choice: all that TL2 knows, and one of the two of TL1.
const MICRO: u32 = 32;
/// Widths of a tile, the best first: those of published kernels, then what else bitnet.cpp's 16-bit sums
/// hold.
const TL1_COLUMNS: [u32; 6] = [128, 64, 256, 32, 16, 8];
const TL2_COLUMNS: [u32; 10] = [96, 192, 240, 216, 168, 144, 120, 72, 48, 24];

/// The layout of `row` in type `ty`: what the user asks for, that of the input, the published kernels'
/// for the shape, or the first that fits.
///
/// # Errors
/// Why there is none, with the shapes that are possible.
pub fn choose(row: &Row, ty: TypeId, source: Option<Packing>, recipe: &Recipe) -> Result<Packing, String> {
    if row.shape.len() > 2 {
        return Err(format!("{ty} holds matrices only, not stacks of them"));
    }
    let (columns, rows) = (row.columns(), row.shape.get(1).copied().unwrap_or(1));
    let check = |packing: Packing| {
        let size = |n| usize::try_from(n).unwrap_or(usize::MAX);
        packing.check(size(columns), size(rows)).map(|()| packing)
    };
    let options = &recipe.output_packing;
    let make = match ty {
        TypeId::TL1 => Packing::Tl1,
        TypeId::TL2 => Packing::Tl2,
        _ => {
            let packing = check(Packing::I2S(options.interleave));
            return packing.map_err(|e| reason(ty, columns, rows, &e));
        }
    };
    let mut asked = options.tiles.iter();
    if let Some(t) = asked.find(|t| (t.rows, t.columns) == (rows, columns)) {
        return check(make(t.tiles)).map_err(|e| e.to_string());
    }
    if let Some(source) = source.filter(|s| s.type_id() == ty) {
        return Ok(source);
    }
    let published = match ty {
        TypeId::TL1 => tl1::published(columns, rows),
        _ => tl2::published(columns, rows),
    };
    let mut candidates: Vec<Tiles> = published.into_iter().collect();
    let widths: &[u32] = match ty {
        TypeId::TL1 => &TL1_COLUMNS,
        _ => &TL2_COLUMNS,
    };
    let heights = (1..=MOST_ROWS / u64::from(MICRO)).rev();
    let height = heights.map(|n| n * u64::from(MICRO)).find(|&bm| rows.is_multiple_of(bm)).unwrap_or(u64::from(MICRO));
    candidates.extend(widths.iter().map(|&bk| Tiles::new(height as u32, bk, MICRO)));
    let mut refusal = None;
    for tiles in candidates {
        match check(make(tiles)) {
            Ok(packing) => return Ok(packing),
            Err(e) => refusal = refusal.or(Some(e)),
        }
    }
    Err(refusal.map_or(String::new(), |e| reason(ty, columns, rows, &e)))
}

/// The shapes that are possible.
fn reason(ty: TypeId, columns: u64, rows: u64, e: &TernaryError) -> String {
    let possible = match ty {
        TypeId::TL1 => "rows in multiples of 32 and columns in multiples of 16",
        TypeId::TL2 => {
            "rows in multiples of 32 and at least 256 columns in multiples of 8 that tiles of up to 240 fill but for a multiple of 32"
        }
        _ => return e.to_string(),
    };
    format!("{rows} rows of {columns} columns, {ty} takes {possible}")
}

/// Writes the tiles that nobody could know into the keys of the output, and removes keys about tiles and
/// type numbers that the output has no more. Returns remarks.
///
/// # Errors
/// The file would have a type number that means different types to different programs, without a key that says which.
pub fn record(
    rows: &[Row],
    shards: &mut [OutShard],
    meta: &Metadata,
    input: &PackingOptions,
) -> Result<Vec<String>, GgufError> {
    let mut notes = Vec::new();
    for ty in [TypeId::TL1, TypeId::TL2] {
        let mut list: Vec<ShapeTiles> = Vec::new();
        for row in rows.iter().filter(|r| r.to == ty) {
            let own = || packing(&row.info(), meta, input).ok();
            let used = row.moves.map_or_else(own, |m| m.to);
            let Some(Packing::Tl1(tiles) | Packing::Tl2(tiles)) = used else {
                continue;
            };
            let (columns, rows) = (row.columns(), row.shape.get(1).copied().unwrap_or(1));
            let entry = ShapeTiles { rows, columns, tiles };
            if !list.contains(&entry) {
                list.push(entry);
            }
        }
        let published = |t: &ShapeTiles| match ty {
            TypeId::TL1 => tl1::published(t.columns, t.rows),
            _ => tl2::published(t.columns, t.rows),
        };
        list.retain(|t| published(t) != Some(t.tiles));
        let meta = &mut shards[0].meta;
        let key = set_or_remove(meta, ty, &list)?;
        if !list.is_empty() {
            let shown: Vec<String> = list.iter().map(ShapeTiles::to_string).collect();
            notes.push(format!(
                "{ty} tiles, recorded as {key}: {}; a bitnet.cpp that reads the file must be built with the same",
                shown.join(" ")
            ));
        }
    }
    let any = |shard: &OutShard| {
        let mut own = rows[shard.rows.clone()].iter();
        own.any(|r| is_packed(r.to))
    };
    let bitnet: Vec<bool> = shards.iter().map(any).collect();
    for (shard, bitnet) in shards.iter_mut().zip(bitnet) {
        let mut foreign = rows[shard.rows.clone()].iter();
        if !bitnet && foreign.all(|r| Dialect::of(r.to) == Dialect::Ggml) {
            shard.meta.remove(KEY_DIALECT);
        }
        if !bitnet {
            continue;
        }
        let tensors: Vec<_> = rows[shard.rows.clone()].iter().map(Row::tensor).collect();
        let doubtful = |e: &GgufError| {
            matches!(
                e.kind,
                ErrorKind::Misread { .. } | ErrorKind::ForeignType { .. } | ErrorKind::AmbiguousType { .. }
            )
        };
        if Layout::new(&shard.meta, &tensors).is_err_and(|e| doubtful(&e)) {
            let name = Dialect::BitnetCpp.name().as_bytes().to_vec();
            let value = Value::Str(trine_formats::gguf::GgufStr(name));
            shard.meta.set(KEY_DIALECT, value);
        }
    }
    Ok(notes)
}

fn set_or_remove(meta: &mut Metadata, ty: TypeId, list: &[ShapeTiles]) -> Result<&'static str, GgufError> {
    let key = match ty {
        TypeId::TL1 => "trine.tl1.tiles",
        _ => "trine.tl2.tiles",
    };
    if list.is_empty() {
        meta.remove(key);
    } else {
        set_tiles(meta, ty, list)?;
        // The version and the file type stay last, where every quantizer looks for them.
        for last in ["general.quantization_version", "general.file_type"] {
            if let Some(value) = meta.get(last).cloned() {
                meta.set(last, value);
            }
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{Ftype, Target};
    use trine_formats::gguf::TensorInfo;

    fn row(columns: u64, rows: u64) -> Row {
        let shape = vec![columns, rows];
        Row::of(&TensorInfo { name: "w".into(), shape, ty: TypeId::F16, offset: 0, bytes: 0 })
    }

    /// The choice, or `None` where it was refused.
    fn chosen(ty: TypeId, columns: u64, rows: u64) -> Option<Packing> {
        let recipe = Recipe::new(Target::Ftype(Ftype::F16));
        choose(&row(columns, rows), ty, None, &recipe).ok()
    }

    #[test]
    fn published_kernels_come_first() {
        for (columns, rows) in [(4096, 1536), (8640, 3200), (14336, 4096), (4096, 1024)] {
            let tl1 = tl1::published(columns, rows).map(Packing::Tl1);
            assert_eq!(chosen(TypeId::TL1, columns, rows), tl1);
            let tl2 = tl2::published(columns, rows).map(Packing::Tl2);
            assert_eq!(chosen(TypeId::TL2, columns, rows), tl2);
        }
    }

    #[test]
    fn other_shapes_get_tiles_when_any_fit() {
        // BitNet-b1.58-2B-4T, for which bitnet.cpp has no kernels
        for (columns, rows) in [(2560, 2560), (2560, 640), (2560, 6912), (6912, 2560)] {
            assert!(chosen(TypeId::TL1, columns, rows).is_some());
            assert!(chosen(TypeId::TL2, columns, rows).is_some());
        }
        for columns in (16..1200).step_by(8) {
            for rows in [32, 96, 48] {
                let fits = |packing: Packing| packing.check(columns, rows).is_ok();
                let any = |make: fn(Tiles) -> Packing, widest: u32| {
                    (1..=widest).any(|bk| fits(make(Tiles::new(MICRO, bk, MICRO))))
                };
                let got = |ty| chosen(ty, columns as u64, rows as u64).is_some();
                let place = format!("{rows} x {columns}");
                assert_eq!(got(TypeId::TL1), any(Packing::Tl1, 256), "tl1 {place}");
                assert_eq!(got(TypeId::TL2), any(Packing::Tl2, 240), "tl2 {place}");
            }
        }
        assert!(chosen(TypeId::I2_S, 384, 5).is_some() && chosen(TypeId::I2_S, 192, 5).is_none());
    }
}
