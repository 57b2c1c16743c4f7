//! The packs against what the packages they come from answered.

mod classes;
mod encoder;
mod kinds;
mod korean;

use std::path::{Path, PathBuf};

use mapae_ai::models::Models;
use serde_json::Value;

/// The packs that `cargo xtask models` makes.
fn models() -> Models {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let models = Models::open(&folder).expect("the packs are whole");
    assert!(models.missing().is_empty(), "no packs in {}: run `cargo xtask models`", folder.display());
    models
}

/// The rows of a file of frozen answers.
fn frozen(file: &str) -> Vec<Value> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/it/data", file].iter().collect();
    let rows = std::fs::read_to_string(path).expect("the file is there");
    rows.lines().map(|row| serde_json::from_str(row).expect("a row is JSON")).collect()
}
