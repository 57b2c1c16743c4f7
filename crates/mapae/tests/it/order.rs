//! Who may import whom.

use std::path::Path;

/// From the ground up: a module imports only from those before it.
const FLOORS: [&[&str]; 3] = [
    &["job", "fault", "breath"],
    &["metrics", "outgoing", "store", "broker", "blob", "handler"],
    &["accept", "worker", "keeper", "testing"],
];

#[test]
fn every_module_imports_only_what_stands_below_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let floor = |module: &str| FLOORS.iter().position(|floor| floor.contains(&module));
    for file in files(&source) {
        let inside = file.strip_prefix(&source).unwrap().to_str().unwrap();
        let module = inside.split(['/', '.']).next().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        // Tests may reach wherever they need to.
        let code = text.split("#[cfg(test)]").next().unwrap();
        for used in code.split("use crate::").skip(1) {
            let used = used.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
            let (Some(mine), Some(theirs)) = (floor(module), floor(used)) else { continue };
            assert!(theirs <= mine, "{inside} imports {used}, which stands above it");
            let strangers = [module, used] == ["store", "broker"] || [module, used] == ["broker", "store"];
            assert!(!strangers, "{inside} imports {used}: store and broker do not know each other");
        }
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
