//! Files that appear when they are whole, written by several threads at once.

use std::io::Write as _;
use std::{fs, thread};

use trine_formats::temp_file::TempFile;
use trine_testkit::TempDir;

/// Threads of one process use the same temporary names one after the other: whoever is done with a name leaves it to
/// the next.
#[test]
fn threads_that_write_the_same_file_leave_each_other_alone() {
    let folder = TempDir::new().unwrap();
    let target = folder.path().join("main");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let (temporary, mut file) = TempFile::create(&target).unwrap();
                    file.write_all(b"whole").unwrap();
                    temporary.keep(&target).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read(&target).unwrap(), b"whole");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
