//! Functions of traits whose implementations are an expression of intrinsics each.

/// Functions of a trait that ask their caller for the same, `$promise`, and some of them for more:
/// `name[generics](arguments) -> result: "more";`.
macro_rules! unsafe_functions {
    ($promise:literal; $(
        $(#[$doc:meta])* $name:ident $([$($generics:tt)*])? ($($arguments:tt)*) -> $out:ty $(: $more:literal)?;
    )*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        #[doc = concat!($promise $(, " ", $more)?)]
        unsafe fn $name $(<$($generics)*>)? ($($arguments)*) -> $out;
    )* };
}
pub(crate) use unsafe_functions;

/// Their implementations, `name[generics](arguments) -> result { expression }`, which have the attributes that stand
/// before all of them.
macro_rules! functions {
    (@ [$($attribute:tt)*] $name:ident [$($generics:tt)*] ($($arguments:tt)*) $out:ty, $body:block) => {
        $($attribute)*
        /// # Safety
        /// As in the trait.
        unsafe fn $name<$($generics)*>($($arguments)*) -> $out {
            // SAFETY: the caller has the instruction set and what is read or written.
            #[allow(unused_unsafe, reason = "most of them touch no memory")]
            unsafe { $body }
        }
    };
    ($attributes:tt $(
        $name:ident $([$($generics:tt)*])? ($($arguments:tt)*) -> $out:ty $body:block
    )*) => {
        $(functions!(@ $attributes $name [$($($generics)*)?] ($($arguments)*) $out, $body);)*
    };
}
pub(crate) use functions;
