//! Small programs behind the pooling: projections of a text's vector, and the head of a ranking model.

use super::lowering::{Lowered, Lowering};
use crate::model::config::Config;
use crate::model::load::Loader;
use crate::program::Value;

impl<'l, 'f> Lowering<'l, 'f> {
    /// The projections of vectors, where the model has them: `dense_3 (dense_2 x)`. `None` also where a tensor is
    /// missing, which is noted.
    pub fn vector_projections(loader: &'l mut Loader<'f>, c: &'l Config) -> Option<Lowered> {
        let [first, second] = ["dense_2", "dense_3"].map(|name| loader.end_linear(name));
        if first.is_none() && second.is_none() {
            return None;
        }
        let first = loader.required(None, "dense_2", first);
        let second = loader.required(None, "dense_3", second);
        let (first, second) = (first?, second?);
        Some(Lowering::new(loader, c).behind_pooling(|all, x| {
            let x = all.product(x, first);
            all.product(x, second)
        }))
    }

    /// The head of a ranking model, where the model has one: one layer, or two with a function and a norm between them.
    pub fn rank_head(loader: &'l mut Loader<'f>, c: &'l Config) -> Option<Lowered> {
        let [first, second] = ["cls", "cls.output"].map(|name| loader.end_linear(name));
        let norm = loader.norm(None, "cls.norm");
        if first.is_none() && second.is_none() {
            return Lowering::yes_or_no(loader, c);
        }
        Some(Lowering::new(loader, c).behind_pooling(|all, mut x| {
            if let Some(first) = first {
                x = all.product(x, first);
                x = all.b.activate("cls_activated", c.arch.rank_activation, x);
                x = all.b.maybe_norm("cls_norm", x, norm);
            }
            if let Some(second) = second {
                x = all.product(x, second);
            }
            match c.arch.yes_or_no {
                true => all.b.soft_max("cls_soft_max", x),
                false => x,
            }
        }))
    }

    /// The head of a model that answers yes or no and has none of its own: the soft-max of the logits of both tokens.
    fn yes_or_no(loader: &'l mut Loader<'f>, c: &'l Config) -> Option<Lowered> {
        if !c.arch.yes_or_no {
            return None;
        }
        let [yes, no] = ["yes", "no"].map(|text| loader.token(text));
        let (yes, no) = (loader.output_row(yes?)?, loader.output_row(no?)?);
        Some(Lowering::new(loader, c).behind_pooling(|all, x| {
            let [yes, no] = [yes, no].map(|row| all.logits(x, row));
            let both = all.b.join("yes_and_no", &[(yes, 1), (no, 1)]);
            all.b.soft_max("yes_or_no", both)
        }))
    }

    /// A program of rows as wide as the residual stream, whose outputs `run` makes.
    fn behind_pooling(mut self, run: impl FnOnce(&mut Self, Value) -> Value) -> Lowered {
        let pooled = self.b.given("pooled", self.c.n_embd);
        let x = self.b.take(pooled);
        let y = run(&mut self, x);
        self.finish(x, Some(y))
    }
}
