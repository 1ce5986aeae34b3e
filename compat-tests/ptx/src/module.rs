//! The text of a module to kernels.

use std::collections::HashMap;

use super::ParseError;
use super::decode::{Names, decode};
use super::instruction::{Instruction, Op, Register, Special};
use super::operand::operands;
use super::scalar::{LANES, Lanes};
use super::token::{Token, tokens};

/// Contents of a file of PTX.
#[derive(Debug)]
pub struct Module {
    /// The version of PTX that it asks for, such as `7.4`.
    pub version: String,
    /// The target, such as `sm_80`.
    pub target: String,
    kernels: Vec<Kernel>,
}

/// An entry of a module.
#[derive(Debug)]
pub struct Kernel {
    pub(super) name: String,
    /// Bytes of each argument.
    pub(super) arguments: Vec<usize>,
    pub(super) registers: usize,
    /// Its different constants, each for all lanes.
    pub(super) constants: Vec<Lanes>,
    /// The coordinates that it reads.
    pub(super) specials: Vec<Special>,
    pub(super) code: Vec<Instruction>,
    /// Bytes of shared memory that the kernel brings along.
    pub(super) shared: usize,
    /// The most threads of a block.
    pub(super) threads: Option<u32>,
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of each of its arguments, in order.
    pub fn arguments(&self) -> &[usize] {
        &self.arguments
    }
}

impl Module {
    /// Reads a module.
    ///
    /// # Errors
    /// Text that is no PTX, an instruction that the emulator has no meaning for, with its opcode.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        let tokens = tokens(text)?;
        let mut reader = Reader { tokens: &tokens, line: 1 };
        let mut module = Module { version: String::new(), target: String::new(), kernels: Vec::new() };
        let mut names = Names::default();
        while let Some(token) = reader.next() {
            match token.text {
                ".version" => module.version = reader.word()?,
                ".target" => module.target = reader.word()?,
                ".address_size" => reader.expect("64")?,
                ".extern" => {
                    reader.expect(".shared")?;
                    let (name, bytes, _) = reader.variable()?;
                    if bytes.is_some() {
                        return reader.error("shared memory of another module");
                    }
                    names.dynamic.insert(name);
                }
                ".visible" => {
                    reader.expect(".entry")?;
                    let kernel = reader.entry(names.clone())?;
                    module.kernels.push(kernel);
                }
                other => {
                    let what = format!("'{other}' at the top of a module");
                    return reader.error(what);
                }
            }
        }
        Ok(module)
    }

    /// The entry of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// All entries.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }
}

/// A reader of declarations and statements.
struct Reader<'a> {
    tokens: &'a [Token<'a>],
    line: usize,
}

