//! Results of the reference program: `testdata/archs/golden.json`.

use std::collections::BTreeMap;

use serde_json::Value;

/// The reference's view of one model.
pub struct Golden {
    /// The tokens to evaluate, from position 0.
    pub tokens: Vec<u32>,
    /// How many positions a hash of logits covers.
    pub positions: usize,
    /// By tensor type.
    pub forms: BTreeMap<String, Form>,
}

/// A model in one tensor type.
pub struct Form {
    /// SHA-256 of the file.
    pub file: String,
    /// First 16 digits of the SHA-256 of the f32 little-endian logits of each group of positions.
    pub logits: Vec<String>,
}

/// All models by name.
pub fn read() -> BTreeMap<String, Golden> {
    let json: Value = trine_testkit::golden::json("archs/golden.json");
    let models = json["models"].as_object().expect("models");
    let golden = |model: &Value| {
        let ids = list(&json["tokens"][text(&model["tokens"])]).iter();
        Golden {
            tokens: ids.map(|id| number(id) as u32).collect(),
            positions: number(&model["positions"]),
            forms: model["forms"].as_object().expect("forms").iter().map(form).collect(),
        }
    };
    models.iter().map(|(name, model)| (name.clone(), golden(model))).collect()
}

fn form((ty, form): (&String, &Value)) -> (String, Form) {
    let logits = list(&form["logits"]).iter().map(text).collect();
    let file = text(&form["file"]);
    (ty.clone(), Form { file, logits })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("a number") as usize
}
