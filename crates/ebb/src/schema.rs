//! Writes docs/json-schema from the types that are printed and read, and compares it with them.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::docs::{compare, root};

/// Columns of a line of a schema.
const WIDTH: usize = 120;

/// A test that the schema of this name is that of this type, which is printed. What is read is
/// named `as read`.
macro_rules! written {
    ($name:literal, $type:ty) => {
        #[test]
        fn schema() {
            let settings = schemars::generate::SchemaSettings::default().for_serialize();
            crate::schema::check::<$type>($name, settings);
        }
    };
    ($name:literal, $type:ty, as read) => {
        #[test]
        fn schema() {
            let settings = schemars::generate::SchemaSettings::default().for_deserialize();
            crate::schema::check::<$type>($name, settings);
        }
    };
}
pub(crate) use written;

mod load {
    crate::schema::written!("load-1", ebb_bench::load::Report);
}

mod replay {
    crate::schema::written!("replay-1", ebb_bench::replay::Report);
}

/// Compares the file with the type, or writes it.
pub fn check<T: JsonSchema>(name: &str, settings: SchemaSettings) {
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    finish(&mut schema, true);
    let text = show(&schema, 0) + "\n";
    compare(&root().join(format!("docs/json-schema/{name}.json")), &text, "schema");
}

/// What derived schemas leave out. An object has no other fields than its type's; `closed` is
/// whether it is one, and not a part of one. The `minimum` of an object is that of its numbers.
fn finish(schema: &mut Value, closed: bool) {
    let Value::Object(schema) = schema else { return };
    // Formats such as `uint32` are Rust's, and no one's else.
    schema.retain(|key, value| key != "format" || value == "date-time");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs: Vec<_> = text.split("\n\n").map(|lines| lines.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
    let whole = schema.contains_key("properties");
    if whole {
        require(schema);
        if let (Some(least), Some(Value::Object(fields))) =
            (schema.remove("minimum"), schema.get_mut("properties"))
        {
            fields.values_mut().for_each(|field| bound(field, &least));
        }
        let parts = ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|key| schema.contains_key(*key));
        let others = if parts { "unevaluatedProperties" } else { "additionalProperties" };
        if closed && !schema.contains_key("additionalProperties") {
            schema.insert(others.to_owned(), Value::Bool(false));
        }
    }
    for (key, below) in schema {
        match (key.as_str(), below) {
            ("properties" | "patternProperties" | "$defs", Value::Object(all)) => {
                all.values_mut().for_each(|one| finish(one, true));
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(all)) => {
                all.iter_mut().for_each(|one| finish(one, !whole));
            }
            ("prefixItems", Value::Array(all)) => all.iter_mut().for_each(|one| finish(one, true)),
            ("items" | "additionalProperties", below) => finish(below, true),
            _ => {}
        }
    }
}

fn bound(field: &mut Value, least: &Value) {
    let Value::Object(field) = field else { return };
    let of = field.get("type");
    let number = of.is_some_and(|of| {
        of == "number" || of.as_array().is_some_and(|of| of.contains(&"number".into()))
    });
    if number && !field.contains_key("exclusiveMinimum") {
        field.entry("minimum").or_insert_with(|| least.clone());
    }
    if let Some(items) = field.get_mut("items") {
        bound(items, least);
    }
    if let Some(Value::Array(parts)) = field.get_mut("prefixItems") {
        parts.iter_mut().for_each(|part| bound(part, least));
    }
}

/// A field that may be left out is left out and not null; one with a default was not there in
/// earlier versions.
fn require(schema: &mut Map<String, Value>) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| {
        required.as_array().is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)))
    };
    let Some(Value::Object(fields)) = schema.get_mut("properties") else { return };
    let optional = fields.iter_mut().filter(|(name, _)| !is_required(name));
    optional.for_each(|(_, field)| refuse_null(field));
    let has_default: Vec<_> =
        fields.iter().filter(|(_, of)| of.get("default").is_some()).map(|(name, _)| name).collect();
    let has_default =
        |name: &Value| has_default.iter().any(|of| Some(of.as_str()) == name.as_str());
    if let Some(Value::Array(mut required)) = Some(required) {
        required.retain(|name| !has_default(name));
        schema.insert("required".to_owned(), Value::Array(required));
    }
}

