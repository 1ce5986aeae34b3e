//! Malformed GGUF files: each is refused with an error that names the place and the field, without
//! much memory and without work out of proportion to the file's length.
#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::prelude::*;
use trine_formats::gguf::write::Layout as Plan;
use trine_formats::gguf::{ErrorKind, Gguf, GgufError, Limits};
use trine_testkit::raw::{File, sample, tensors};

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting what the current thread holds.
struct Counting;

// SAFETY: memory is `System`'s, asked for and given back with the same layout; the counters are plain thread-local
// cells without destructor, whose access never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(LIVE.get()));
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Parses and checks the cost: under 64 MB at the peak, and no more allocations than the file has bytes.
fn parse(bytes: &[u8]) -> Result<Gguf, GgufError> {
    LIVE.set(0);
    PEAK.set(0);
    CALLS.set(0);
    let result = Gguf::parse(bytes, &Limits::default());
    let (peak, calls) = (PEAK.get(), CALLS.get());
    assert!(peak < 64_000_000, "{peak} bytes at the peak");
    assert!(calls <= 32 + bytes.len(), "{calls} allocations for {} bytes", bytes.len());
    result
}

/// The file must be refused, at `offset`, with this field and this problem.
#[track_caller]
fn refused(file: &File, offset: u64, field: &str, problem: &str) {
    let error = parse(&file.0).expect_err("accepted");
    assert_eq!(error.field, field, "{error}");
    assert_eq!(error.offset, Some(offset), "{error}");
    assert!(error.kind.to_string().contains(problem), "{error}");
}

#[test]
fn header() {
    refused(&File::default(), 0, "", "the file is empty");
    refused(&File(b"GGU".to_vec()), 0, "header: magic", "needs 4 bytes where 3 are left");
    refused(&File(b"abc".to_vec()), 0, "header", "starts with \"abc\"");
    refused(&File(b"GGML0000".to_vec()), 0, "header", "not a GGUF file: it starts with \"GGML\"");
    refused(&File(b"GGUF".to_vec()), 4, "header: version", "needs 4 bytes where 0 are left");
    for version in [0, 1, 4, 77] {
        let file = File(b"GGUF".to_vec()).u32(version).u64(0).u64(0);
        refused(&file, 4, "header: version", &format!("GGUF version {version} is not supported"));
    }
    for version in [2u32, 3] {
        let file = File(b"GGUF".to_vec()).u32(version.swap_bytes()).u64(0).u64(0);
        refused(&file, 4, "header: version", "big-endian");
    }
    for count in [u64::MAX, 1 << 62, 25] {
        refused(&File::new(count, 0), 8, "header: number of tensors", &format!("claims {count} entries"));
        refused(&File::new(0, count), 16, "header: number of keys", &format!("claims {count} entries"));
    }
}

/// The smallest tensor takes 32 bytes, the smallest key 14.
#[test]
fn counts_of_entries_are_held_against_their_smallest_size() {
    let zeros = vec![0; 3200];
    refused(&File::new(101, 0).raw(&zeros), 8, "header: number of tensors", "claims 101 entries");
    refused(&File::new(0, 229).raw(&zeros), 16, "header: number of keys", "claims 229 entries");
}

#[test]
fn counts_that_the_file_could_hold_stay_within_the_budget() {
    // 40 MB of zeros could be 2.8 million keys or 1.2 million tensors by their smallest size.
    let file = File::new(0, 2_800_000).raw(&vec![0; 40_000_000]);
    refused(&file, 24, "header: number of keys", "bytes of memory");
    let file = File::new(1_200_000, 0).raw(&vec![0; 40_000_000]);
    refused(&file, 24, "header: number of tensors", "bytes of memory");
}

#[test]
fn truncation_at_every_byte() {
    let whole = sample();
    assert_eq!(parse(&whole.0).unwrap().tensors.len(), 3);
    for n in 0..whole.0.len() {
        let error = parse(&whole.0[..n]).expect_err(&format!("{n} bytes accepted"));
        assert!(
            matches!(
                error.kind,
                ErrorKind::Empty
                    | ErrorKind::Truncated { .. }
                    | ErrorKind::Count { .. }
                    | ErrorKind::DataTruncated { .. }
            ),
            "{n}: {error}"
        );
    }
}

