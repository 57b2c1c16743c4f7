//! `mapae labels`: examples that teach the classifier.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use mapae::store::contract::SET_EXAMPLES_MAX;
use serde_json::{Value, json};

use super::jobs::pages;
use super::{query, segment};
use crate::client::{Call, Client};
use crate::global::Global;
use crate::output::{self, Column, Form, confirm, print, say, table};
use crate::trouble::Trouble;

const SETS: &[Column] = &[
    ("SET", "name"),
    ("LABELS", "labels"),
    ("EXAMPLES", "examples"),
    ("BYTES", "bytes"),
    ("CHANGED", "changed_at"),
];

const EXAMPLES: &[Column] =
    &[("ID", "id"), ("LABEL", "label"), ("TITLE", "title"), ("TEXT", "text"), ("DESCRIPTION", "description")];

const BY_LABEL: &[Column] =
    &[("LABEL", "label"), ("EXAMPLES", "examples"), ("PRECISION", "precision"), ("RECALL", "recall")];

/// Items and bytes of one call.
const ITEMS_MAX: usize = 500;
const BYTES_MAX: usize = 4 << 20;
/// The largest file of examples that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Characters of a text that a table shows.
const SHOWN: usize = 60;

#[derive(Subcommand)]
pub(crate) enum Labels {
    /// Teach from a file of one JSON object a line: {"label", "title"?, "text"}, {"label", "job"} to correct a result,
    /// or {"label", "description"}
    Import(Import),
    /// The sets there are
    List(Whose),
    /// The examples of a set
    Show(Show),
    /// How well a set teaches, by cross-validation on its examples
    Report(Set),
    /// Delete a set, or one example of it
    Delete(Delete),
}

#[derive(Args)]
pub(crate) struct Whose {
    /// For keys of all owners [default: default]
    #[arg(long)]
    owner: Option<String>,
}

#[derive(Args)]
pub(crate) struct Set {
    /// What the set is called
    #[arg(long, value_name = "NAME")]
    set: String,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Args)]
