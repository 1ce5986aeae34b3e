//! Character classes as the reference's splitter sees them, and the byte alphabet of GPT-2.

use std::sync::OnceLock;

use super::unicode_data::RUNS;

/// Category of a character (low bits) and whether it is white space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class(u8);

impl Class {
    const SPACE: u8 = 0x80;
    /// The class after the last character.
    pub(super) const END: Class = Class(0x40);

    pub(super) fn of(c: char) -> Class {
        // One byte for each code point: a lookup per character is all that splitting costs.
        static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
        let table = TABLE.get_or_init(|| {
            let mut table = vec![0u8; 0x11_0000];
            for (i, &run) in RUNS.iter().enumerate() {
                let start = run as usize & 0xff_ffff;
                let end = RUNS.get(i + 1).map_or(table.len(), |&r| r as usize & 0xff_ffff);
                table[start..end].fill((run >> 24) as u8);
            }
            for c in (0..=0x3000).filter_map(char::from_u32) {
                if c.is_whitespace() {
                    table[c as usize] |= Self::SPACE;
                }
            }
            table
        });
        Class(table[c as usize])
    }

    /// True if the character has none of the other classes: separators, controls, and characters that are not in the
    /// reference's tables.
    pub(super) fn is_other(self) -> bool {
        self.0 & 7 == 0
    }

    pub(super) fn is_punctuation(self) -> bool {
        self.0 & 7 == 3
    }

    pub(super) fn is_symbol(self) -> bool {
        self.0 & 7 == 5
    }

    pub(super) fn is_number(self) -> bool {
        self.0 & 7 == 1
    }

    pub(super) fn is_letter(self) -> bool {
        self.0 & 7 == 2
    }

    pub(super) fn is_mark(self) -> bool {
        self.0 & 7 == 4
    }

    pub(super) fn is_space(self) -> bool {
        self.0 & Self::SPACE != 0
    }

    /// One byte that stands for the character in patterns over bytes: ASCII is itself, every other
    /// character is its category (0xD0 other, D1 number, D2 letter, D3 punctuation, D4 mark,
    /// D5 symbol) or, for white space, a vertical tab.
    pub(super) fn collapse(self, c: char) -> u8 {
        if c.is_ascii() {
            c as u8
        } else if self.is_space() {
            0x0b
        } else {
            0xd0 + (self.0 & 7)
        }
    }
}

/// True if `c` is in a block of Chinese characters, the ranges of the reference.
pub(super) fn is_han(c: char) -> bool {
    matches!(
        c as u32,
        0x4e00..=0x9fff
            | 0x3400..=0x4dbf
            | 0x2_0000..=0x2_a6df
            | 0x2_a700..=0x2_ebef
            | 0xf900..=0xfaff
            | 0x2_f800..=0x2_fa1f
    )
}

/// True if `c` is a control, a format or a private character in the reference's tables.
pub(super) fn is_control(c: char) -> bool {
    matches!(
        c as u32,
        0..=0x1f
            | 0x7f..=0x9f
            | 0xad
            | 0x600..=0x605
            | 0x61c
            | 0x6dd
            | 0x70f
            | 0x890..=0x891
            | 0x8e2
            | 0x180e
            | 0x200b..=0x200f
            | 0x202a..=0x202e
            | 0x2060..=0x2064
            | 0x2066..=0x206f
            | 0xe000..=0xf8ff
            | 0xfeff
            | 0xfff9..=0xfffb
            | 0x1_10bd
            | 0x1_10cd
            | 0x1_3430..=0x1_343f
            | 0x1_bca0..=0x1_bca3
            | 0x1_d173..=0x1_d17a
            | 0xe_0001
            | 0xe_0020..=0xe_007f
            | 0xf_0000..=0xf_fffd
            | 0x10_0000..=0x10_fffd
    )
}

/// The printable character that stands for `byte` in the tokens of a byte-level BPE.
pub(super) fn byte_to_char(byte: u8) -> char {
    let visible = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if visible(byte) {
        return byte as char;
    }
    // The others follow from U+0100 on, in order.
    let n = (0..byte).filter(|&b| !visible(b)).count() as u32;
    char::from_u32(0x100 + n).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// [`byte_to_char`] for all bytes.
pub(super) fn byte_alphabet() -> &'static [char; 256] {
    static TABLE: OnceLock<[char; 256]> = OnceLock::new();
    TABLE.get_or_init(|| std::array::from_fn(|b| byte_to_char(b as u8)))
}

/// The byte that `c` stands for.
pub(super) fn char_to_byte(c: char) -> Option<u8> {
    match c as u32 {
        n @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(n as u8),
        n @ 0x100..=0x143 => {
            (0..=255u8).filter(|&b| !matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)).nth((n - 0x100) as usize)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `regex` crate brings its own tables, of a later Unicode version; every character of
    /// Unicode 15.0 must have the same category there and here.
    #[test]
    fn categories_agree_with_an_independent_table() {
        let sets: Vec<_> =
            ["N", "L", "P", "M", "S"].iter().map(|n| regex::Regex::new(&format!(r"\A\p{{{n}}}\z")).unwrap()).collect();
        let assigned = regex::Regex::new(r"\A[\p{Age:15.0}--\p{Co}]\z").unwrap();
        let mut checked = 0;
        for c in (0..0x11_0000).filter_map(char::from_u32) {
            let mut buf = [0; 4];
            let s = &*c.encode_utf8(&mut buf);
            if !assigned.is_match(s) {
                continue;
            }
            let expected = sets.iter().position(|r| r.is_match(s)).map_or(0, |i| i + 1);
            assert_eq!(usize::from(Class::of(c).0 & 7), expected, "U+{:04X}", c as u32);
            checked += 1;
        }
        assert!(checked > 140_000, "{checked}");
    }

    #[test]
    fn white_space_is_the_25_characters_of_the_property() {
        let n = (0..0x11_0000).filter_map(char::from_u32).filter(|&c| Class::of(c).is_space()).count();
        assert_eq!(n, 25);
        assert!(!Class::of('\u{1c}').is_space() && Class::of('\u{85}').is_space());
    }

    #[test]
    fn byte_alphabet_is_a_bijection() {
        for b in 0..=255u8 {
            assert_eq!(char_to_byte(byte_to_char(b)), Some(b));
        }
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(char_to_byte('€'), None);
        assert_eq!(char_to_byte('\u{144}'), None);
    }
}
