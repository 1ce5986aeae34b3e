//! Shared support for the compatibility tests: where the oracle and the golden data come from.
