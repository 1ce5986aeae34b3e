//! The field `lora`: factors of the model's adapters for one request.

use trine::step::Scales;

use super::fields::{Fields, wrong};
use crate::error::ApiError;
use crate::service::Service;

const NAME: &str = "lora";

/// The factors that a request asks for, as llama-server takes them: a list of objects with an `id` and a `scale`, by which
/// adapters that are not named add nothing; `None` without the field: the factors of the command line.
///
/// # Errors
/// A field of a wrong type; an adapter that the model does not have, or one that is named twice.
pub fn adapters(f: &Fields<'_>, service: &Service) -> Result<Option<Scales>, ApiError> {
    let Some(list) = f.list(NAME)? else {
        return Ok(None);
    };
    let has = service.engine.model().weights().adapter_scales().len();
    let mut scales = vec![None; has];
    for value in list {
        let wanted = || wrong(NAME, "an array of objects with 'id' and 'scale'", value);
        let one = Fields::members(value.as_object().ok_or_else(wanted)?);
        let (Some(id), Some(scale)) = (one.integer("id", 0..=i64::MAX)?, one.number("scale")?) else {
            return Err(wanted());
        };
        match scales.get_mut(id as usize) {
            Some(place @ None) => *place = Some(scale),
            Some(Some(_)) => return Err(ApiError::field(NAME, format!("names adapter {id} twice"))),
            None if has == 0 => {
                return Err(ApiError::field(NAME, "the model has no adapters: start the server with --lora"));
            }
            None => {
                return Err(ApiError::field(NAME, format!("there is no adapter {id}; the last one is {}", has - 1)));
            }
        }
    }
    let scales: Vec<f32> = scales.into_iter().map(Option::unwrap_or_default).collect();
    // The same factors as the command line's are the same setting.
    let scales = Scales::from(scales);
    Ok(Some(scales).filter(|scales| scales != service.engine.model().weights().adapter_scales()))
}
