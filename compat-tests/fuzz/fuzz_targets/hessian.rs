#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| trine_compat_tests::targets::hessian(data));
