//! Fusions: several operations become one with the same bits, where executors do that faster.

use std::collections::HashMap;

use super::op::{Op, Product};
use super::operation::{Operation, Order};
use super::value::Value;

/// All fusions of some operations; the values in `leaving` are read behind them.
pub(super) fn all(order: &mut Order, leaving: &[Value]) {
    let inputs = order.operations.iter().flat_map(|operation| &operation.inputs);
    let mut readers: HashMap<Value, usize> = HashMap::new();
    inputs.chain(leaving).for_each(|value| *readers.entry(*value).or_default() += 1);
    let once = |value: &Value| readers.get(value) == Some(&1);
    fuse(order, |into, next| side_by_side(into, next));
    fuse(order, |into, next| gated(into, next, once));
    fuse(order, |into, next| sum_and_norm(into, next));
}

/// Goes through the operations in order and lets `join` put each into what was kept before it; it stands for itself
/// where that says no. Nothing is joined across the border of a block.
fn fuse(order: &mut Order, mut join: impl FnMut(&mut Vec<Operation>, &Operation) -> bool) {
    let mut borders: Vec<usize> = order.blocks.iter().flat_map(|block| [block.start, block.end]).collect();
    borders.push(order.head);
    borders.push(order.head + 1);
    let mut moved = vec![0; order.operations.len() + 1];
    let mut kept: Vec<Operation> = Vec::with_capacity(order.operations.len());
    let mut part: Vec<Operation> = Vec::new();
    for (at, operation) in std::mem::take(&mut order.operations).into_iter().enumerate() {
        if borders.contains(&at) {
            kept.append(&mut part);
        }
        moved[at] = kept.len() + part.len();
        if !join(&mut part, &operation) {
            part.push(operation);
        }
    }
    kept.append(&mut part);
    if let Some(end) = moved.last_mut() {
        *end = kept.len();
    }
    order.operations = kept;
    for block in &mut order.blocks {
        *block = moved[block.start]..moved[block.end];
    }
    order.head = moved[order.head];
}

/// Products of the same rows that follow each other: one operation, so that threads need not meet between them.
fn side_by_side(before: &mut [Operation], next: &Operation) -> bool {
    let Some(last) = before.last_mut() else {
        return false;
    };
    if last.inputs != next.inputs {
        return false;
    }
    match (&mut last.op, &next.op) {
        (Op::Products(all), Op::Products(more)) => all.extend_from_slice(more),
        (Op::ProductsOfExperts(all), Op::ProductsOfExperts(more)) => all.extend_from_slice(more),
        _ => return false,
    }
    last.outputs.extend_from_slice(&next.outputs);
    true
}

/// A gated network of which nothing but the products is asked: one operation, whose values need not leave the cache.
fn gated(before: &mut Vec<Operation>, next: &Operation, once: impl Fn(&Value) -> bool) -> bool {
    let plain = |p: &Product| p.scale.is_none() && p.adapters.is_empty();
    let [.., first, gate] = &before[..] else {
        return false;
    };
    let (Op::Products(both), Op::Gate(activation), Op::Products(down)) = (&first.op, &gate.op, &next.op) else {
        return false;
    };
    let ([g, u], [d]) = (&both[..], &down[..]) else {
        return false;
    };
    let connected = first.outputs == gate.inputs && gate.outputs == next.inputs;
    // Adapters want the values between the products.
    let bare = plain(g) && plain(u) && d.adapters.is_empty();
    if !connected || !bare || !first.outputs.iter().chain(&gate.outputs).all(once) {
        return false;
    }
    let products = Box::new([g.clone(), u.clone(), d.clone()]);
    let fused = Operation {
        op: Op::GatedProducts(products, *activation),
        inputs: first.inputs.clone(),
        outputs: next.outputs.clone(),
    };
    before.truncate(before.len() - 2);
    before.push(fused);
    true
}

/// A sum and its norm: one pass over the rows.
fn sum_and_norm(before: &mut [Operation], next: &Operation) -> bool {
    let (Some(last), Op::Norm(norm)) = (before.last_mut(), &next.op) else {
        return false;
    };
    if !matches!(last.op, Op::Add) || last.outputs != next.inputs {
        return false;
    }
    last.op = Op::AddNorm(norm.clone());
    last.outputs.extend_from_slice(&next.outputs);
    true
}
