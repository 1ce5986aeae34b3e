//! Errors, as answers have them.

/// The message of an error, in one line.
pub type Failure = String;

/// An error as one line.
pub fn told(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}
