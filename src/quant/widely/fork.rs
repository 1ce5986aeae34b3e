//! Files of the Fairy2i fork of llama.cpp, translated: the same codes and scales in trine's layout.

use rayon::prelude::*;
use trine_formats::gguf::{Blob, ModelFile, Value};
use trine_formats::types::TypeId;
use trine_formats::widely::tile64::{self, BLOCK_BYTES, STREAMS};
use trine_formats::widely::{Header, Part, Profile, Rule, Scope, Shape, TILE, TieRule, WidelyError};

use super::codes::output_form;
use super::content::{Content, Contents, copied, made};
use super::error::WidelyQuantError;
use super::rows::Writer;
use crate::quant::plan::{Draft, Fault};
use crate::quant::row::{Row, StoredTensor, sources};
use crate::quant::{metadata, order};

/// Rule by which the fork quantizes.
const RULE: Rule = Rule { stages: 2, scope: Scope::Tile64, profile: Profile::F32, tie: TieRule::Tile64 };

/// Plans the translation of a file of the Fairy2i fork of llama.cpp.
///
/// # Errors
/// Keys that its specification does not name; matrices that are not whole.
pub(super) fn plan(draft: &Draft<'_>) -> Result<Contents, Fault> {
    let (base, model) = (tile64::read(draft.meta)?, draft.model()?);
    let mut found: Vec<(String, Vec<(Row, Content)>)> = Vec::new();
    for place in sources(model) {
        let Some((matrix, stream)) = matrix_of(&place.2.name) else {
            let other = other(place);
            found.push((other.0.name.clone(), vec![other]));
            continue;
        };
        let rows = matrix_rows(model, place, matrix)?;
        if stream == 0 {
            found.push((format!("{matrix}.weight"), rows.into()));
        }
    }
    found.sort_by(|(a, _), (b, _)| order::compare(a, b));
    let rows: Vec<_> = found.into_iter().flat_map(|(_, rows)| rows).collect();
    let header = Header { base, rule: RULE, output: output_form(&rows) };
    let mut meta = metadata::of_one_file(draft.meta);
    for key in tile64::KEYS.into_iter().chain(["general.file_type"]) {
        meta.remove(key);
    }
    for key in tile64::COMPLEX_SIZES {
        let complex = meta.get_u32(key)?.ok_or(WidelyError::MissingKey(key))?;
        meta.set(key, Value::U32(complex.saturating_mul(2)));
    }
    Header::complete(&mut meta);
    header.write(&mut meta);
    metadata::set(&mut meta, draft.asked.overrides);
    let notes = vec!["codes and scales are those of the file, which the Fairy2i fork of llama.cpp made".to_owned()];
    Ok(Contents { header, meta, rows, notes })
}

/// The matrix and the stream that a tensor is.
fn matrix_of(name: &str) -> Option<(&str, usize)> {
    let mut streams = STREAMS.iter().enumerate();
    streams.find_map(|(i, stream)| Some((name.strip_suffix(stream)?.strip_suffix('.')?, i)))
}

fn stream_names(matrix: &str) -> [String; 4] {
    STREAMS.map(|stream| format!("{matrix}.{stream}"))
}

/// A tensor that is no part of a matrix. The fork leaves `.weight` out of names.
fn other(place: StoredTensor<'_>) -> (Row, Content) {
    let t = place.2;
    let whole = t.name.ends_with(".weight") || t.name.ends_with(".bias");
    let name = if whole { t.name.clone() } else { format!("{}.weight", t.name) };
    if name == "token_embd.weight" && t.ty == TypeId::F32 {
        let shape = vec![t.columns().saturating_mul(2), t.rows()];
        return made(place, (name, TypeId::BF16, shape), t.bytes, Content::Embeddings);
    }
    let (row, content) = copied(place, None);
    (Row { name, ..row }, content)
}

