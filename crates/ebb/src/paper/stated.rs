//! What the papers state, and in which kind of row it stands: `studies/NAME/stated.toml`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::kind::Kind;
use super::span::Span;
use super::verdict::Bound;

/// The numbers of one paper, by what their rows are called.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Stated {
    groups: BTreeMap<String, Group>,
}

/// The rows of one figure, table or section.
#[derive(Debug, Deserialize)]
struct Group {
    figure: String,
    /// Of those that name no other.
    kind: Kind,
    #[serde(flatten)]
    rows: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    quantity: String,
    kind: Option<Kind>,
    /// None where the text states nothing.
    paper: Option<f64>,
    /// What rounds to it, to either side; or as how uncertain it is stated.
    #[serde(default)]
    half: f64,
    bound: Option<Bound>,
    /// The row that has the same number.
    r#as: Option<String>,
    /// The rows of a number of something, and of the percent of the whole that this is: the number
    /// is the whole.
    share: Option<[String; 2]>,
}

/// All that is known of a row before the twin runs.
#[derive(Debug)]
pub struct Fact<'a> {
    /// Figure, table or section.
    pub figure: &'a str,
    /// What is measured, with its unit.
    pub quantity: &'a str,
    pub kind: Kind,
    /// What the text states, with what rounds to it.
    pub paper: Option<Span>,
    /// Whether that is a bound, and no value.
    pub bound: Option<Bound>,
}

impl Stated {
    /// # Errors
    /// What is no such file.
    pub fn read(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// The row of this name, such as `fig-13/pacer`.
    ///
    /// # Errors
    /// An unknown one.
    pub fn fact(&self, id: &str) -> Result<Fact<'_>> {
        let (group, entry) = self.entry(id)?;
        let Entry { quantity, kind, bound, .. } = entry;
        let (figure, kind, bound) = (&group.figure, kind.unwrap_or(group.kind), *bound);
        Ok(Fact { figure, quantity, kind, paper: self.paper(entry)?, bound })
    }

    /// The number that the text states in this row.
    ///
    /// # Errors
    /// One that is unknown, or states none.
    pub fn span(&self, id: &str) -> Result<Span> {
        self.paper(self.entry(id)?.1)?.with_context(|| format!("{id} states no number"))
    }

    /// What the rows are called.
    #[cfg(test)]
    pub fn ids(&self) -> Vec<String> {
        let rows = |(group, rows): (&String, &Group)| {
            rows.rows.keys().map(|row| format!("{group}/{row}")).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(rows).collect()
    }

    fn entry(&self, id: &str) -> Result<(&Group, &Entry)> {
        let found = id.split_once('/').and_then(|(group, row)| {
            let group = self.groups.get(group)?;
            Some((group, group.rows.get(row)?))
        });
        found.with_context(|| format!("{id}: no such row in stated.toml"))
    }

    fn paper(&self, entry: &Entry) -> Result<Option<Span>> {
        Ok(match entry {
            Entry { r#as: Some(other), .. } => Some(self.span(other)?),
            Entry { share: Some([part, percent]), .. } => {
                Some(self.span(part)? / self.span(percent)?.map(|percent| percent / 100.0))
            }
            Entry { paper, half, .. } => paper.map(|paper| Span::stated(paper, *half)),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use std::path::Path;

    use super::super::Paper;
    use super::*;

    /// What all texts in double quotes in a folder's sources are that can be a row's name.
    fn named(folder: &Path) -> Vec<String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                names.extend(named(&path));
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let part = |part: &str| {
                let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                !part.is_empty() && part.chars().all(letter)
            };
            let is = |text: &&str| text.split_once('/').is_some_and(|(a, b)| part(a) && part(b));
            names.extend(text.split('"').filter(is).map(str::to_owned));
        }
        names
    }

    /// The rows that declarations of fits name.
    fn declared(study: &str) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies").join(study);
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let tables = files.filter(|path| path.extension().is_some_and(|end| end == "toml"));
        let texts = tables.map(|path| std::fs::read_to_string(path).unwrap()).collect::<String>();
        let name =
            |line: &str| Some(line.strip_prefix("stated = \"")?.strip_suffix('"')?.to_owned());
        texts.lines().filter_map(name).collect()
    }

    /// A number that no row shows is as wrong as a row that no file states.
    #[test]
    fn every_stated_number_is_used_and_every_row_is_stated() {
        for paper in Paper::value_variants() {
            let stated = Stated::read(paper.stated()).unwrap();
            let folder = paper.study().replace('-', "_");
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/paper").join(folder);
            let mut named = named(&folder);
            named.extend(declared(paper.study()));
            for id in &named {
                stated.fact(id).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            }
            for id in stated.ids() {
                stated.fact(&id).unwrap();
                assert!(named.contains(&id), "{paper:?}: no code and no fit shows {id}");
            }
        }
    }

    #[test]
    fn a_number_stands_in_one_place() {
        let stated = Stated::read(
            "[a]\nfigure = \"Fig. 1\"\nkind = \"as-stated\"\n\
             watts = { paper = 4.0, half = 0.5, quantity = \"more, W\" }\n\
             percent = { paper = 7.0, quantity = \"more, %\" }\n\
             all = { share = [\"a/watts\", \"a/percent\"], kind = \"fitted\", quantity = \"W\" }\n\
             again = { as = \"a/watts\", quantity = \"again, W\" }\n\
             none = { quantity = \"ours, W\" }\n",
        );
        let stated = stated.unwrap();
        let all = stated.fact("a/all").unwrap();
        assert_eq!((all.figure, all.kind), ("Fig. 1", Kind::Fitted));
        assert_eq!(all.paper.unwrap().low, 3.5 / 0.07);
        assert_eq!(stated.span("a/again").unwrap(), Span::stated(4.0, 0.5));
        assert!(stated.fact("a/none").unwrap().paper.is_none());
        for unknown in ["a/other", "b/watts", "watts"] {
            let error = stated.fact(unknown).unwrap_err().to_string();
            assert!(error.starts_with(unknown), "{error}");
        }
    }
}
