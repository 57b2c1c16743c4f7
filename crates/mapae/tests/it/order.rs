//! Who may import whom.

use std::collections::BTreeSet;
use std::path::Path;

/// From the ground up: a module imports only from those before it, and from its own floor.
const FLOORS: [&[&str]; 3] = [
    &["job", "fault", "yielding"],
    &["metrics", "outgoing", "store", "broker", "blob", "handler"],
    &["accept", "worker", "keeper", "remote", "testing"],
];

#[test]
fn every_module_imports_only_what_stands_below_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let floor = |module: &str| FLOORS.iter().position(|floor| floor.contains(&module));
    let mut wrong = Vec::new();
    for file in files(&source) {
        let inside = file.strip_prefix(&source).unwrap().to_str().unwrap();
        let module = inside.split(['/', '.']).next().unwrap();
        if module == "lib" || inside.ends_with("/tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        // Tests may reach wherever they need to.
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let mine = floor(module).unwrap_or_else(|| panic!("{module} stands on no floor"));
        for used in named(code) {
            let theirs =
                floor(&used).unwrap_or_else(|| panic!("{inside} names crate::{used}, which is no module"));
            if theirs > mine {
                wrong.push(format!("{inside} imports {used}, which stands above it"));
            }
            if [["store", "broker"], ["broker", "store"]].contains(&[module, used.as_str()]) {
                wrong.push(format!("{inside} imports {used}: store and broker do not know each other"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn whatever_names_a_module_is_seen() {
    let code = "use crate::job::Job;\n// crate::said\nuse crate::{\n    blob::Blobs,\n    store::{self, contract},\n};\n\
                fn f() { crate::worker::start(); $crate::keeper::keep!(); mycrate::none(); }";
    assert_eq!(named(code), ["blob", "job", "keeper", "store", "worker"].map(str::to_owned).into());
}

/// The modules of this crate that the code names, in imports or in the middle of it.
fn named(code: &str) -> BTreeSet<String> {
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => named.extend(heads(group)),
            None => named.extend([head(rest)]),
        }
    }
    named
}

/// The first name of each member of an import group, which begins behind its brace.
fn heads(group: &str) -> Vec<String> {
    let (mut depth, mut heads, mut fresh) = (0, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && depth == 0 && !c.is_whitespace() => {
                heads.push(head(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

fn head(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}
