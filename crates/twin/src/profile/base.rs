//! Profiles that say only in what they differ from another one, their base.
//!
//! Tables are joined key by key; everything else, lists of tables such as `[[stage]]` too,
//! replaces what the base has. A base may have a base.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Profile;
use super::error::{ProfileError, Wrong};
use crate::drive_file::{Place, place_of};

/// Bases below one profile; more are a circle.
const MOST: usize = 8;

/// The text of a profile and those of its bases, the nearest first.
pub(super) struct Layers {
    top: Layer,
    bases: Vec<Layer>,
}

/// One text.
struct Layer {
    origin: String,
    text: Cow<'static, str>,
}

/// What is looked at first.
#[derive(Deserialize)]
struct Head {
    name: Option<String>,
    summary: Option<String>,
    base: Option<String>,
}

impl Layers {
    /// Reads the bases of `text`, which is called `origin`.
    ///
    /// # Errors
    /// When one is not TOML or cannot be read, or they go round in a circle.
    pub(super) fn read(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let top = Layer { origin: origin.to_owned(), text: text.to_owned().into() };
        let mut layers = Self { top, bases: Vec::new() };
        while let Some(base) = layers.deepest().base()? {
            let last = layers.deepest();
            if layers.bases.len() == MOST {
                let reason = format!("more than {MOST} on each other: do they go in a circle?");
                return Err(last.refuse_base(reason));
            }
            let next = last.find(base)?;
            layers.bases.push(next);
        }
        Ok(layers)
    }

    fn deepest(&self) -> &Layer {
        self.bases.last().unwrap_or(&self.top)
    }

    fn all(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.top).chain(&self.bases)
    }

    /// The profile that they make together. Every base must be a whole profile, so that an error
    /// lies in the text which is named.
    pub(super) fn merge(&self) -> Result<Profile, ProfileError> {
        let mut below: Option<Spanned<DeTable<'_>>> = None;
        for layer in self.bases.iter().rev() {
            let table = layer.over(below)?;
            layer.profile(table.clone())?;
            below = Some(table);
        }
        self.top.profile(self.top.over(below)?)
    }

    /// The folder of the text that sets `key` of `table`: files that it names lie there.
    pub(super) fn folder_of(&self, table: &str, key: &str) -> &Path {
        let sets = |layer: &&Layer| matches!(place_of(&layer.text, table, 0, key), Place::Key(_));
        self.all().find(sets).unwrap_or(&self.top).folder()
    }

    /// The error with its place: where the value was set.
    pub(super) fn locate(&self, wrong: Wrong) -> ProfileError {
        let Wrong { table, index, key, reason } = wrong;
        let mut found = None;
        for layer in self.all() {
            let place = place_of(&layer.text, table, index, key);
            // A list replaces that of the base as a whole.
            let list = layer.text.contains(&format!("[[{table}]]"));
            match place {
                Place::Nowhere => {}
                Place::Table(_) => found = found.or(Some((layer, place))),
                Place::Key(_) => found = Some((layer, place)),
            }
            if list || matches!(place, Place::Key(_)) {
                break;
            }
        }
        let (layer, line) = found.map_or((&self.top, 1), |(layer, place)| (layer, place.line()));
        if std::ptr::eq(layer, &self.top) {
            return layer.value(line, key, reason);
        }
        self.top.refuse_base(format!("{}:{line}: {key}: {reason}", layer.origin))
    }
}

impl Layer {
    fn folder(&self) -> &Path {
        Path::new(&self.origin).parent().unwrap_or(Path::new(""))
    }

    /// The name of its base, if it has one.
    fn base(&self) -> Result<Option<String>, ProfileError> {
        let head: Head = toml::from_str(&self.text).map_err(|error| self.syntax(error))?;
        for (key, value) in [("name", &head.name), ("summary", &head.summary)] {
            if head.base.is_some() && value.is_none() {
                let reason = "a profile with a base needs its own, or one is taken for the other";
                return Err(self.value(1, key, reason.to_owned()));
            }
        }
        Ok(head.base)
    }

    /// The base `name`: a shipped profile, or a file beside this one.
    fn find(&self, name: String) -> Result<Self, ProfileError> {
        if let Some(text) = Profile::shipped_text(&name) {
            return Ok(Self { origin: name, text: text.into() });
        }
        let path = self.folder().join(&name);
        let origin = path.display().to_string();
        match ebb_trace::files::text(path) {
            Ok(text) => Ok(Self { origin, text: text.into() }),
            Err(error) => {
                let valid = Profile::names().collect::<Vec<_>>().join(", ");
                let reason = format!("'{name}' is not a shipped profile ({valid}), nor a file");
                Err(self.refuse_base(format!("{reason}: {origin}: {error}")))
            }
        }
    }

    /// Its table, laid over that of its base.
    fn over<'a>(
        &'a self,
        below: Option<Spanned<DeTable<'a>>>,
    ) -> Result<Spanned<DeTable<'a>>, ProfileError> {
        let table = DeTable::parse(&self.text).map_err(|error| self.syntax(error))?;
        let span = table.span();
        Ok(match below {
            None => table,
            Some(below) => Spanned::new(span, join(below.into_inner(), table.into_inner())),
        })
    }

    fn profile(&self, table: Spanned<DeTable<'_>>) -> Result<Profile, ProfileError> {
        Profile::deserialize(Deserializer::from(table)).map_err(|error| self.syntax(error))
    }

    fn syntax(&self, mut error: toml::de::Error) -> ProfileError {
        error.set_input(Some(&self.text));
        ProfileError::Syntax { origin: self.origin.clone(), reason: Box::new(error) }
    }

    fn value(&self, line: usize, key: &'static str, reason: String) -> ProfileError {
        ProfileError::Value { origin: self.origin.clone(), line, key, reason }
    }

    fn refuse_base(&self, reason: String) -> ProfileError {
        self.value(place_of(&self.text, "", 0, "base").line(), "base", reason)
    }
}

/// `below` with what `above` sets.
pub fn join<'a>(mut below: DeTable<'a>, above: DeTable<'a>) -> DeTable<'a> {
    for (key, value) in above {
        let span = value.span();
        let value = match (below.remove(&key).map(Spanned::into_inner), value.into_inner()) {
            (Some(DeValue::Table(below)), DeValue::Table(above)) => {
                DeValue::Table(join(below, above))
            }
            (_, value) => value,
        };
        below.insert(key, Spanned::new(span, value));
    }
    below
}
