//! Four floats side by side, for searches that run the same chain of operations on several groups.
//!
//! Every operation is the scalar one in each lane, rounded separately. The shape is what matters: given
//! loops over one flat array of lanes the compiler packs unlike sums together and spends half of the
//! time on shuffles; given these groups of four it keeps each in a vector register.

use super::num::nearest_int;
use std::array::from_fn;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Sub};

/// Four floats.
#[derive(Clone, Copy)]
pub(super) struct F4([f32; 4]);

/// Four truth values, as all ones or all zeros: selecting is then bitwise, which vectorizes.
#[derive(Clone, Copy)]
pub(super) struct Mask([u32; 4]);

macro_rules! binary {
    ($($trait:ident $method:ident $op:tt;)*) => { $(
        impl $trait for F4 {
            type Output = F4;
            #[inline(always)]
            fn $method(self, o: F4) -> F4 {
                F4(from_fn(|l| self.0[l] $op o.0[l]))
            }
        }
    )* };
}

binary! { Add add +; Sub sub -; Mul mul *; Div div /; }

impl Neg for F4 {
    type Output = F4;
    #[inline(always)]
    fn neg(self) -> F4 {
        F4(self.0.map(|v| -v))
    }
}

impl F4 {
    /// The same value in all lanes.
    #[inline(always)]
    pub fn splat(v: f32) -> F4 {
        F4([v; 4])
    }

    /// Lane 0 first.
    #[inline(always)]
    pub fn new(v: [f32; 4]) -> F4 {
        F4(v)
    }

    /// Lane 0 first.
    #[inline(always)]
    pub fn to_array(self) -> [f32; 4] {
        self.0
    }

    /// `if self < o { self } else { o }`.
    #[inline(always)]
    pub fn or_below(self, o: F4) -> F4 {
        F4(from_fn(|l| {
            if self.0[l] < o.0[l] {
                self.0[l]
            } else {
                o.0[l]
            }
        }))
    }

    /// `if self > o { self } else { o }`.
    #[inline(always)]
    pub fn or_above(self, o: F4) -> F4 {
        F4(from_fn(|l| {
            if self.0[l] > o.0[l] {
                self.0[l]
            } else {
                o.0[l]
            }
        }))
    }

    #[inline(always)]
    pub fn abs(self) -> F4 {
        F4(self.0.map(f32::abs))
    }

    #[inline(always)]
    pub fn sqrt(self) -> F4 {
        F4(self.0.map(f32::sqrt))
    }

    /// `num::nearest_int` as a float.
    #[inline(always)]
    pub fn nearest(self) -> F4 {
        F4(self.0.map(|v| nearest_int(v) as f32))
    }

    #[inline(always)]
    pub fn gt(self, o: F4) -> Mask {
        Mask(from_fn(|l| ones(self.0[l] > o.0[l])))
    }

    #[inline(always)]
    pub fn eq(self, o: F4) -> Mask {
        Mask(from_fn(|l| ones(self.0[l] == o.0[l])))
    }

    /// Not equal; true when either is NaN.
    #[inline(always)]
    pub fn ne(self, o: F4) -> Mask {
        Mask(from_fn(|l| ones(self.0[l] != o.0[l])))
    }
}

fn ones(condition: bool) -> u32 {
    0u32.wrapping_sub(u32::from(condition))
}

impl Mask {
    /// `if self { a } else { b }` per lane.
    #[inline(always)]
    pub fn select(self, a: F4, b: F4) -> F4 {
        F4(from_fn(|l| {
            f32::from_bits(self.0[l] & a.0[l].to_bits() | !self.0[l] & b.0[l].to_bits())
        }))
    }

    /// Whether any lane is true.
    #[inline(always)]
    pub fn any(self) -> bool {
        self.0 != [0; 4]
    }
}

impl BitAnd for Mask {
    type Output = Mask;
    #[inline(always)]
    fn bitand(self, o: Mask) -> Mask {
        Mask(from_fn(|l| self.0[l] & o.0[l]))
    }
}

impl BitOr for Mask {
    type Output = Mask;
    #[inline(always)]
    fn bitor(self, o: Mask) -> Mask {
        Mask(from_fn(|l| self.0[l] | o.0[l]))
    }
}
