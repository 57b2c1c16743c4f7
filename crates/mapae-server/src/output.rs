//! What commands print: data on stdout in the form asked for, talk on stderr.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::trouble::Trouble;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Columns for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// Ids alone, one a line.
    Id,
}

/// A column: its heading, and where its value is found in an item (`progress.stage`).
pub(crate) type Column = (&'static str, &'static str);

/// Writes to stdout. A reader that went away ends the command without an error.
pub(crate) fn print(text: &str) -> Result<(), Trouble> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Says something to the person, if there is one to hear it.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A list, as asked for.
pub(crate) fn list(form: Form, items: &[Value], columns: &[Column], id: &str) -> Result<(), Trouble> {
    print(&match form {
        Form::Table => table(items, columns),
        Form::Json => pretty(&Value::Array(items.to_vec())),
        Form::Jsonl => items.iter().map(|item| format!("{item}\n")).collect(),
        Form::Id => items.iter().map(|item| format!("{}\n", cell(item, id))).collect(),
    })
}

/// One thing, as asked for; `rows` are what a person is shown of it.
pub(crate) fn one(form: Form, item: &Value, rows: &[Column], id: &str) -> Result<(), Trouble> {
    print(&match form {
        Form::Table => rows
            .iter()
            .map(|(name, path)| (name, cell(item, path)))
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name:<14} {value}\n"))
            .collect(),
        Form::Json => pretty(item),
        Form::Jsonl => format!("{item}\n"),
        Form::Id => format!("{}\n", cell(item, id)),
    })
}

pub(crate) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Columns as wide as their widest cell; Korean letters are two wide.
pub(crate) fn table(items: &[Value], columns: &[Column]) -> String {
    let head: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rows = items.iter().map(|item| columns.iter().map(|(_, path)| cell(item, path)).collect());
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (value, width) in row.iter().zip(&widths) {
            line.push_str(value);
            line.extend(std::iter::repeat_n(' ', width - value.width() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The value at a path in words; nothing where there is none.
fn cell(item: &Value, path: &str) -> String {
    let value = path.split('.').try_fold(item, |value, part| value.get(part));
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => plain(text),
        Some(Value::Array(items)) => {
            let items: Vec<String> =
                items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), plain)).collect();
            items.join(", ")
        }
        Some(Value::Number(number)) if number.is_f64() => {
            let thousandths = (number.as_f64().unwrap_or_default() * 1000.0).round() / 1000.0;
            thousandths.to_string()
        }
        Some(other) => other.to_string(),
    }
}

/// Text from elsewhere cannot move the cursor of a terminal or colour it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A line on a terminal that is written over, for progress. Silent where stderr is no terminal.
pub(crate) struct Line {
    shown: bool,
    terminal: bool,
}

impl Default for Line {
    fn default() -> Self {
        Self { shown: false, terminal: std::io::stderr().is_terminal() }
    }
}

impl Line {
    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            self.shown = true;
            let _ = write!(std::io::stderr(), "\r\x1b[2K{}", plain(text));
            let _ = std::io::stderr().flush();
        }
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Asks before something is destroyed. Without a terminal to ask on, `--yes` has to have said it.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), Trouble> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Trouble::usage(
            "not-confirmed",
            format!("{question} Nobody is here to ask."),
            "add --yes",
        ));
    }
    let _ = write!(std::io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Trouble::usage("not-confirmed", "Nothing was done.", "answer y, or add --yes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up_whatever_the_letters_and_control_characters_do_nothing() {
        let items = [
            json!({"id": "1", "source": {"name": "예산.pdf"}, "state": "running"}),
            json!({"id": "22", "source": null, "state": "\u{1b}[31mred"}),
        ];
        let columns = [("ID", "id"), ("FILE", "source.name"), ("STATE", "state")];
        let expected = "ID  FILE      STATE\n1   예산.pdf  running\n22            \u{fffd}[31mred\n";
        assert_eq!(table(&items, &columns), expected);
    }
}
