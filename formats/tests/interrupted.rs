//! Files that a killed program leaves behind. A test of its own, because it concerns all writers of the process.
#![allow(missing_docs)]

use std::fs;

use trine_formats::gguf::Metadata;
use trine_formats::gguf::write::{Layout, NewTensor, Writer};
use trine_formats::temp_file::abandon;
use trine_formats::types::TypeId;

#[test]
fn unfinished_files_can_be_removed_before_the_process_ends() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model.gguf");
    let plan = Layout::new(&Metadata::default(), &[NewTensor::new("a", [8], TypeId::F32)]).unwrap();
    let first = Writer::create(&target, plan.clone(), &[]).unwrap();
    let second = Writer::create(&target, plan.clone(), &[]).unwrap();
    let mut third = Writer::create(&target, plan, &[]).unwrap();
    third.tensor("a", &[0; 32]).unwrap();
    third.finish().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    let abandoned = abandon();
    assert_eq!(abandoned.removed.len(), 2);
    assert_eq!(abandoned.kept, std::slice::from_ref(&target));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(abandoned);
    assert!(abandon().removed.is_empty());
    drop((first, second));
    assert!(target.is_file());
}
