#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| attache_fuzz::mcp(data));
