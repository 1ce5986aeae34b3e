//! Small programs: what is fused, when values end, and how much memory a pass takes.

use trine_formats::types::TypeId;

use super::*;
use crate::ops::activation::Activation;
use crate::ops::norm::{Kind, Norm};

const WIDTH: usize = 8;

fn norm() -> Norm {
    Norm { kind: Kind::Rms, eps: 0.0, row: WIDTH, gains: vec![1.0; WIDTH], bias: None }
}

/// A matrix of the program under test.
fn product(b: &mut Builder, tensor: &str, rows: usize, columns: usize) -> Product {
    let info = MatrixInfo { tensor: tensor.to_owned(), ty: TypeId::F32, rows, columns, first_row: 0 };
    Product { matrix: b.matrix(info), observed: true, scale: None, adapters: Vec::new() }
}

/// A model of one gated network between two norms; `change` may do something to the gated values.
fn gated_network(change: impl FnOnce(&mut Builder, Value) -> Value) -> Program {
    let mut b = Builder::default();
    let table = product(&mut b, "token_embd.weight", 32, WIDTH).matrix;
    let x = b.embed(table);
    b.begin_block();
    let normed = b.norm("ffn_norm", x, norm());
    let [gate, up] = ["gate", "up"].map(|name| product(&mut b, name, 3 * WIDTH, WIDTH));
    let down = product(&mut b, "down", WIDTH, 3 * WIDTH);
    let (gate, up) = (b.product(normed, gate), b.product(normed, up));
    let y = b.gate("ffn_gated", Activation::Silu, gate, up);
    let y = change(&mut b, y);
    let y = b.product(y, down);
    let x = b.add("residual", x, y);
    let x = b.norm("behind", x, norm());
    b.end_block();
    let x = b.take(x);
    let hidden = b.norm("output_norm", x, norm());
    let output = product(&mut b, "output.weight", 32, WIDTH);
    let logits = b.product(hidden, output);
    b.finish(hidden, Some(logits))
}

fn names(program: &Program) -> Vec<&'static str> {
    program.operations().iter().map(|operation| operation.op.name()).collect()
}

#[test]
fn neighbours_are_fused_where_nothing_else_reads_what_is_between() {
    let program = gated_network(|_, y| y);
    let fused = ["embed", "norm", "gated_products", "add_norm", "take", "norm", "products"];
    assert_eq!(names(&program), fused);
    assert_eq!((program.start(), program.blocks()[0].clone(), program.head()), (0..1, 1..4, 4..7));
    // a clamp between the products keeps them apart; gate and up stay side by side
    let program = gated_network(|b, y| b.clamp("clamped", y, 1.0));
    assert_eq!(names(&program)[1..6], ["norm", "products", "gate", "clamp", "products"]);
    let operation = &program.operations()[2];
    assert_eq!((operation.inputs.len(), operation.outputs.len()), (1, 2));
}

#[test]
fn nothing_is_fused_across_the_border_of_a_block() {
    let mut b = Builder::default();
    let table = product(&mut b, "token_embd.weight", 32, WIDTH).matrix;
    let x = b.embed(table);
    b.begin_block();
    let x = b.add("residual", x, x);
    b.begin_block();
    let x = b.norm("attn_norm", x, norm());
    b.end_block();
    let hidden = b.take(x);
    let output = product(&mut b, "output.weight", 32, WIDTH);
    let logits = b.product(hidden, output);
    let program = b.finish(hidden, Some(logits));
    assert_eq!(names(&program), ["embed", "add", "norm", "take", "products"]);
    assert_eq!(program.blocks(), [1..2, 2..3]);
    // the second block reads the first one's residual stream alone
    assert_eq!(program.entering(2), program.operations()[1].outputs);
}

#[test]
fn values_end_with_the_operation_that_reads_them_last() {
    let program = gated_network(|_, y| y);
    let (plan, operations) = (program.plan(), program.operations());
    let embedding = operations[0].outputs[0];
    assert!(!plan.ends(embedding, 1) && plan.ends(embedding, 3));
    // what leaves the program does not end in it
    for value in [program.stream(), program.hidden(), program.logits()] {
        assert!((0..operations.len()).all(|at| !plan.ends(value, at)));
    }
    // at the sum: the stream, the network's output, and both results
    assert_eq!(plan.bytes(2), 2 * 4 * (4 * WIDTH));
}

#[test]
fn matrices_of_a_stack_are_shown_as_one_and_parts_of_a_tensor_are_not() {
    let mut b = Builder::default();
    let table = product(&mut b, "token_embd.weight", 32, WIDTH).matrix;
    let x = b.embed(table);
    b.begin_block();
    let scores = product(&mut b, "router", 4, WIDTH);
    let scores = b.product(x, scores);
    let choosing = crate::ops::experts::Choosing {
        experts: 4,
        used: 2,
        gating: crate::ops::experts::Gating::SoftMax,
        claim: crate::ops::experts::Claim::Probabilities,
        shared_by: 1,
        bias: None,
        groups: None,
        normalize: false,
        scale: None,
        table: None,
    };
    let choice = b.choose("experts", scores, choosing);
    let rows = b.dispatch("rows", x, choice, false);
    // both halves of one tensor, a matrix of each for each expert
    let mut half = |first_row| {
        let from = b.matrices();
        for _ in 0..4 {
            b.matrix(MatrixInfo { tensor: "gate_up".into(), ty: TypeId::F32, rows: 3, columns: WIDTH, first_row });
        }
        let matrices = from..b.matrices();
        Stack { matrices, observed: first_row == 0, scales: None, biases: None, adapters: vec![Vec::new(); 4] }
    };
    let halves = [half(0), half(3)];
    let [gate, up] = halves.map(|stack| b.product_of_experts("half", rows, choice, stack));
    let y = b.gate("gated", Activation::Silu, gate, up);
    let y = b.combine("sum", y, choice, true);
    b.end_block();
    let hidden = b.take(y);
    let output = product(&mut b, "output.weight", 32, 3);
    let logits = b.product(hidden, output);
    let program = b.finish(hidden, Some(logits));
    let lines = program.lines();
    let products = lines.iter().find(|line| line.operation == "products_of_experts").expect("the products");
    let shown: Vec<_> = products.matrices.iter().map(|m| (&m.tensor[..], m.count)).collect();
    assert_eq!(shown, [("gate_up", 4), ("gate_up", 4)]);
}
