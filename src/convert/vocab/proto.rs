//! `tokenizer.model`: the few fields of a SentencePiece model that GGUF keeps, from its protocol buffer.
//!
//! ```text
//! ModelProto      1 pieces*  { 1 piece: string, 2 score: float, 3 type: enum = 1 (normal) }
//!                 2 trainer_spec    { 3 model_type: enum = 1 (unigram) }
//!                 3 normalizer_spec { 2 precompiled_charsmap: bytes, 3 add_dummy_prefix: bool = true,
//!                                     4 remove_extra_whitespaces: bool = true }
//! ```

use super::keys::Kind;

/// Most pieces that are read.
const MAX_PIECES: usize = 1 << 21;

/// One token.
#[derive(Clone, PartialEq, Debug)]
pub(in super::super) struct Piece {
    pub text: Vec<u8>,
    pub score: f32,
    pub kind: Kind,
}

/// The parts of the model that are read.
#[derive(Debug)]
pub(in super::super) struct Model {
    pub pieces: Vec<Piece>,
    /// 1 unigram, 2 BPE, 3 word, 4 char.
    pub model_type: u64,
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    /// The rules for characters, compiled; empty where there are none.
    pub charsmap: Vec<u8>,
}

impl Model {
    /// The key for the space in front of texts: only where it is not the default.
    pub fn space_prefix(&self, stated: Option<bool>) -> Option<bool> {
        (stated.is_none() && !self.add_dummy_prefix).then_some(false)
    }
}

enum Field<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
    Fixed64,
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&first, rest) = bytes.split_first().ok_or("it ends within a number")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("it has a number of more than 10 bytes".into())
}

fn take<'a>(bytes: &mut &'a [u8], n: u64) -> Result<&'a [u8], String> {
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    let (taken, rest) =
        bytes.split_at_checked(n).ok_or_else(|| format!("a field of {n} bytes reaches past the end"))?;
    *bytes = rest;
    Ok(taken)
}

fn field<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Field<'a>), String> {
    let key = varint(bytes)?;
    let field = match key & 7 {
        0 => Field::Varint(varint(bytes)?),
        1 => {
            take(bytes, 8)?;
            Field::Fixed64
        }
        2 => {
            let n = varint(bytes)?;
            Field::Bytes(take(bytes, n)?)
        }
        5 => {
            let b = take(bytes, 4)?;
            Field::Fixed32([b[0], b[1], b[2], b[3]])
        }
        wire => return Err(format!("wire type {wire} is not known")),
    };
    Ok((key >> 3, field))
}

/// Reads a model.
///
/// # Errors
/// A few words on why this is not a SentencePiece model.
pub(in super::super) fn parse(mut bytes: &[u8]) -> Result<Model, String> {
    let mut model = Model {
        pieces: Vec::new(),
        model_type: 1,
        add_dummy_prefix: true,
        remove_extra_whitespaces: true,
        charsmap: Vec::new(),
    };
    while !bytes.is_empty() {
        match field(&mut bytes)? {
            (1, Field::Bytes(b)) => {
                if model.pieces.len() == MAX_PIECES {
                    return Err(format!("it has more than {MAX_PIECES} pieces"));
                }
                model.pieces.push(piece(b)?);
            }
            (2, Field::Bytes(mut b)) => {
                while !b.is_empty() {
                    if let (3, Field::Varint(v)) = field(&mut b)? {
                        model.model_type = v;
                    }
                }
            }
            (3, Field::Bytes(mut b)) => {
                while !b.is_empty() {
                    match field(&mut b)? {
                        (2, Field::Bytes(map)) => model.charsmap = map.to_vec(),
                        (3, Field::Varint(v)) => model.add_dummy_prefix = v != 0,
                        (4, Field::Varint(v)) => model.remove_extra_whitespaces = v != 0,
                        _ => {}
                    }
                }
            }
            (0..=3, _) => return Err("its fields are not those of a SentencePiece model".into()),
            _ => {}
        }
    }
    if model.pieces.is_empty() {
        return Err("it has no pieces".into());
    }
    Ok(model)
}

fn piece(mut bytes: &[u8]) -> Result<Piece, String> {
    let mut piece = Piece { text: Vec::new(), score: 0.0, kind: Kind::Normal };
    while !bytes.is_empty() {
        match field(&mut bytes)? {
            (1, Field::Bytes(b)) => piece.text = b.to_vec(),
            (2, Field::Fixed32(b)) => piece.score = f32::from_le_bytes(b),
            (3, Field::Varint(v)) => {
                piece.kind = match v {
                    1 => Kind::Normal,
                    2 => Kind::Unknown,
                    3 => Kind::Control,
                    4 => Kind::UserDefined,
                    5 => Kind::Unused,
                    6 => Kind::Byte,
                    other => return Err(format!("a piece is of type {other}, which is not known")),
                }
            }
            (1..=3, _) => return Err("a piece's fields are of the wrong type".into()),
            _ => {}
        }
    }
    if piece.score.is_nan() {
        return Err("a piece's score is not a number".into());
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pieces, BPE, no dummy prefix, and fields that are passed over.
    fn sample() -> Vec<u8> {
        let mut m = vec![0x0a, 9, 0x0a, 2, b'a', b'b', 0x15, 0, 0, 0x80, 0xbf];
        m.extend([0x0a, 7, 0x0a, 3, b'<', b's', b'>', 0x18, 3]);
        m.extend([0x12, 5, 0x18, 2, 0x0a, 1, b'x']);
        m.extend([0x1a, 2, 0x18, 0, 0x22, 1, 7]);
        m
    }

    #[test]
    fn pieces_scores_and_flags() {
        let m = parse(&sample()).unwrap();
        assert_eq!(m.pieces[0], Piece { text: b"ab".to_vec(), score: -1.0, kind: Kind::Normal });
        assert_eq!(m.pieces[1], Piece { text: b"<s>".to_vec(), score: 0.0, kind: Kind::Control });
        assert_eq!((m.model_type, m.add_dummy_prefix), (2, false));
        assert_eq!((m.space_prefix(None), m.space_prefix(Some(true))), (Some(false), None));
    }

    #[test]
    fn damage_is_an_error_or_less_data_and_never_a_panic() {
        let m = sample();
        for n in 0..m.len() {
            let _ = parse(&m[..n]);
            for bit in 0..8 {
                let mut m = m.clone();
                m[n] ^= 1 << bit;
                let _ = parse(&m);
            }
        }
        assert_eq!(parse(&[]).unwrap_err(), "it has no pieces");
        assert!(parse(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]).unwrap_err().contains("past the end"));
        assert!(parse(&[0xff; 20]).unwrap_err().contains("more than 10 bytes"));
        assert!(parse(b"IQ== 0\nIg== 1\n").is_err());
    }
}