pub(crate) struct Import {
    #[command(flatten)]
    set: Set,
    /// `-` for what comes on stdin
    file: PathBuf,
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    set: Set,
    /// How many at most
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

#[derive(Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    set: Set,
    /// Only this example
    #[arg(long)]
    id: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Say what would go, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Set {
    fn path(&self, rest: &str) -> String {
        let owner = query(&[("owner", self.whose.owner.as_deref())]);
        format!("/v1/labels/{}{rest}{owner}", segment(&self.set))
    }
}

impl Labels {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Trouble> {
        let client = global.client().await?;
        match self {
            Self::Import(import) => import.run(global, &*client).await?,
            Self::List(whose) => {
                let path = format!("/v1/labels{}", query(&[("owner", whose.owner.as_deref())]));
                let found = client.json(Call::get(path)).await?;
                let items = found["items"].as_array().cloned().unwrap_or_default();
                output::list(global.output, &items, SETS, "name")?;
            }
            Self::Show(show) => {
                let path = format!("/v1/labels/{}", segment(&show.set.set));
                let filter = [("owner", show.set.whose.owner.as_deref())];
                let limit = show.limit.min(SET_EXAMPLES_MAX);
                let mut items = pages(&*client, &path, &filter, limit).await?;
                if global.output == Form::Table {
                    items.iter_mut().for_each(shorten);
                }
                output::list(global.output, &items, EXAMPLES, "id")?;
            }
            Self::Report(set) => {
                let report = client.json(Call::get(set.path("/report"))).await?;
                if global.output == Form::Table {
                    print(&told(&report))?;
                } else {
                    output::one(global.output, &report, &[], "set.name")?;
                }
            }
            Self::Delete(delete) => {
                if delete.dry_run {
                    // One that is not there is said to be so, as it would be then.
                    let path = delete.set.path("") + if delete.set.whose.owner.is_some() { "&" } else { "?" };
                    client.json(Call::get(path + "limit=1")).await?;
                    let what = if delete.id.is_some() { "one example of" } else { "the whole of" };
                    say(&format!("This would delete {what} the set {}.", delete.set.set));
                } else if let Some(id) = &delete.id {
                    let path = delete.set.path(&format!("/{}", segment(id)));
                    client.ask(Call::delete(path)).await?;
                } else {
                    confirm(delete.yes, "Delete the set with all its examples?")?;
                    client.ask(Call::delete(delete.set.path(""))).await?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Import {
    async fn run(&self, global: &Global, client: &dyn Client) -> Result<(), Trouble> {
        // All of it is looked at before any is sent.
        let items = read(&self.file)?;
        let (mut sent, mut set) = (0, Value::Null);
        for lesson in lessons(items) {
            let count = lesson.len();
            let call = Call::post(self.set.path("")).json(json!({ "items": lesson }));
            set = client.json(call).await.map_err(|trouble| Trouble {
                // Imported again, what is there already stays as it is.
                sentence: format!("{}\n{sent} examples before it were imported.", trouble.sentence),
                ..trouble
            })?;
            sent += count;
        }
        say(&format!("{sent} examples imported"));
        output::list(global.output, &[set], SETS, "name")
    }
}

/// The objects of a file, one a line.
fn read(path: &Path) -> Result<Vec<Value>, Trouble> {
    let help = "give a file of one JSON object a line, such as {\"label\": \"invoice\", \"text\": \"…\"}";
    let bad = |sentence: String| Trouble::usage("labels-file-invalid", sentence, help);
    let unreadable = |error: std::io::Error| bad(format!("The file cannot be read: {}.", error.kind()));
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(unreadable)?)
    };
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(bad(format!("The file has more than {} MiB.", FILE_BYTES_MAX >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("The file is not UTF-8.".to_owned()))?;
    let mut items = Vec::new();
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let item: Option<Value> = serde_json::from_str(line).ok().filter(Value::is_object);
        let mut item = item.ok_or_else(|| bad(format!("Line {} is no JSON object.", number + 1)))?;
        // Files that were made for others say more of an example than is needed here.
        if let Some(fields) = item.as_object_mut() {
            fields.retain(|name, value| {
                let known = ["label", "title", "text", "job", "description"].contains(&name.as_str());
                known && !value.is_null()
            });
        }
        if !item["label"].is_string() {
            return Err(bad(format!("Line {} has no `label`.", number + 1)));
        }
        items.push(item);
    }
    if items.is_empty() {
        return Err(bad("The file has no examples.".to_owned()));
    }
    Ok(items)
}

/// What goes into one call each. No more of a text is sent than could be kept.
fn lessons(items: Vec<Value>) -> Vec<Vec<Value>> {
    let mut lessons: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    for mut item in items {
        if let Some(text) = item["text"].as_str() {
            let kept: String = text.trim().chars().take(mapae::store::contract::TEXT_CHARS_MAX).collect();
            item["text"] = json!(kept);
        }
        // As it is sent: escapes may be longer than what they stand for.
        let size = item.to_string().len();
        let jobs = |lesson: &[Value]| lesson.iter().filter(|item| item["job"].is_string()).count();
        match lessons.last_mut() {
            Some(last) if last.len() < ITEMS_MAX && bytes + size < BYTES_MAX && jobs(last) < 50 => {
                last.push(item);
            }
            _ => {
                bytes = 0;
                lessons.push(vec![item]);
            }
        }
        bytes += size;
    }
    lessons
}

/// To one line of a table.
fn shorten(item: &mut Value) {
    for field in ["title", "text", "description"] {
        let Some(text) = item[field].as_str() else { continue };
        // Some more than is shown: what is blank may go.
        let start: String = text.chars().take(4 * SHOWN).collect();
        let line = start.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown: String = line.chars().take(SHOWN).collect();
        let more =
            if text.chars().count() > start.chars().count() || line.len() > shown.len() { "…" } else { "" };
        item[field] = json!(shown + more);
    }
}

/// A report for people.
fn told(report: &Value) -> String {
    let by = report["by"].as_str().unwrap_or_default();
    let mut text = format!(
        "{} labels, {} examples; decided by {by}\n",
        report["set"]["labels"], report["set"]["examples"]
    );
    let validation = &report["validation"];
    if validation.is_null() {
        text += "Cross-validation needs four examples of every label.\n";
        return text;
    }
    let percent = |value: &Value| match value.as_f64() {
        Some(share) => json!(format!("{:.1} %", share * 100.0)),
        None => Value::Null,
    };
    let show = |name: &str| percent(&validation[name]).as_str().unwrap_or_default().to_owned();
    text += &format!(
        "right {} (macro F1 {}); sure of {}, of which right {}\n\n",
        show("accuracy"),
        show("macro_f1"),
        show("sure"),
        show("accuracy_when_sure")
    );
    let mut rows = validation["labels"].as_array().cloned().unwrap_or_default();
    for row in &mut rows {
        for field in ["precision", "recall"] {
            row[field] = percent(&row[field]);
        }
    }
    text + &table(&rows, BY_LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_in_one_line_and_cut() {
        let mut item =
            json!({ "title": null, "text": "Rent\r\n\tof  March", "description": "x".repeat(SHOWN + 1) });
        shorten(&mut item);
        assert_eq!(item["text"], "Rent of March");
        assert_eq!(item["description"], format!("{}…", "x".repeat(SHOWN)));
        assert_eq!(item["title"], Value::Null);
    }
}