#[test]
fn keys() {
    for length in [1 << 63, 1 << 30, 13] {
        let file = File::new(0, 1).u64(length).raw(&[b'k'; 12]);
        refused(&file, 24, "key number 0", &format!("needs {length} bytes where 12 are left"));
    }
    let long = File::new(0, 1).key([b'k'; 70_000], 4).u32(1);
    refused(&long, 24, "key number 0", "is 70000 bytes long, at most 65535");
    refused(&File::new(0, 1).key("", 4).u64(0), 24, "key ''", "is empty");
    refused(&File::new(0, 1).key(b"\xffk", 4).u32(0), 24, "key number 0", "not valid UTF-8");
    refused(&File::new(0, 1).key("a\0b", 4).u32(0), 24, "key number 0", "NUL");
    let twice = File::new(0, 2).kv_u32("key", 1).kv_u32("key", 1);
    refused(&twice, 24 + 19, "key 'key'", "appears twice");
}

#[test]
fn values() {
    for ty in [13, u32::MAX] {
        refused(&File::new(0, 1).key("k", ty).u64(0), 33, "key 'k'", &format!("{ty} is not a GGUF value type"));
    }
    for length in [1 << 63, 1 << 30, 13] {
        let file = File::new(0, 1).key("k", 8).u64(length).raw(&[b'k'; 12]);
        refused(&file, 37, "key 'k'", &format!("needs {length} bytes where 12 are left"));
    }
    refused(&File::new(0, 1).key("k", 7).raw(&[2]), 37, "key 'k'", "must be 0 or 1, not 2");
    let bools = File::new(0, 1).key("k", 9).u32(7).u64(3).raw(&[0, 1, 3]);
    refused(&bools, 37 + 12 + 2, "key 'k'", "must be 0 or 1, not 3");
}

#[test]
fn arrays() {
    for ty in [13, u32::MAX] {
        let file = File::new(0, 1).key("k", 9).u32(ty).u64(0);
        refused(&file, 37, "key 'k'", &format!("{ty} is not a GGUF value type"));
    }
    for ty in [0u32, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12] {
        // 2^61 and more: times the element's size it wraps around.
        for n in [1 << 63, 1 << 61, u64::MAX, 17] {
            let file = File::new(0, 1).key("k", 9).u32(ty).u64(n).raw(&[0; 16]);
            refused(&file, 41, "key 'k'", &format!("claims {n} entries"));
        }
    }
    let mut nested = File::new(0, 1).key("k", 9);
    for depth in 1..=100_000 {
        nested = nested.u32(9).u64(1);
        if [1, 64, 100_000].contains(&depth) {
            refused(&nested.clone().u32(0).u64(0), 37, "key 'k'", "array of arrays");
        }
    }
    let short = File::new(0, 1).key("k", 9).u32(8).u64(2).str("ab").u64(9).raw(&[0; 4]);
    refused(&short, 49 + 10, "key 'k'", "needs 9 bytes where 4 are left");
}

#[test]
fn values_beyond_the_memory_budget_are_refused_before_they_are_copied() {
    let zeros = vec![0; 70_000_000];
    for (ty, n) in [(0, 70_000_000), (7, 70_000_000), (5, 17_500_000), (12, 8_750_000)] {
        let file = File::new(0, 1).key("k", 9).u32(ty).u64(n).raw(&zeros);
        refused(&file, 49, "key 'k'", "would take 70000000 bytes of memory");
    }
    refused(&File::new(0, 1).key("k", 8).str(&zeros), 37, "key 'k'", "bytes of memory");
}

#[test]
fn ten_million_strings_of_one_byte_cost_less_than_the_file() {
    let mut file = File::new(0, 1).key("k", 9).u32(8).u64(10_000_000);
    file.0.reserve(90_000_000);
    for _ in 0..10_000_000 {
        file.0.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, b'x']);
    }
    let gguf = parse(&file.0).unwrap();
    let strings = gguf.meta.get_strs("k").unwrap().unwrap();
    assert_eq!((strings.len(), strings.get(9_999_999)), (10_000_000, Some(&b"x"[..])));
    let twice = File(file.0.clone()).key("l", 9).u32(8).u64(10_000_000).raw(&file.0[49..]);
    let mut twice = twice;
    twice.0[16] = 2;
    let error = parse(&twice.0).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Memory { .. }) && error.field == "key 'l'", "{error}");
}

