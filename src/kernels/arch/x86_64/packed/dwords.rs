//! Assembly that multiplies lines of codes, two registers of rows each, with the broadcast dwords of up to four tokens.
//!
//! The compiler would take the loads or the broadcasts of all lines to the front and, having no registers for them,
//! spill them.

/// The sums `$acc`, `[[a, b]; tokens]` in registers of the class `$class`, plus the products of the lines at `$w` with
/// the dwords at `$q` and at every `$stride` bytes after it for each token. A line is two places of codes and one of a
/// dword. `$load!(place, place)` brings its codes to `{w0}` and `{w1}`, `$add!(a, b)` multiplies them with `{y}`; what
/// these need besides are `$operands`.
macro_rules! add_lines {
    (
        $class:ident, $load:ident, $add:ident, {$($operands:tt)*}, ($w:expr, $q:expr, $stride:expr, $acc:expr),
        [$(($first:literal $second:literal $dword:literal))*], [$($acc0:ident $acc1:ident $at:literal),*]
    ) => {{
        let [$([mut $acc0, mut $acc1]),*] = $acc;
        macro_rules! line {
            ($w0:literal, $w1:literal, $y:literal) => {
                concat!(
                    $load!($w0, $w1),
                    $("vpbroadcastd {y}, dword ptr [{q} ", $at, " + ", $y, "]\n", $add!($acc0, $acc1),)*
                )
            };
        }
        std::arch::asm!(
            $(line!($first, $second, $dword),)*
            "/* {stride} {stride3} */", // a use where there is no second or fourth token
            w = in(reg) $w,
            q = in(reg) $q,
            stride = in(reg) $stride,
            stride3 = in(reg) 3 * $stride,
            w0 = out($class) _,
            w1 = out($class) _,
            y = out($class) _,
            $($operands)*
            $($acc0 = inout($class) $acc0, $acc1 = inout($class) $acc1,)*
            options(readonly, nostack, preserves_flags),
        );
        [$([$acc0, $acc1]),*]
    }};
}
pub(super) use add_lines;

/// `$implement!(tokens, sums and places)` for one to four tokens, or for three and four.
macro_rules! for_tokens {
    ($implement:ident) => {
        $implement!(1, [a0 a1 ""]);
        $implement!(2, [a0 a1 "", b0 b1 "+ {stride}"]);
        for_tokens!(3 4 $implement);
    };
    (3 4 $implement:ident) => {
        $implement!(3, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}"]);
        $implement!(4, [a0 a1 "", b0 b1 "+ {stride}", c0 c1 "+ 2*{stride}", d0 d1 "+ {stride3}"]);
    };
}
pub(super) use for_tokens;
