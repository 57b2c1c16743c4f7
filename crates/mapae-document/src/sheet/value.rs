//! Cell values of the readers to exact text and typed value.

use calamine::{CellErrorType, Data, DataRef, ExcelDateTime};

use super::format::Format;
use crate::document::Value;

/// What a cell holds. The text is never empty.
#[derive(Clone)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) value: Option<Value>,
}

impl Content {
    /// As a number of this format is read.
    pub(super) fn shown(self, format: Option<&Format>) -> Self {
        let shown = self.value.as_ref().zip(format).and_then(|(value, format)| format.text(value));
        Self { text: shown.unwrap_or(self.text), ..self }
    }

    /// As the file writes it for people, where it does.
    pub(super) fn written(self, text: String) -> Self {
        let text = text.trim();
        Self { text: if text.is_empty() { self.text } else { text.to_owned() }, ..self }
    }

    /// `None` for an empty text.
    pub(super) fn text(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (!text.is_empty()).then_some(Self { text, value: None })
    }

    pub(super) fn number(number: f64) -> Option<Self> {
        // Up to here every whole number is exact in a double.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let value = if number.fract() == 0.0 && number.abs() < EXACT {
            Value::Integer(number as i64)
        } else {
            Value::Number(number)
        };
        let text = match &value {
            Value::Integer(n) => n.to_string(),
            _ => number.to_string(),
        };
        Some(Self { text, value: Some(value) })
    }

    pub(super) fn bool(value: bool) -> Option<Self> {
        let text = if value { "TRUE" } else { "FALSE" };
        Some(Self { text: text.to_owned(), value: Some(Value::Bool(value)) })
    }

    /// An ISO 8601 date, or date and time.
    pub(super) fn date(iso: String) -> Option<Self> {
        Some(Self { text: iso.replacen('T', " ", 1), value: Some(Value::Time(iso)) })
    }

    /// An ISO 8601 duration as it stands in the file.
    pub(super) fn duration(iso: String) -> Option<Self> {
        Some(Self { text: iso.clone(), value: Some(Value::Time(iso)) })
    }

    fn error(error: &CellErrorType) -> Option<Self> {
        let error = error.to_string();
        Some(Self { text: error.clone(), value: Some(Value::Error { error }) })
    }

    fn serial(date: &ExcelDateTime) -> Option<Self> {
        let days = date.as_f64();
        // Serial numbers beyond the last day of 9999 are not dates.
        if !(0.0..2_958_466.0).contains(&days) {
            return Self::number(days);
        }
        if date.is_duration() {
            let (text, iso) = duration(days);
            return Some(Self { text, value: Some(Value::Time(iso)) });
        }
        let (year, month, day, hour, minute, second, milli) = date.to_ymd_hms_milli();
        let mut time = format!("{hour:02}:{minute:02}:{second:02}");
        if milli > 0 {
            time.push_str(&format!(".{milli:03}"));
        }
        if days < 1.0 {
            return Some(Self { text: time.clone(), value: Some(Value::Time(time)) });
        }
        let day = format!("{year:04}-{month:02}-{day:02}");
        Self::date(if time == "00:00:00" { day } else { format!("{day}T{time}") })
    }
}

/// Days to `36:30:00` and `PT36H30M`.
fn duration(days: f64) -> (String, String) {
    let millis = (days * 86_400_000.0).round() as u64;
    let (seconds, milli) = (millis / 1000, millis % 1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if milli > 0 { format!(".{milli:03}") } else { String::new() };
    let mut iso = String::from("PT");
    if hours > 0 {
        iso.push_str(&format!("{hours}H"));
    }
    if minutes > 0 {
        iso.push_str(&format!("{minutes}M"));
    }
    if seconds > 0 || milli > 0 || iso.len() == 2 {
        iso.push_str(&format!("{seconds}{fraction}S"));
    }
    (format!("{hours}:{minutes:02}:{seconds:02}{fraction}"), iso)
}

pub(super) fn of_ref(data: DataRef<'_>) -> Option<Content> {
    match data {
        DataRef::Empty => None,
        DataRef::String(s) => Content::text(s),
        DataRef::SharedString(s) => Content::text(s),
        DataRef::Int(n) => Content::number(n as f64),
        DataRef::Float(n) => Content::number(n),
        DataRef::Bool(b) => Content::bool(b),
        DataRef::DateTime(d) => Content::serial(&d),
        DataRef::DateTimeIso(s) => Content::date(s),
        DataRef::DurationIso(s) => Content::duration(s),
        DataRef::Error(e) => Content::error(&e),
    }
}

pub(super) fn of_data(data: &Data) -> Option<Content> {
    match data {
        Data::Empty => None,
        Data::String(s) => Content::text(s.as_str()),
        Data::Int(n) => Content::number(*n as f64),
        Data::Float(n) => Content::number(*n),
        Data::Bool(b) => Content::bool(*b),
        Data::DateTime(d) => Content::serial(d),
        Data::DateTimeIso(s) => Content::date(s.clone()),
        Data::DurationIso(s) => Content::duration(s.clone()),
        Data::Error(e) => Content::error(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calamine::ExcelDateTimeType;

    fn serial(days: f64, kind: ExcelDateTimeType) -> (String, Value) {
        let content =
            Content::serial(&ExcelDateTime::new(days, kind, false)).expect("a date holds something");
        (content.text, content.value.expect("a date has a value"))
    }

    #[test]
    fn dates_times_and_durations_are_iso_8601() {
        let date = ExcelDateTimeType::DateTime;
        assert_eq!(serial(45_943.0, date), ("2025-10-13".into(), Value::Time("2025-10-13".into())));
        assert_eq!(serial(45_943.5, date).1, Value::Time("2025-10-13T12:00:00".into()));
        assert_eq!(serial(0.25, date).1, Value::Time("06:00:00".into()));
        let (text, value) = serial(1.520_833_333_333_333, ExcelDateTimeType::TimeDelta);
        assert_eq!((text.as_str(), value), ("36:30:00", Value::Time("PT36H30M".into())));
        assert_eq!(serial(-3.0, date).1, Value::Integer(-3));
    }

    #[test]
    fn numbers_keep_every_digit() {
        let text = |n| Content::number(n).expect("a number holds something").text;
        assert_eq!(text(0.1), "0.1");
        assert_eq!(text(-1_234_567.0), "-1234567");
        assert_eq!(text(1e21), "1000000000000000000000");
        assert_eq!(text(-0.0), "0");
    }
}