#[test]
fn alignment() {
    let with = |a: u32| File::new(0, 1).kv_u32("general.alignment", a);
    for a in [0, 3, 13, 1 << 20, 1 << 31, u32::MAX] {
        refused(&with(a), 24, "key 'general.alignment'", &format!("{a} is not a usable alignment"));
    }
    for a in [1, 8, 32, 64, 4096, 1 << 16] {
        assert_eq!(with(a).parse().unwrap().alignment, u64::from(a));
    }
    let file = File::new(0, 1).key("general.alignment", 5).u32(32);
    refused(&file, 24, "key 'general.alignment'", "is of type i32, expected u32");
    let file = File::new(0, 1).key("general.alignment", 8).str("32");
    refused(&file, 24, "key 'general.alignment'", "is of type str, expected u32");
    // The offsets are those of alignment 32.
    let file = File::new(2, 1).kv_u32("general.alignment", 64);
    let b = file.size() + 33;
    let file = file.tensor("a", &[8], 0, 0).tensor("b", &[8], 0, 32).pad(64).data(128);
    refused(&file, b, "tensor 'b'", "data offset 32 is not a multiple of the alignment 64");
}

#[test]
fn tensor_names_and_shapes() {
    let file = File::new(1, 0).u64(1 << 63).raw(&[b'n'; 40]);
    refused(&file, 24, "tensor number 0: name", "needs 9223372036854775808 bytes");
    let row = |name: &[u8]| File::new(1, 0).tensor(name, &[1], 0, 0).pad(32).data(4);
    refused(&row(&[b'n'; 64]), 24, "tensor number 0: name", "is 64 bytes long, at most 63");
    refused(&row(b"a\xff"), 24, "tensor number 0: name", "not valid UTF-8");
    refused(&row(b"a\0b"), 24, "tensor number 0: name", "NUL");
    assert!(row(&[b'n'; 63]).parse().is_ok());
    let file = tensors(&[("a", &[8], 0, 0), ("a", &[8], 0, 32)], 64);
    refused(&file, 24 + 33, "tensor 'a'", "appears twice");

    for n_dims in [0, 5, u32::MAX] {
        let file = File::new(1, 0).str("a").u32(n_dims).raw(&[0; 64]);
        refused(&file, 33, "tensor 'a'", &format!("has {n_dims} dimensions"));
    }
    let file = tensors(&[("a", &[1, 1 << 63], 0, 0)], 64);
    refused(&file, 37 + 8, "tensor 'a'", "dimension 1 is negative");
    let wraps: [&[u64]; 3] = [&[1 << 32, 1 << 32], &[1 << 62, 4], &[1 << 21, 1 << 21, 1 << 21, 2]];
    for shape in wraps {
        let file = tensors(&[("a", shape, 24, 0)], 64);
        refused(&file, 37 + 8 * shape.len() as u64, "tensor 'a'", "more elements or bytes");
    }
    let file = tensors(&[("a", &[1 << 61, 2], 28, 0)], 64);
    refused(&file, 37 + 16, "tensor 'a'", "more elements or bytes");
    for (ty, columns) in [(2, 31), (12, 100), (35, 640), (41, 64)] {
        let file = tensors(&[("a", &[columns], ty, 0)], 640);
        refused(&file, 37 + 8, "tensor 'a'", "which is no multiple");
    }
}

#[test]
fn a_dimension_of_zero_is_an_empty_tensor_as_in_ggml() {
    let file = tensors(&[("a", &[0, 4], 0, 0), ("b", &[8], 0, 0)], 32);
    let gguf = file.parse().unwrap();
    assert_eq!((gguf.tensors[0].bytes, gguf.tensors[1].bytes), (0, 32));
}