impl<'a> Reader<'a> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, what: what.into() })
    }

    fn next(&mut self) -> Option<&'a Token<'a>> {
        let (first, rest) = self.tokens.split_first()?;
        (self.tokens, self.line) = (rest, first.line);
        Some(first)
    }

    fn word(&mut self) -> Result<String, ParseError> {
        match self.next() {
            Some(token) => Ok(token.text.to_owned()),
            None => self.error("the text ends too early"),
        }
    }

    fn is_next(&self, text: &str) -> bool {
        self.tokens.first().is_some_and(|t| t.is(text))
    }

    fn expect(&mut self, text: &str) -> Result<(), ParseError> {
        let found = self.word()?;
        if found == text {
            return Ok(());
        }
        self.error(format!("'{found}' where '{text}' should be"))
    }

    fn number(&mut self) -> Result<usize, ParseError> {
        let word = self.word()?;
        match word.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.error(format!("'{word}' is no number")),
        }
    }

    /// The tokens up to a semicolon, which is left out.
    fn statement(&mut self) -> Result<&'a [Token<'a>], ParseError> {
        let Some(end) = self.tokens.iter().position(|t| t.is(";")) else {
            return self.error("a statement without an end");
        };
        let all = &self.tokens[..end];
        self.tokens = &self.tokens[end + 1..];
        Ok(all)
    }

    /// `[.align N] .type name[N]` of shared memory or `.type name` of an argument: name, number of elements times their
    /// bytes (nothing for `[]`), alignment.
    fn declared(&mut self) -> Result<(String, Option<usize>, usize), ParseError> {
        let mut align = None;
        let mut word = self.word()?;
        if word == ".align" {
            align = Some(self.number()?);
            word = self.word()?;
        }
        let bits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
        let Ok(bits) = bits.parse::<usize>() else {
            return self.error(format!("'{word}' is no type of a variable"));
        };
        let name = self.word()?;
        let mut bytes = Some(bits / 8);
        if self.is_next("[") {
            self.expect("[")?;
            bytes = if self.is_next("]") { None } else { self.number()?.checked_mul(bits / 8) };
            self.expect("]")?;
        }
        Ok((name, bytes, align.unwrap_or(bits / 8)))
    }

    /// The same with a semicolon behind it.
    fn variable(&mut self) -> Result<(String, Option<usize>, usize), ParseError> {
        let variable = self.declared()?;
        self.expect(";")?;
        Ok(variable)
    }

    /// Parses the part after `.entry`.
    fn entry(&mut self, mut names: Names) -> Result<Kernel, ParseError> {
        let mut kernel = Kernel {
            name: self.word()?,
            arguments: Vec::new(),
            registers: 0,
            constants: Vec::new(),
            specials: Vec::new(),
            code: Vec::new(),
            shared: 0,
            threads: None,
        };
        self.expect("(")?;
        let mut place = 0usize;
        while !self.is_next(")") {
            if !kernel.arguments.is_empty() {
                self.expect(",")?;
            }
            self.expect(".param")?;
            let (name, Some(bytes @ 1..=8), _) = self.declared()? else {
                return self.error("an argument that is no number");
            };
            place = place.next_multiple_of(bytes);
            names.arguments.insert(name, place);
            place += bytes;
            kernel.arguments.push(bytes);
        }
        self.expect(")")?;
        while !self.is_next("{") {
            match self.word()?.as_str() {
                ".maxntid" | ".reqntid" => {
                    let mut threads = self.number()?;
                    while self.is_next(",") {
                        self.expect(",")?;
                        threads *= self.number()?;
                    }
                    kernel.threads = Some(threads as u32);
                }
                ".minnctapersm" => {
                    self.number()?;
                }
                other => return self.error(format!("'{other}' before the body of a kernel")),
            }
        }
        self.body(&mut kernel, names)?;
        Ok(kernel)
    }

    fn body(&mut self, kernel: &mut Kernel, mut names: Names) -> Result<(), ParseError> {
        self.expect("{")?;
        let mut scopes: Vec<HashMap<String, Register>> = Vec::new();
        let mut labels = HashMap::new();
        let mut jumps = Vec::new();
        loop {
            if self.is_next("{") {
                self.expect("{")?;
                scopes.push(names.registers.clone());
            } else if self.is_next("}") {
                self.expect("}")?;
                match scopes.pop() {
                    Some(outer) => names.registers = outer,
                    None => break,
                }
            } else if self.is_next(";") {
                self.expect(";")?;
            } else if self.is_next(".reg") {
                self.expect(".reg")?;
                self.registers(kernel, &mut names)?;
            } else if self.is_next(".shared") {
                self.expect(".shared")?;
                let (name, Some(bytes), align) = self.variable()? else {
                    return self.error("shared memory without a size");
                };
                let at = kernel.shared.next_multiple_of(align);
                names.shared.insert(name, at);
                kernel.shared = at + bytes;
            } else if self.is_next(".pragma") {
                self.statement()?;
            } else if self.tokens.get(1).is_some_and(|t| t.is(":")) {
                let label = self.word()?;
                self.expect(":")?;
                if labels.insert(label.clone(), kernel.code.len()).is_some() {
                    return self.error(format!("label '{label}' stands twice"));
                }
            } else {
                let (instruction, jump) = self.instruction(&names)?;
                if let Some(label) = jump {
                    jumps.push((kernel.code.len(), label));
                }
                kernel.code.push(instruction);
            }
        }
        for (at, label) in jumps {
            let Some(&target) = labels.get(&label) else {
                return self.error(format!("no label '{label}'"));
            };
            kernel.code[at].op = Op::Branch(target);
        }
        kernel.constants = names.constants.take().into_iter().map(|bits| [bits; LANES]).collect();
        kernel.specials = names.specials.take();
        Ok(())
    }

    /// `.type name, name<count>;`
    fn registers(&mut self, kernel: &mut Kernel, names: &mut Names) -> Result<(), ParseError> {
        let statement = self.statement()?;
        let Some((_, declared)) = statement.split_first() else {
            return self.error("registers without a type");
        };
        for name in declared.split(|t| t.is(",")) {
            let mut add = |name: String| {
                names.registers.insert(name, kernel.registers);
                kernel.registers += 1;
            };
            match name {
                [name] => add(name.text.to_owned()),
                [name, open, count, close] if open.is("<") && close.is(">") => {
                    let Ok(count) = count.text.parse::<usize>() else {
                        return self.error("a number of registers that is none");
                    };
                    (0..count).for_each(|i| add(format!("{}{i}", name.text)));
                }
                _ => return self.error("a list of registers that is none"),
            }
        }
        Ok(())
    }

    /// One instruction, and the label that it jumps to.
    fn instruction(&mut self, names: &Names) -> Result<(Instruction, Option<String>), ParseError> {
        let mut statement = self.statement()?;
        let Some(first) = statement.first() else {
            return self.error("an empty statement");
        };
        self.line = first.line;
        let text: Vec<&str> = statement.iter().map(|t| t.text).collect();
        let text = text.join(" ");
        let mut guard = None;
        if first.is("@") {
            let negated = statement.get(1).is_some_and(|t| t.is("!"));
            let at = if negated { 2 } else { 1 };
            let register = statement.get(at).and_then(|t| names.registers.get(t.text).copied());
            let Some(register) = register else {
                return self.error("a guard that is no register");
            };
            guard = Some((register, negated));
            statement = &statement[at + 1..];
        }
        let Some((opcode, rest)) = statement.split_first() else {
            return self.error("a guard without an instruction");
        };
        if opcode.text.starts_with('.') {
            return self.error(format!("unknown directive '{}'", opcode.text));
        }
        let operands = operands(rest, self.line)?;
        let (op, jump) = decode(opcode.text, operands, names).map_err(|what| ParseError { line: self.line, what })?;
        let instruction = Instruction { op, guard, line: self.line, text };
        Ok((instruction, jump))
    }
}
