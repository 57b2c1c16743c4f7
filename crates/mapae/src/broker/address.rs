//! The part of a broker's address that is ours and not the server's.

use super::contract::BrokerError;

/// What the names of all our queues begin with, where the address does not say.
const PREFIX: &str = "mapae";

/// The address without our own parameters, and the value of each of them that is there.
pub(super) fn apart<const N: usize>(url: &str, ours: [&str; N]) -> (String, [Option<String>; N]) {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut others, mut values) = (Vec::new(), [const { None }; N]);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match ours.iter().position(|our| *our == name) {
            Some(at) => values[at] = Some(value.to_owned()),
            None => others.push(part),
        }
    }
    let rest = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    (format!("{address}{rest}"), values)
}

/// Two installations that share a server need a prefix each: either would find nothing in its database for
/// the other's pointers, and drop them.
pub(super) fn prefix(given: Option<String>) -> Result<String, BrokerError> {
    let prefix = given.unwrap_or_else(|| PREFIX.into());
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(fine) {
        return Err(BrokerError::Fatal(
            "the prefix in the broker's address is 1 to 64 letters, digits, dots, dashes and underscores"
                .into(),
        ));
    }
    Ok(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_taken_out_and_the_rest_is_left_as_it_is() {
        let (url, [prefix, queue]) =
            apart("amqp://h/v?heartbeat=5&prefix=a&frame_max=1", ["prefix", "queue"]);
        assert_eq!(url, "amqp://h/v?heartbeat=5&frame_max=1");
        assert_eq!((prefix.as_deref(), queue), (Some("a"), None));
        assert_eq!(apart("amqp://h?prefix=a", ["prefix"]).0, "amqp://h");
    }

    #[test]
    fn a_prefix_that_could_not_be_part_of_a_name_is_refused() {
        assert_eq!(prefix(None).unwrap(), PREFIX);
        for wrong in ["", "a b", "a:b", "ü", &"p".repeat(65)] {
            assert!(prefix(Some(wrong.into())).is_err(), "{wrong}");
        }
    }
}
