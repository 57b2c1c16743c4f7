//! Statements that write a job's end back into the user's own record: `kind.*.on.succeeded = "update …"`.

use std::collections::BTreeMap;

use mapae::job::End;
use toml::{Table, Value};

/// What may be named in a statement, in the order in which it is given to the database.
const NAMES: [&str; 6] = ["result", "params", "failure", "job", "owner", "attempt"];

/// The longest statement, in bytes.
const BYTES_MAX: usize = 16 * 1024;

/// The statements among what is said of how a kind's jobs end: `"update …"` or `{ sql = "update …" }`.
pub(super) fn statements(value: &Value) -> Option<BTreeMap<End, String>> {
    let mut statements = BTreeMap::new();
    for (name, said) in value.as_table()? {
        let text = match said {
            Value::String(text) => text,
            Value::Table(table) => match table.get("sql") {
                Some(text) => text.as_str()?,
                None => continue,
            },
            _ => return None,
        };
        statements.insert(End::parse(name)?, numbered(text)?);
    }
    Some(statements)
}

/// What is left of it: the jobs to make.
pub(super) fn without_statements(value: &Value) -> Option<Value> {
    let mut rest = Table::new();
    for (name, said) in value.as_table()? {
        match said {
            Value::String(_) => {}
            Value::Table(table) => {
                let mut table = table.clone();
                if table.remove("sql").is_none() || !table.is_empty() {
                    rest.insert(name.clone(), Value::Table(table));
                }
            }
            _ => return None,
        }
    }
    Some(Value::Table(rest))
}

/// The statement with `$1` for `:result` and so on. `None` where a name is none, or it is no single statement. What
/// stands in quotes or comments, and `::`, is left as it is.
fn numbered(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches(';');
    if text.is_empty() || text.len() > BYTES_MAX || text.contains('\0') {
        return None;
    }
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => 1 + rest[1..].find(first)? + 1,
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/")? + 2,
            ':' if rest.starts_with("::") || rest.starts_with(":=") => 2,
            ':' => {
                let name = rest[1..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
                if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                    let place = NAMES.iter().position(|known| *known == name)?;
                    out.push_str(&format!("${}", place + 1));
                    rest = &rest[1 + name.len()..];
                    continue;
                }
                1
            }
            // A quotation of another kind, or a place by number, is not looked into.
            '$' | ';' => return None,
            other => other.len_utf8(),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_places_and_what_is_quoted_stays() {
        for (text, want) in [
            (
                "update c set k = :result->'keywords' where id = :params->>'contextId';",
                Some("update c set k = $1->'keywords' where id = $2->>'contextId'"),
            ),
            (
                "update c set a = ':result', \":x\" = (:params->>'n')::bigint",
                Some("update c set a = ':result', \":x\" = ($2->>'n')::bigint"),
            ),
            (
                "update c set a = :job -- :nothing\n, b = /* :x */ :attempt",
                Some("update c set a = $4 -- :nothing\n, b = /* :x */ $6"),
            ),
            (
                "update c set a = b[1:2], o = :owner, f = :failure->>'code'",
                Some("update c set a = b[1:2], o = $5, f = $3->>'code'"),
            ),
            ("update c set a = 'it''s'", Some("update c set a = 'it''s'")),
            ("update c set a = :results", None),
            ("update c set a = 1; drop table c", None),
            ("update c set a = 'open", None),
            ("do $$ begin end $$", None),
            ("", None),
        ] {
            assert_eq!(numbered(text).as_deref(), want, "{text}");
        }
    }
}
