//! Any bytes as every kind of value, in and out of a good envelope.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pop_model_fuzz::values(data));
