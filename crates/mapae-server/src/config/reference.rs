//! The reference page of all keys, made from the table that the reader itself uses.

use std::fmt::Write;

use super::key::{KEYS, Key};

/// What stands above the tables.
const HEAD: &str = "# Reference: configuration

Every key there is. This page is made from the program; what `mapae config explain KEY` says is the same.

A value comes from the first of these that has it: a flag, the environment, the file (`./mapae.toml`, or the one
that `--config` names), the default. A `*` stands for a name you choose, such as a kind; one with a dot is quoted,
as in `[kind.\"document.analyze\"]`. What may be a secret may also be given as `{ file = \"PATH\" }`, or by the
variable with `_FILE` at its end, and is never shown. Unknown keys are errors that name the nearest known one.
";

/// The page, as Markdown: for each key its name, default, possible values and bounds, and meaning.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let mut table = "";
    for key in KEYS {
        let above = key.path.split('.').next().unwrap_or_default();
        if table != above {
            table = above;
            let named = if key.path.starts_with(&format!("{above}.*.")) { ".*" } else { "" };
            let _ = write!(
                page,
                "\n## `[{above}{named}]`\n\n| key | default | what it may be | what it means |\n|---|---|---|---|\n"
            );
        }
        let _ = writeln!(page, "{}", row(key));
    }
    page
}

fn row(key: &Key) -> String {
    let default = key.default.map_or("none".to_owned(), |default| format!("`{default}`"));
    let variable = key.variable().map(|variable| format!("<br>`{variable}`")).unwrap_or_default();
    let secret = if key.secret { " (secret)" } else { "" };
    let cell = |text: &str| text.replace('|', "\\|");
    let meaning = format!("{}{secret}", cell(key.about));
    format!("| `{}`{variable} | {} | {} | {meaning} |", key.path, cell(&default), cell(key.possible))
}
