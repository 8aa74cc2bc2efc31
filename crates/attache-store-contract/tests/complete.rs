//! Every test of the suite is listed in one of the macros.

use std::fs;
use std::path::Path;

#[test]
fn every_test_is_listed_in_a_macro() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let listed = fs::read_to_string(source.join("lib.rs")).unwrap();
    let mut count = 0;
    for file in fs::read_dir(source).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for name in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next()) {
            assert!(
                listed.contains(&format!("                {name},\n")),
                "`{name}` is not listed in `lib.rs`"
            );
            count += 1;
        }
    }
    assert!(count > 100, "{count} tests");
}
