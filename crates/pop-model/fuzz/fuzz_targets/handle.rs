//! Any text as a receipt handle, and any identity as what is sealed in one.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pop_model_fuzz::handle(data));