/// The two tensors of a matrix, once its four streams are known to fit each other.
fn matrix_rows(
    model: &ModelFile,
    place: StoredTensor<'_>,
    matrix: &str,
) -> Result<[(Row, Content); 2], WidelyQuantError> {
    let names = stream_names(matrix);
    let there = names.iter().find(|n| model.tensor_info(n).is_some());
    let there = there.cloned().unwrap_or_default();
    let mut extents = None;
    let mut work = 0;
    for name in names {
        let Some(t) = model.tensor_info(&name).cloned() else {
            return Err(WidelyError::MissingPart { tensor: name, other: there }.into());
        };
        if t.ty != tile64::ty() {
            return Err(WidelyError::Type { tensor: name, found: t.ty, expected: tile64::ty() }.into());
        }
        let tile = TILE as u64;
        let whole = t.columns().is_multiple_of(tile) && t.rows().is_multiple_of(tile);
        let first = extents.get_or_insert_with(|| t.shape.clone());
        if !whole || t.shape.len() != 2 || *first != t.shape {
            return Err(WidelyQuantError::Tiles { tensor: name, shape: t.shape });
        }
        work += t.bytes;
    }
    let extents = extents.unwrap_or_default();
    let [columns, rows] = extents[..] else {
        return Err(WidelyQuantError::NoPlace(there));
    };
    let real = |n: u64| usize::try_from(n).ok().and_then(|n| n.checked_mul(2));
    let shape = match (real(rows), real(columns)) {
        (Some(rows), Some(columns)) => RULE.shape(rows, columns),
        _ => None,
    };
    let shape = shape.ok_or(WidelyQuantError::NoPlace(there))?;
    let row = |part: Part, extents: &[u64], work, content| {
        let (mut row, content) = made(place, (part.name(matrix), part.ty(), extents.to_vec()), work, content);
        row.source.name = matrix.to_owned();
        (row, content)
    };
    Ok([
        row(Part::Codes, &shape.codes_extents(), work, Content::Tiles { shape }),
        row(Part::Scale, &shape.scale_extents(), 0, Content::Scales),
    ])
}

/// Writes the words of a matrix, a row of tiles at a time, and returns its scales.
///
/// # Errors
/// I/O; a matrix that is cut off; scales that are no numbers, negative, or not the same in all rows of a tile.
pub(super) fn write_codes(
    model: &ModelFile,
    row: &Row,
    shape: &Shape,
    writer: &mut Writer<'_>,
) -> Result<Vec<f32>, WidelyQuantError> {
    let names = stream_names(&row.source.name);
    let row_bytes = shape.columns / TILE * BLOCK_BYTES;
    let mut data: Vec<Blob> = Vec::new();
    for name in &names {
        let view = model.tensor(name).map(|view| view.data);
        let whole = view.filter(|data| data.len() == shape.rows * row_bytes);
        data.push(whole.ok_or_else(|| WidelyQuantError::CutOff { tensor: name.clone() })?);
    }
    let blocks = |row: usize, stream: usize| &data[stream][row * row_bytes..][..row_bytes];
    let mut scales = vec![0.0; shape.groups() * shape.group_scales()];
    for (band, scales) in scales.chunks_mut(shape.tiles() * shape.group_scales()).enumerate() {
        let first = band * TILE;
        for (stream, name) in names.iter().enumerate() {
            let blocks = blocks(first, stream).as_chunks::<BLOCK_BYTES>().0;
            let tiles = scales.chunks_mut(shape.group_scales());
            for ((tile, block), scales) in blocks.iter().enumerate().zip(tiles) {
                let index = first * shape.tiles() + tile;
                let both = tile64::scales(block).ok_or_else(|| scale_error(name, block, index))?;
                scales[2 * stream..][..2].copy_from_slice(&both);
            }
        }
        let mut words = vec![0; TILE * shape.row_words()];
        words.par_chunks_mut(shape.row_words()).enumerate().try_for_each(|(i, words)| {
            let rows = std::array::from_fn(|stream| blocks(first + i, stream));
            for (stream, row) in rows.into_iter().enumerate() {
                let of_tile = blocks(first, stream).as_chunks().0.iter();
                let pairs = row.as_chunks().0.iter().zip(of_tile);
                let same = |(a, b)| tile64::scale_bytes(a) == tile64::scale_bytes(b);
                if let Some(block) = pairs.map(same).position(|same| !same) {
                    return Err(WidelyError::TileScales { tensor: names[stream].clone(), row: first + i, block });
                }
            }
            tile64::words(rows, words);
            Ok(())
        })?;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        writer.write(&bytes)?;
    }
    data.iter().for_each(Blob::release);
    Ok(scales)
}

fn scale_error(name: &str, block: &[u8; BLOCK_BYTES], index: usize) -> WidelyQuantError {
    let [a, b, c, d] = tile64::scale_bytes(block);
    let [re, im] = [[a, b], [c, d]].map(half::f16::from_le_bytes);
    WidelyError::Scale { tensor: name.to_owned(), index, value: format!("{re} or {im}") }.into()
}

/// Writes the token embedding, whose pairs of bfloat16 become halves of a row.
///
/// # Errors
/// I/O; an embedding that is cut off.
pub(super) fn write_embeddings(model: &ModelFile, row: &Row, writer: &mut Writer<'_>) -> Result<(), WidelyQuantError> {
    let data = model.tensor(&row.source.name).map(|view| view.data);
    let data = data.ok_or_else(|| WidelyQuantError::CutOff { tensor: row.source.name.clone() })?;
    let row_bytes = row.shape.first().map_or(0, |&n| 2 * n as usize);
    for packed in data.chunks(row_bytes.max(1)) {
        let mut out = vec![0; packed.len()];
        tile64::embedding(packed, &mut out);
        writer.write(&out)?;
    }
    data.release();
    Ok(())
}
