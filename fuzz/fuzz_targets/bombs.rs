#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mapae_document::fuzz::target("bombs")(data));
