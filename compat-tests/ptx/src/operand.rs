//! Operands of an instruction as they are written.

use super::ParseError;
use super::token::Token;

/// One operand.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Operand {
    /// A register, symbol or label.
    Name(String),
    /// An integer, or the bits of a floating-point number.
    Number(u64),
    /// `{a, b, ...}`.
    Vector(Vec<Operand>),
    /// `[base + offset]`; without a base the offset alone.
    Address(Option<String>, i64),
    /// `p | q`: two results.
    Pair(String, String),
}

/// A reader of the tokens of one instruction.
pub(super) struct Operands<'a> {
    tokens: &'a [Token<'a>],
    line: usize,
}

/// The operands that follow an opcode.
pub(super) fn operands(tokens: &[Token], line: usize) -> Result<Vec<Operand>, ParseError> {
    let mut reader = Operands { tokens, line };
    let mut all = Vec::new();
    while !reader.tokens.is_empty() {
        if !all.is_empty() {
            reader.expect(",")?;
        }
        all.push(reader.operand()?);
    }
    Ok(all)
}

impl Operands<'_> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, what: what.into() })
    }

    fn take(&mut self) -> Result<String, ParseError> {
        let Some((first, rest)) = self.tokens.split_first() else {
            return self.error("an instruction ends before its operands do");
        };
        self.tokens = rest;
        Ok(first.text.to_owned())
    }

    fn is_next(&self, text: &str) -> bool {
        self.tokens.first().is_some_and(|t| t.is(text))
    }

    fn expect(&mut self, text: &str) -> Result<(), ParseError> {
        let found = self.take()?;
        if found == text {
            return Ok(());
        }
        self.error(format!("'{found}' where '{text}' should be"))
    }

    fn operand(&mut self) -> Result<Operand, ParseError> {
        let word = self.take()?;
        match word.as_str() {
            "{" => {
                let mut parts = vec![self.operand()?];
                while self.is_next(",") {
                    self.take()?;
                    parts.push(self.operand()?);
                }
                self.expect("}")?;
                Ok(Operand::Vector(parts))
            }
            "[" => self.address(),
            "-" => {
                let number = self.number()?;
                Ok(Operand::Number(number.wrapping_neg()))
            }
            _ if word.starts_with(|c: char| c.is_ascii_digit()) => Ok(Operand::Number(self.parse(&word)?)),
            _ if self.is_next("|") => {
                self.take()?;
                Ok(Operand::Pair(word, self.take()?))
            }
            _ => Ok(Operand::Name(word)),
        }
    }

    /// The operand in brackets, the first of which was taken.
    fn address(&mut self) -> Result<Operand, ParseError> {
        let mut base = None;
        let mut offset = 0i64;
        while !self.is_next("]") {
            let word = self.take()?;
            match word.as_str() {
                "+" => {}
                "-" => offset = offset.wrapping_sub(self.number()? as i64),
                _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
                    offset = offset.wrapping_add(self.parse(&word)? as i64);
                }
                _ if base.is_none() => base = Some(word),
                _ => return self.error(format!("'{word}' in an address")),
            }
        }
        self.expect("]")?;
        Ok(Operand::Address(base, offset))
    }

    fn number(&mut self) -> Result<u64, ParseError> {
        let word = self.take()?;
        self.parse(&word)
    }

    /// A number: decimal, hexadecimal, or the bits of a float after `0f` or `0d`.
    fn parse(&self, word: &str) -> Result<u64, ParseError> {
        let plain = word.trim_end_matches('U');
        let digits = |prefixes: [&str; 2]| prefixes.iter().find_map(|p| plain.strip_prefix(p));
        let number = if let Some(bits) = digits(["0f", "0F"]) {
            u32::from_str_radix(bits, 16).map(u64::from)
        } else if let Some(bits) = digits(["0d", "0D"]) {
            u64::from_str_radix(bits, 16)
        } else if let Some(digits) = digits(["0x", "0X"]) {
            u64::from_str_radix(digits, 16)
        } else {
            plain.parse()
        };
        match number {
            Ok(number) => Ok(number),
            Err(_) => self.error(format!("'{word}' is no number")),
        }
    }
}
