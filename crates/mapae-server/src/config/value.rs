//! How single values are written: times, sizes, counts, lists. Pure.
//!
//! Every reader takes a TOML value; one from the environment or a flag is a string, so each reads its
//! value from a string too.

use std::time::Duration;

use mapae::job::limit::Rate;
use mapae::job::resource::Need;
use mapae::job::retry::Backoff;
use toml::Value;

const TIME_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// `30s`, `250ms`, `1h30m`; at most ten years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    const MAX_MS: u64 = 10 * 365 * 86_400_000;
    let mut rest = text.trim();
    let mut total: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = split_number(rest)?;
        let unit_length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_length);
        let (_, ms) = TIME_UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.checked_mul(*ms)?)?;
        rest = next;
    }
    (total <= MAX_MS).then(|| Duration::from_millis(total))
}

/// The shortest way to write it that reads back the same.
pub fn show_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let unit = TIME_UNITS.iter().rev().find(|(_, size)| ms >= *size && ms.is_multiple_of(*size));
    match unit {
        Some((name, size)) => format!("{}{name}", ms / size),
        None => "0s".to_owned(),
    }
}

/// `512MiB`, `2GB`, or a plain number of bytes.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text.trim())?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Some(number);
    }
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*bytes)
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}

pub(super) fn duration(value: &Value) -> Option<Duration> {
    parse_duration(value.as_str()?)
}

pub(super) fn size(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(bytes) => u64::try_from(*bytes).ok(),
        other => parse_size(other.as_str()?),
    }
}

pub(super) fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        other => other.as_str()?.trim().parse().ok(),
    }
}

pub(super) fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// `["a", "b"]`, or `a,b` where it came as a string.
pub(super) fn list(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        other => Some(other.as_str()?.split(',').map(|item| item.trim().to_owned()).collect())
            .filter(|items: &Vec<String>| items.iter().all(|item| !item.is_empty())),
    }
}

/// `2s..10m`: the first wait and the longest.
pub(super) fn backoff(value: &Value) -> Option<Backoff> {
    let (first, max) = value.as_str()?.split_once("..")?;
    let backoff = Backoff { first: parse_duration(first)?, max: parse_duration(max)? };
    (backoff.first <= backoff.max && !backoff.max.is_zero()).then_some(backoff)
}

/// `300/min`, `10/s`, `5/10s`.
pub(super) fn rate(value: &Value) -> Option<Rate> {
    let (starts, per) = value.as_str()?.split_once('/')?;
    let per = match per.trim() {
        "s" | "sec" | "second" => Duration::from_secs(1),
        "m" | "min" | "minute" => Duration::from_secs(60),
        "h" | "hour" => Duration::from_secs(3600),
        "d" | "day" => Duration::from_secs(86_400),
        other => parse_duration(other).filter(|per| !per.is_zero())?,
    };
    let starts = starts.trim().parse().ok().filter(|starts| (1..=1_000_000_000).contains(starts))?;
    Some(Rate::new(starts, per))
}

/// `1`, `512MiB`, `64MiB + 8 * bytes`.
pub(super) fn need(value: &Value) -> Option<Need> {
    let Value::String(text) = value else { return size(value).map(Need::fixed) };
    let mut need = Need::default();
    for term in text.split('+') {
        let factors: Vec<&str> = term.split('*').map(str::trim).collect();
        let (sum, amount) = match factors[..] {
            ["bytes"] => (&mut need.per_byte, 1),
            [times, "bytes"] | ["bytes", times] => (&mut need.per_byte, times.parse().ok()?),
            [amount] => (&mut need.base, parse_size(amount)?),
            _ => return None,
        };
        *sum = sum.checked_add(amount)?;
    }
    Some(need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units_and_nothing_else() {
        let cases = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("7d", Some(604_800_000)),
            ("0s", Some(0)),
            ("30", None),
            ("s", None),
            ("", None),
            ("-3s", None),
            ("3 s", None),
            ("1.5s", None),
            ("99999999999999999999s", None),
            ("9999999d", None),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_duration(text), ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn a_time_is_written_as_it_would_be_read() {
        for text in ["250ms", "30s", "90m", "2h", "7d", "0s"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        let cases = [
            ("512MiB", Some(512 << 20)),
            ("2 GB", Some(2_000_000_000)),
            ("17", Some(17)),
            ("1mib", None),
            ("MiB", None),
            ("18446744073709551615TiB", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn a_rate_is_a_number_in_a_time() {
        let read =
            |text: &str| rate(&Value::String(text.into())).map(|rate| (rate.starts, rate.per.as_secs()));
        let cases = [
            ("300/min", Some((300, 60))),
            ("10 / s", Some((10, 1))),
            ("5/10s", Some((5, 10))),
            ("1/h", Some((1, 3600))),
            ("0/min", None),
            ("300", None),
            ("300/fortnight", None),
            ("-1/s", None),
            ("1/0s", None),
        ];
        for (text, found) in cases {
            assert_eq!(read(text), found, "{text:?}");
        }
    }

    #[test]
    fn a_need_is_an_amount_and_so_much_for_each_byte() {
        let read = |text: &str| need(&Value::String(text.into())).map(|need| (need.base, need.per_byte));
        let cases = [
            ("512MiB", Some((512 << 20, 0))),
            ("64MiB + 8 * bytes", Some((64 << 20, 8))),
            ("bytes*2+1", Some((1, 2))),
            ("bytes", Some((0, 1))),
            ("bytes + bytes", Some((0, 2))),
            ("8 * pages", None),
            ("64MiB - bytes", None),
            ("1.5 * bytes", None),
            ("", None),
            ("+", None),
            ("99999999999999999999 * bytes", None),
        ];
        for (text, found) in cases {
            assert_eq!(read(text), found, "{text:?}");
        }
        assert_eq!(need(&Value::Integer(3)), Some(Need::fixed(3)));
    }

    #[test]
    fn a_backoff_has_a_first_wait_that_is_not_above_its_longest() {
        let read = |text: &str| backoff(&Value::String(text.into()));
        assert_eq!(
            read("2s..10m"),
            Some(Backoff { first: Duration::from_secs(2), max: Duration::from_secs(600) })
        );
        assert_eq!(read("10m..2s"), None);
        assert_eq!(read("2s"), None);
    }
}
