//! Any text as every kind of name, and internal names read back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pop_model_fuzz::names(data));
