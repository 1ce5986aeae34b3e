//! Floats side by side: what the searches behind the encoders are written in.
//!
//! A search runs the same chain of operations on many groups of weights. Here each group has a lane of a
//! [`Vector`], and every operation is the scalar one in each lane, rounded separately: the bits of a lane depend
//! neither on its neighbours nor on the registers that hold it. [`Portable`] is plain Rust and defines what
//! encoders write; the kernels run the same searches on the vectors of the processor.

use super::num::nearest_int;
use std::array::from_fn;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Sub};

/// Floats in a vector, on every instruction set.
pub const LANES: usize = 16;

/// Sixteen floats.
pub trait Vector:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// Result of comparisons.
    type Mask: Mask;

    /// Lane 0 first.
    fn to_array(self) -> [f32; LANES];
    /// Lane 0 first; each is an integer from 0 to 127.
    fn to_codes(self) -> [u8; LANES];
    /// The lowest of the lanes that are below `f32::MAX`, the first of equals, and its value; any lane and `f32::MAX`
    /// where none is.
    #[inline(always)]
    fn lowest(self) -> (usize, f32) {
        let mut lowest = (0, f32::MAX);
        for (lane, value) in self.to_array().into_iter().enumerate() {
            if value < lowest.1 {
                lowest = (lane, value);
            }
        }
        lowest
    }
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// The value without its sign.
    fn abs(self) -> Self;
    /// `if self < o { self } else { o }`.
    fn or_below(self, o: Self) -> Self;
    /// `if self > o { self } else { o }`.
    fn or_above(self, o: Self) -> Self;
    /// [`nearest_int`] of anything, as a float.
    fn nearest(self) -> Self;
    /// [`nearest_int`] of anything, of which only the low eight bits are kept, as a float.
    fn nearest_u8(self) -> Self;
    /// [`nearest_int`] as a float, but for the sign of a zero, where the magnitude is at most
    /// [`ROUNDS`]. Beyond that anything, unless [`Simd::IS_TOTAL`].
    fn round(self) -> Self;
    /// Greater; false when either is NaN, as are the next two.
    fn gt(self, o: Self) -> Self::Mask;
    /// Greater or equal.
    fn ge(self, o: Self) -> Self::Mask;
    /// Equal.
    fn eq(self, o: Self) -> Self::Mask;
    /// Not equal; true when either is NaN.
    fn ne(self, o: Self) -> Self::Mask;
    /// `if mask { a } else { b }` per lane.
    fn select(mask: Self::Mask, a: Self, b: Self) -> Self;
}

/// A truth value per lane.
pub trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> {
    /// True if at least one lane is true.
    fn any(self) -> bool;
    /// True if all lanes are true.
    fn all(self) -> bool;
}

/// An instruction set with float vectors. A value of the type is the proof that the processor has it, and
/// vectors are made with that value only: so all that is done with a vector is sound where it exists.
pub trait Simd: Copy {
    /// Its vectors.
    type F: Vector;
    /// True if the bits are those of the definition for all values: NaN, infinities and numbers too large to be rounded
    /// included. Searches on other instruction sets hand such blocks to [`Portable`].
    const IS_TOTAL: bool;
    /// Vectors whose chains fit into the registers together, 1 or 2.
    const AT_ONCE: usize;

    /// The same value in all lanes.
    fn splat(self, v: f32) -> Self::F;
    /// Lane 0 first.
    fn load(self, v: &[f32; LANES]) -> Self::F;
    /// The transposition: lane `k` of vector `i` is `rows[k][i]`.
    fn columns(self, rows: [&[f32; 8]; LANES]) -> [Self::F; 8];
}

/// Beyond this magnitude [`nearest_int`] is no rounding.
pub const ROUNDS: f32 = 4_194_303.0;

/// Plain Rust, on any processor.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Simd for Portable {
    type F = Sixteen;
    const IS_TOTAL: bool = true;
    const AT_ONCE: usize = 1;

    #[inline(always)]
    fn splat(self, v: f32) -> Sixteen {
        Sixteen([Four([v; 4]); 4])
    }

    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Sixteen {
        Sixteen(from_fn(|q| Four(from_fn(|l| v[4 * q + l]))))
    }

    #[inline(always)]
    fn columns(self, rows: [&[f32; 8]; LANES]) -> [Sixteen; 8] {
        from_fn(|i| Sixteen(from_fn(|q| Four(from_fn(|l| rows[4 * q + l][i])))))
    }
}

