//! Settings as people read them: one key with where its value came from, or all of them as TOML.

use std::fmt::Write;

use toml::Value;

use super::key::{self, KEYS, Key};
use super::layer::{Setting, Settings, default_value};
use super::nearest::nearest;
use super::secret::Address;

impl Settings {
    /// `config explain KEY`; `Err` has the nearest known key where this is none.
    pub fn explain(&self, text: &str) -> Result<String, Option<String>> {
        let path = key::parse(text);
        let Some(key) = key::find(&path) else {
            return Err(nearest(text, KEYS.iter().map(|key| key.path)).map(str::to_owned));
        };
        let mut out = format!("{}\n  {}\n", key::show(&path), key.about);
        match self.get(&path) {
            Some(setting) => {
                let _ = writeln!(out, "  value:    {}", shown(key, setting));
                let _ = writeln!(out, "  from:     {}", setting.origin);
            }
            None => {
                let _ = writeln!(out, "  value:    {}", key.default.unwrap_or("not set"));
                let _ = writeln!(out, "  from:     the default");
            }
        }
        let _ = writeln!(out, "  possible: {}", key.possible);
        let _ = writeln!(out, "  default:  {}", key.default.unwrap_or("none"));
        if let Some(variable) = key.variable() {
            let file = if key.secret { format!(" or {variable}_FILE") } else { String::new() };
            let _ = writeln!(out, "  variable: {variable}{file}");
        }
        Ok(out)
    }

    /// `config print`: every value in force, as TOML that can be used again except for its secrets.
    pub fn print(&self) -> String {
        let mut out = String::new();
        let mut table = Vec::new();
        for (path, setting) in self.iter() {
            let Some((name, above)) = path.split_last() else { continue };
            if table != above {
                table = above.to_vec();
                let gap = if out.is_empty() { "" } else { "\n" };
                let _ = writeln!(out, "{gap}[{}]", key::show(above));
            }
            let Some(key) = key::find(path) else { continue };
            let line = format!("{} = {}", key::show(std::slice::from_ref(name)), shown(key, setting));
            let _ = writeln!(out, "{line:<48} # {}", setting.origin);
        }
        out
    }
}

/// A value as it may be shown. An address keeps everything but its password.
fn shown(key: &Key, setting: &Setting) -> String {
    match &setting.value {
        // No address, so nothing of it is shown; the name of a file is.
        Value::String(_) | Value::Array(_) if key.secret && !is_address(key) => "\"***\"".to_owned(),
        Value::String(text) if key.secret => Value::String(Address::new(text).to_string()).to_string(),
        // Numbers from the environment are strings; they are shown as the file would have them.
        Value::String(text) if key.default.is_some_and(|default| default_value(default).is_integer()) => {
            text.clone()
        }
        value => value.to_string(),
    }
}

fn is_address(key: &Key) -> bool {
    key.path.ends_with(".url") || key.path == "events.to"
}
