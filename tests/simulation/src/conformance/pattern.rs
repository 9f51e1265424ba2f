//! What a row says of an answer, and how two answers differ.
//!
//! A pattern is JSON. Of an object only the keys that it names count, and a key with `null` must be absent. A list must have
//! as many elements as the pattern, each of them matching; `{"$has": [...]}` instead asks for one match for each. The string
//! `<any>` stands for whatever is there, and a string that begins with `~` for one that contains the rest.

use serde_json::Value;

/// Where an answer does not match: one line for each place, with its path.
#[must_use]
pub fn mismatches(pattern: &Value, found: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare(pattern, Some(found), "", &mut out);
    out
}

fn compare(pattern: &Value, found: Option<&Value>, at: &str, out: &mut Vec<String>) {
    let differs = |out: &mut Vec<String>| {
        let found = found.map_or_else(|| "nothing".to_owned(), Value::to_string);
        out.push(format!("{at}: expected {pattern}, found {found}"));
    };
    match (pattern, found) {
        (Value::Null, None | Some(Value::Null)) => {}
        (Value::String(text), Some(_)) if text == "<any>" => {}
        (Value::String(text), Some(Value::String(found))) if text.starts_with('~') => {
            if !found.contains(&text[1..]) {
                differs(out);
            }
        }
        (Value::Object(wanted), Some(Value::Array(all))) if wanted.contains_key("$has") => {
            for one in wanted["$has"].as_array().into_iter().flatten() {
                if !all.iter().any(|found| mismatches(one, found).is_empty()) {
                    out.push(format!("{at}: no element matches {one}"));
                }
            }
        }
        (Value::Object(wanted), Some(Value::Object(found))) => {
            for (key, pattern) in wanted {
                compare(pattern, found.get(key), &format!("{at}.{key}"), out);
            }
        }
        (Value::Array(wanted), Some(Value::Array(found))) if wanted.len() == found.len() => {
            for (index, (pattern, found)) in wanted.iter().zip(found).enumerate() {
                compare(pattern, Some(found), &format!("{at}[{index}]"), out);
            }
        }
        (pattern, Some(found)) if pattern == found => {}
        _ => differs(out),
    }
}

/// Where two answers differ: one line for each place, with its path.
#[must_use]
pub fn differences(real: &Value, simulated: &Value) -> Vec<String> {
    let mut out = Vec::new();
    differ(Some(real), Some(simulated), "", &mut out);
    out
}

fn differ(real: Option<&Value>, simulated: Option<&Value>, at: &str, out: &mut Vec<String>) {
    match (real, simulated) {
        (real, simulated) if real == simulated => {}
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            for (key, value) in left {
                differ(Some(value), right.get(key), &format!("{at}.{key}"), out);
            }
            for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
                differ(None, Some(value), &format!("{at}.{key}"), out);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                differ(left.get(index), right.get(index), &format!("{at}[{index}]"), out);
            }
        }
        (real, simulated) => {
            let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
            out.push(format!("{at}: real {}, simulated {}", text(real), text(simulated)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_pattern_names_must_match_and_nothing_else() {
        let found = json!({"a": 1, "b": {"c": "long text", "d": [1, 2]}, "e": "x"});
        for fits in [
            json!({"a": 1}),
            json!({"b": {"c": "~text"}, "z": null}),
            json!({"b": {"d": [1, "<any>"]}}),
            json!({"b": {"d": {"$has": [2]}}}),
        ] {
            assert_eq!(mismatches(&fits, &found), Vec::<String>::new(), "{fits}");
        }
        for misfits in [
            json!({"a": 2}),
            json!({"e": null}),
            json!({"z": "<any>"}),
            json!({"b": {"d": [1]}}),
            json!({"b": {"d": {"$has": [3]}}}),
            json!({"b": {"c": "~other"}}),
        ] {
            assert_eq!(mismatches(&misfits, &found).len(), 1, "{misfits}");
        }
    }

    #[test]
    fn differences_are_named_by_their_paths() {
        let (real, simulated) = (json!({"a": [1, {"b": 2}], "c": 3}), json!({"a": [1, {"b": 4}], "d": 5}));
        assert_eq!(
            differences(&real, &simulated),
            [
                ".a[1].b: real 2, simulated 4",
                ".c: real 3, simulated nothing",
                ".d: real nothing, simulated 5"
            ]
        );
    }
}