/// The vector of [`Portable`].
///
/// The shape is what matters: given loops over one flat array of lanes the compiler packs unlike sums together
/// and spends half of the time on shuffles; given groups of four it keeps each in a vector register.
#[derive(Clone, Copy, Debug)]
pub struct Sixteen([Four; 4]);

/// The truth values of [`Portable`], as all ones or all zeros: selecting is then bitwise, which vectorizes.
#[derive(Clone, Copy, Debug)]
pub struct Bits([[u32; 4]; 4]);

#[derive(Clone, Copy, Debug)]
struct Four([f32; 4]);

impl Sixteen {
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Sixteen {
        Sixteen(self.0.map(|four| Four(four.0.map(&f))))
    }

    #[inline(always)]
    fn zip(self, o: Sixteen, f: impl Fn(f32, f32) -> f32) -> Sixteen {
        Sixteen(from_fn(|q| Four(from_fn(|l| f(self.0[q].0[l], o.0[q].0[l])))))
    }

    #[inline(always)]
    fn compare(self, o: Sixteen, f: impl Fn(f32, f32) -> bool) -> Bits {
        let ones = |condition| 0u32.wrapping_sub(u32::from(condition));
        Bits(from_fn(|q| from_fn(|l| ones(f(self.0[q].0[l], o.0[q].0[l])))))
    }
}

macro_rules! binary {
    ($($trait:ident $method:ident $op:tt;)*) => { $(
        impl $trait for Sixteen {
            type Output = Sixteen;
            #[inline(always)]
            fn $method(self, o: Sixteen) -> Sixteen {
                self.zip(o, |a, b| a $op b)
            }
        }
    )* };
}

binary! { Add add +; Sub sub -; Mul mul *; Div div /; }

impl Neg for Sixteen {
    type Output = Sixteen;
    #[inline(always)]
    fn neg(self) -> Sixteen {
        self.map(|v| -v)
    }
}

impl Vector for Sixteen {
    type Mask = Bits;

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        from_fn(|k| self.0[k / 4].0[k % 4])
    }
    #[inline(always)]
    fn to_codes(self) -> [u8; LANES] {
        from_fn(|k| self.0[k / 4].0[k % 4] as u8)
    }
    #[inline(always)]
    fn sqrt(self) -> Sixteen {
        self.map(f32::sqrt)
    }
    #[inline(always)]
    fn abs(self) -> Sixteen {
        self.map(f32::abs)
    }
    #[inline(always)]
    fn or_below(self, o: Sixteen) -> Sixteen {
        self.zip(o, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn or_above(self, o: Sixteen) -> Sixteen {
        self.zip(o, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn nearest(self) -> Sixteen {
        self.map(|v| nearest_int(v) as f32)
    }
    #[inline(always)]
    fn nearest_u8(self) -> Sixteen {
        self.map(|v| f32::from(nearest_int(v) as u8))
    }
    #[inline(always)]
    fn round(self) -> Sixteen {
        self.nearest()
    }
    #[inline(always)]
    fn gt(self, o: Sixteen) -> Bits {
        self.compare(o, |a, b| a > b)
    }
    #[inline(always)]
    fn ge(self, o: Sixteen) -> Bits {
        self.compare(o, |a, b| a >= b)
    }
    #[inline(always)]
    fn eq(self, o: Sixteen) -> Bits {
        self.compare(o, |a, b| a == b)
    }
    #[inline(always)]
    fn ne(self, o: Sixteen) -> Bits {
        self.compare(o, |a, b| a != b)
    }
    #[inline(always)]
    fn select(mask: Bits, a: Sixteen, b: Sixteen) -> Sixteen {
        let pick = |m: u32, a: f32, b: f32| f32::from_bits(m & a.to_bits() | !m & b.to_bits());
        Sixteen(from_fn(|q| Four(from_fn(|l| pick(mask.0[q][l], a.0[q].0[l], b.0[q].0[l])))))
    }
}

impl Mask for Bits {
    #[inline(always)]
    fn any(self) -> bool {
        self.0 != [[0; 4]; 4]
    }
    #[inline(always)]
    fn all(self) -> bool {
        self.0 == [[!0; 4]; 4]
    }
}

impl BitAnd for Bits {
    type Output = Bits;
    #[inline(always)]
    fn bitand(self, o: Bits) -> Bits {
        Bits(from_fn(|q| from_fn(|l| self.0[q][l] & o.0[q][l])))
    }
}

impl BitOr for Bits {
    type Output = Bits;
    #[inline(always)]
    fn bitor(self, o: Bits) -> Bits {
        Bits(from_fn(|q| from_fn(|l| self.0[q][l] | o.0[q][l])))
    }
}
