//! The description of the routes.

use serde_json::{Value, json};
use trine::sample::{OPTIONS, Outside};

/// The OpenAPI document: the file beside the sources, with the sampler's options.
pub fn document() -> String {
    const TEXT: &str = include_str!("../../assets/openapi.json");
    let Ok(mut document) = serde_json::from_str::<Value>(TEXT) else {
        return TEXT.to_owned();
    };
    let properties = &mut document["components"]["schemas"]["Sampling"]["properties"];
    for option in OPTIONS {
        let range = option.range;
        let mut property = json!({"type": if range.whole { "integer" } else { "number" }, "description": option.help});
        if range.outside == Outside::Refused && range.low > f64::from(i32::MIN) {
            property["minimum"] = json!(range.low);
        }
        if range.outside == Outside::Refused && range.high < f64::from(i32::MAX) {
            property["maximum"] = json!(range.high);
        }
        properties[option.field] = property;
    }
    document.to_string()
}