fn refuse_null(field: &mut Value) {
    let Value::Object(field) = field else { return };
    for key in ["type", "enum"] {
        if let Some(Value::Array(all)) = field.get_mut(key) {
            all.retain(|one| !one.is_null() && one != "null");
            if let ("type", [one]) = (key, &all[..]) {
                let one = one.clone();
                field.insert(key.to_owned(), one);
            }
        }
    }
    if let Some(Value::Array(mut all)) = field.remove("anyOf") {
        all.retain(|one| one.get("type").is_none_or(|of| of != "null"));
        match &all[..] {
            [Value::Object(one)] => {
                one.iter().for_each(|(key, value)| {
                    field.entry(key).or_insert_with(|| value.clone());
                });
            }
            _ => drop(field.insert("anyOf".to_owned(), Value::Array(all))),
        }
    }
}

/// As few lines as fit: what says what it is first, the parts last.
fn show(value: &Value, indent: usize) -> String {
    let (open, close, all) = match value {
        Value::Object(map) if !map.is_empty() => {
            let rank = |key: &str| match key {
                "$schema" => 0,
                "title" => 1,
                "description" => 2,
                "type" | "const" => 3,
                "properties" => 5,
                "$defs" => 6,
                _ => 4,
            };
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(key, _)| (rank(key), *key));
            let shown = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), show(value, indent + 2))
            };
            ("{ ", " }", fields.into_iter().map(shown).collect::<Vec<_>>())
        }
        Value::Array(all) if !all.is_empty() => {
            ("[", "]", all.iter().map(|value| show(value, indent + 2)).collect())
        }
        _ => return value.to_string(),
    };
    let line = format!("{open}{}{close}", all.join(", "));
    if indent + line.len() <= WIDTH && !line.contains('\n') {
        return line;
    }
    let (inner, outer) = (" ".repeat(indent + 2), " ".repeat(indent));
    let all: Vec<_> = all.iter().map(|one| format!("{inner}{one}")).collect();
    format!("{}\n{}\n{outer}{}", open.trim_end(), all.join(",\n"), close.trim_start())
}

mod of_libraries {
    mod sim {
        crate::schema::written!("sim-1", ebb_record::summary::Summary);
    }
    mod decision {
        crate::schema::written!("decision-3", ebb_record::log::Line<'static>);
    }
    mod probe {
        crate::schema::written!("probe-1", ebb_host::Report);
    }
}

/// A part of the example below.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "its schema is what is wanted")]
enum Part {
    Known { watts: f64 },
    Unknown { why: String },
}

#[derive(JsonSchema)]
#[schemars(extend("minimum" = 0))]
#[expect(dead_code, reason = "its schema is what is wanted")]
struct Example {
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    mean: Option<f64>,
    #[serde(default)]
    late: Vec<f64>,
    #[schemars(flatten)]
    part: Part,
}

#[test]
fn a_schema_refuses_what_its_type_never_is() {
    let settings = SchemaSettings::default().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Example>();
    let mut schema = schema.to_value();
    finish(&mut schema, true);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let valid = |text: &str| validator.is_valid(&serde_json::from_str(text).unwrap());
    for good in [
        r#"{"seconds": 1, "mean": null, "late": [], "watts": 5}"#,
        r#"{"seconds": 0, "share": 0.5, "mean": 2, "late": [1.5], "why": "off"}"#,
        r#"{"seconds": 1, "mean": null, "why": "of an earlier version"}"#,
    ] {
        assert!(valid(good), "{good}: {schema:#}");
    }
    for wrong in [
        r#"{"seconds": 1, "mean": null, "late": []}"#,
        r#"{"seconds": -1, "mean": null, "late": [], "watts": 5}"#,
        r#"{"seconds": 1, "mean": null, "late": [-1], "watts": 5}"#,
        r#"{"seconds": 1, "late": [], "watts": 5}"#,
        r#"{"seconds": 1, "share": null, "mean": null, "late": [], "watts": 5}"#,
        r#"{"seconds": "1", "mean": null, "late": [], "watts": 5}"#,
        r#"{"seconds": 1, "mean": null, "late": [], "watts": 5, "more": 1}"#,
    ] {
        assert!(!valid(wrong), "{wrong}: {schema:#}");
    }
}

/// No schema is written by hand but those of the lab, which is no Rust.
#[test]
fn every_schema_has_a_type() {
    let mut folders = vec![root().join("crates/ebb/src")];
    let mut source = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => source += &std::fs::read_to_string(path).unwrap(),
            }
        }
    }
    for entry in std::fs::read_dir(root().join("docs/json-schema")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".json").unwrap();
        assert!(
            name.starts_with("lab-") || source.contains(&format!("written!(\"{name}\"")),
            "{name}: no type has this schema"
        );
    }
}