#[test]
fn tensor_types() {
    for ty in [1 << 31, u32::MAX] {
        let file = tensors(&[("a", &[256], ty, 0)], 64);
        refused(&file, 37 + 8, "tensor 'a'", &format!("{} is not a tensor type", ty as i32));
    }
    // Removed, forks' and future types are kept, with what lies between them and the next tensor.
    for ty in [4, 5, 31, 32, 33, 36, 37, 38, 44, 142, 1000, i32::MAX as u32] {
        let file = tensors(&[("a", &[512], ty, 0), ("b", &[8], 0, 96)], 128);
        let gguf = parse(&file.0).unwrap();
        assert_eq!((gguf.tensors[0].ty.0, gguf.tensors[0].bytes), (ty, 96));
        assert_eq!(gguf.tensors[1].bytes, 32);
        let file = tensors(&[("a", &[512], ty, 0)], 70);
        assert_eq!(parse(&file.0).unwrap().tensors[0].bytes, 70);
        // Nothing between it and the next: there is no room for its weights.
        let file = tensors(&[("a", &[512], ty, 0), ("b", &[8], 0, 0)], 128);
        refused(&file, 24, "tensor 'a'", "truncated");
    }
}

#[test]
fn tensor_placement() {
    let two = |second: u64, data: usize| tensors(&[("a", &[8], 0, 0), ("b", &[8], 0, second)], data);
    assert!(two(32, 64).parse().is_ok());
    let b = 24 + 33;
    refused(&two(33, 96), b, "tensor 'b'", "data offset 33 is not a multiple of the alignment 32");
    refused(&two(0, 96), b, "tensor 'b'", "data offset is 0 where the tensors before it end at 32");
    refused(&two(64, 96), b, "tensor 'b'", "data offset is 64 where the tensors before it end at 32");
    refused(&two(1 << 40, 96), b, "tensor 'b'", "data offset is 1099511627776");
    let unordered = tensors(&[("b", &[8], 0, 32), ("a", &[8], 0, 0)], 64);
    refused(&unordered, 24, "tensor 'b'", "data offset is 32 where the tensors before it end at 0");
    refused(&two(32, 63), b, "tensor 'b'", "the tensor needs bytes 128..160, the file has 159");
    refused(&two(32, 31), 24, "tensor 'a'", "the tensor needs bytes 96..128, the file has 127");
    let huge = 0x7fff_ffff_ffff_ffc0;
    let wraps = tensors(&[("a", &[huge], 24, 0), ("b", &[huge], 24, huge)], 64);
    refused(&wraps, 24, "tensor 'a'", "truncated");
    let missing = File::new(1, 0).tensor("a", &[8], 0, 0);
    refused(&missing, missing.size(), "data section", "cut off");
    // The padding after the last tensor is not data.
    assert!(tensors(&[("a", &[1], 0, 0)], 4).parse().is_ok());
}

#[test]
fn sizes_whose_sum_wraps_are_refused_before_they_are_added() {
    // Unknown types take their size from the offsets, so the sums are tried with those too.
    let huge = 0xffff_ffff_ffff_ffe0;
    let file = tensors(&[("a", &[1], 99, 0), ("b", &[1], 99, huge), ("c", &[1], 24, 32)], 64);
    refused(&file, 24, "tensor 'a'", "truncated");
}

fn idempotent(bytes: &[u8]) {
    if let Ok(gguf) = parse(bytes) {
        let plan = match Plan::copy_of(&gguf) {
            // a number that trine does not know in this file would be known in a copy of another length
            Err(e) if matches!(e.kind, ErrorKind::Misread { .. }) => return,
            plan => plan.expect("what was read can be written"),
        };
        let mut copy = plan.header().to_vec();
        copy.extend_from_slice(&bytes[gguf.data_offset as usize..]);
        copy.resize(copy.len().max(plan.file_bytes() as usize), 0);
        let again = Gguf::parse(&copy, &Limits::default()).expect("what was written can be read");
        assert_eq!((again.version, again.alignment), (gguf.version, gguf.alignment));
        assert_eq!(format!("{:?}", again.meta), format!("{:?}", gguf.meta));
        assert_eq!(again.tensors.len(), gguf.tensors.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_bytes_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = sample().0;
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        idempotent(&bytes);
    }

    #[test]
    fn mutated_fields_never_panic(
        at in any::<prop::sample::Index>(),
        value in prop::sample::select(vec![0u64, 1, 1 << 31, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX, 0xffff_ffff_ffff_ffe0]),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = sample().0;
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        idempotent(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        idempotent(&bytes);
    }
}
