//! Memory that JavaScript writes and reads.

/// The address of `len` zeros; null where there is no room.
pub fn give(len: usize) -> *mut u8 {
    let mut bytes: Vec<u8> = Vec::new();
    // Null instead of an end of the instance: that a model does not fit is told.
    if bytes.try_reserve_exact(len).is_err() {
        return std::ptr::null_mut();
    }
    bytes.resize(len, 0);
    Box::into_raw(bytes.into_boxed_slice()).cast()
}

/// The bytes that [`give`] has returned, or that were boxed.
///
/// # Safety
/// They were returned so, with this length, and are neither used nor taken a second time.
pub unsafe fn take(at: *mut u8, len: usize) -> Vec<u8> {
    // SAFETY: the caller promises that a boxed slice of this length was turned into this pointer, and is its owner.
    unsafe { Vec::from_raw_parts(at, len, len) }
}
