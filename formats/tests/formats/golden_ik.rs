//! The types of ik_llama.cpp against rows and weights recorded from its own decoders (testdata/ik), bit for bit.

use trine_formats::types::ik::apart::Interleaved;
use trine_formats::types::{REGISTRY, TypeId};
use trine_testkit::{read, sha256, testdata};

/// A recorded piece: rows of a type, the hash of their weights, and that of the rows that they were made of.
struct Piece {
    ty: TypeId,
    kind: String,
    rows: usize,
    columns: usize,
    data: Vec<u8>,
    weights: String,
    base: Option<String>,
}

fn pieces() -> Vec<Piece> {
    let data = read(&testdata("ik/rows.bin"));
    let index = String::from_utf8(read(&testdata("ik/index.txt"))).expect("text");
    let piece = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [name, id, kind, rows, columns, at, len, weights, base] = fields[..] else { panic!("line {line:?}") };
        let number = |s: &str| s.parse::<usize>().expect("a number");
        let ty = TypeId::from_name(name).unwrap_or_else(|| panic!("no type {name}"));
        assert_eq!((ty.file_id() as usize, ty.info().unwrap().name), (number(id), name));
        Piece {
            ty,
            kind: kind.to_owned(),
            rows: number(rows),
            columns: number(columns),
            data: data[number(at)..][..number(len)].to_vec(),
            weights: weights.to_owned(),
            base: (base != "-").then(|| base.to_owned()),
        }
    };
    index.lines().map(piece).collect()
}

/// The rows of a piece, taken apart where they lie interleaved.
fn apart(piece: &Piece) -> (TypeId, Vec<u8>) {
    let Some(interleaved) = Interleaved::of(piece.ty) else {
        return (piece.ty, piece.data.clone());
    };
    let (from, to) = interleaved.group_bytes(piece.columns).unwrap();
    let mut out = vec![0xA5; piece.rows / interleaved.rows * to];
    for (group, out) in piece.data.chunks_exact(from).zip(out.chunks_exact_mut(to)) {
        interleaved.take_apart(piece.columns, group, out);
    }
    (interleaved.base, out)
}

#[test]
fn weights_are_those_of_the_reference() {
    for piece in pieces() {
        let what = format!("{} {} of {} columns", piece.ty, piece.kind, piece.columns);
        let info = piece.ty.info().unwrap();
        let bytes = info.tensor_bytes(piece.columns as u64, piece.rows as u64);
        assert_eq!(bytes, Some(piece.data.len() as u64), "{what}");
        let (ty, rows) = apart(&piece);
        let base = ty.info().unwrap();
        let row_bytes = base.row_bytes(piece.columns as u64).unwrap() as usize;
        let mut row = vec![0f32; piece.columns];
        let mut weights = Vec::new();
        for bytes in rows.chunks_exact(row_bytes) {
            base.decode.unwrap()(bytes, &mut row);
            // The reference subtracts a multiple of the scale in these two, so that their zeros are positive.
            let plain = matches!(piece.ty, TypeId::Q5_0_R4 | TypeId::Q6_0_R4);
            let zeros = row.iter().map(|&v| if plain && v == 0.0 { 0.0 } else { v });
            weights.extend(zeros.flat_map(f32::to_le_bytes));
        }
        assert_eq!(weights.len(), 4 * piece.rows * piece.columns, "{what}");
        assert_eq!(sha256(&weights), piece.weights, "{what}");
    }
}

#[test]
fn interleaved_rows_become_those_that_they_were_made_of() {
    let mut compared = 0;
    for piece in pieces() {
        if let Some(base) = &piece.base {
            assert_eq!(&sha256(&apart(&piece).1), base, "{} of {} columns", piece.ty, piece.columns);
            compared += 1;
        }
    }
    assert_eq!(compared, 70);
}

/// Every type of the program but the one whose bytes depend on the machine that made them.
#[test]
fn all_types_are_recorded() {
    let recorded: Vec<TypeId> = pieces().iter().map(|piece| piece.ty).collect();
    let of_ik = REGISTRY.iter().filter(|t| t.id.0 >> 16 == TypeId::IQ4_KS.0 >> 16 && t.id != TypeId::Q8_K_R16);
    for info in of_ik {
        assert!(recorded.contains(&info.id), "{}", info.name);
        assert!(info.decode.is_some() != Interleaved::of(info.id).is_some(), "{}", info.name);
    }
}
