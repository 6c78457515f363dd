//! Any bytes as every kind of key: decode or fail cleanly, and one form for each key.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pop_model_fuzz::keys(data));
