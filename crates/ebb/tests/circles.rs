//! Modules form no circles: of the modules in one folder, none uses another that uses it, directly
//! or through others. A module counts with all that is below it; its use of the folder's own
//! `mod.rs`, where what they share may stand, does not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::Visit;

/// A module's path in its crate; the crate itself has none.
type Module = Vec<String>;
/// What uses what.
type Arrows = BTreeSet<(Module, Module)>;

/// The modules of a crate and the file of each, but those of tests.
fn modules(folder: &Path, module: &Module, found: &mut BTreeMap<Module, String>) {
    let below = |name: &str| module.iter().cloned().chain([name.to_owned()]).collect::<Module>();
    for entry in std::fs::read_dir(folder).expect("a crate has sources") {
        let path = entry.expect("a folder can be read").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            modules(&path, &below(name), found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let is_folder = matches!(name, "mod" | "lib" | "main");
            let text = std::fs::read_to_string(&path).expect("a source file can be read");
            found.insert(if is_folder { module.clone() } else { below(name) }, text);
        }
    }
}

/// Finds the modules that one module names.
struct Uses<'a> {
    all: &'a BTreeMap<Module, String>,
    me: Module,
    named: BTreeSet<Module>,
}

impl Uses<'_> {
    fn name(&mut self, path: &[String]) {
        let ups = path.iter().take_while(|segment| *segment == "super").count();
        let (from, rest) = match path.first().map(String::as_str) {
            Some("crate") => (0, &path[1..]),
            Some("self") => (self.me.len(), &path[1..]),
            Some("super") => (self.me.len().saturating_sub(ups), &path[ups..]),
            _ => (self.me.len(), path),
        };
        let mut module = self.me[..from].to_vec();
        for segment in rest {
            module.push(segment.clone());
            if !self.all.contains_key(&module) {
                module.pop();
                break;
            }
        }
        self.named.insert(module);
    }

    fn tree(&mut self, tree: &syn::UseTree, path: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.tree(&part.tree, path);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.tree(item, path));
            }
            syn::UseTree::Name(syn::UseName { ident, .. })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                path.push(ident.to_string());
                self.name(path);
                path.pop();
            }
            _ => self.name(path),
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string());
            self.name(&segments.collect::<Vec<_>>());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() && item.ident != "tests" {
            self.me.push(item.ident.to_string());
            syn::visit::visit_item_mod(self, item);
            self.me.pop();
        }
    }
}

fn arrows(all: &BTreeMap<Module, String>) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, text) in all {
        let file = syn::parse_file(text).expect("what compiles can be parsed");
        let mut uses = Uses { all, me: module.clone(), named: BTreeSet::new() };
        uses.visit_file(&file);
        arrows.extend(uses.named.into_iter().map(|named| (module.clone(), named)));
    }
    arrows
}

/// A circle among the modules in `folder`, as the arrows that close it.
fn circle(folder: &[String], arrows: &Arrows) -> Option<Vec<String>> {
    let mut used: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    let below = |module: &Module| module.len() > folder.len() && module.starts_with(folder);
    for (from, to) in arrows.iter().filter(|(from, to)| below(from) && below(to)) {
        let (user, of) = (from[folder.len()].as_str(), to[folder.len()].as_str());
        if user != of {
            let witness = format!("{} uses {}", from.join("::"), to.join("::"));
            used.entry(user).or_default().insert(of, witness);
        }
    }
    // Take away what uses nothing that is left; what stays is in a circle or leads to one.
    loop {
        let kept: BTreeSet<&str> = used.keys().copied().collect();
        let before: usize = used.values().map(BTreeMap::len).sum();
        used.values_mut().for_each(|of| of.retain(|name, _| kept.contains(name)));
        used.retain(|_, of| !of.is_empty());
        if before == used.values().map(BTreeMap::len).sum::<usize>() {
            break;
        }
    }
    // From any of these one can walk on for ever: until a module comes again.
    let mut at = *used.keys().next()?;
    let mut walk: Vec<(&str, &String)> = Vec::new();
    while !walk.iter().any(|(module, _)| *module == at) {
        let (next, witness) = used[at].iter().next()?;
        walk.push((at, witness));
        at = next;
    }
    let circle = walk.into_iter().skip_while(|(module, _)| *module != at);
    Some(circle.map(|(_, witness)| witness.clone()).collect())
}

#[test]
fn modules_form_no_circles() {
    let mut findings = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in std::fs::read_dir(crates).expect("the crates stand side by side") {
        let folder = folder.expect("a folder can be read").path();
        let name = folder.file_name().unwrap_or_default().display().to_string();
        let source = folder.join("src");
        let mut all = BTreeMap::new();
        modules(&source, &Module::new(), &mut all);
        let arrows = arrows(&all);
        let folders: BTreeSet<_> =
            all.keys().filter(|module| !module.is_empty()).map(|m| &m[..m.len() - 1]).collect();
        for folder in folders {
            let found = circle(folder, &arrows);
            findings.extend(found.map(|arrows| format!("{name}: {}", arrows.join(", "))));
        }
    }
    assert!(findings.is_empty(), "circles:\n{}", findings.join("\n"));
}

#[test]
fn a_circle_is_found_and_a_folder_s_own_module_makes_none() {
    let crate_of = |files: &[(&str, &str)]| -> BTreeMap<Module, String> {
        let path = |name: &str| name.split_terminator('/').map(str::to_owned).collect();
        files.iter().map(|(name, text)| (path(name), (*text).to_owned())).collect()
    };
    let whole = [
        ("", "mod a; mod b; mod c; pub struct Shared;"),
        ("a", "use crate::b::B; fn f(_: super::Shared) {}"),
        ("b/", "mod d; pub use d::B;"),
        ("b/d", "pub struct B; fn f() -> crate::c::C { todo!() }"),
        ("c", "pub struct C;"),
    ];
    let all = crate_of(&whole);
    assert_eq!(circle(&[], &arrows(&all)), None);
    let mut whole = whole;
    whole[4].1 = "pub struct C; #[cfg(test)] mod tests { use super::C; } use crate::a;";
    let found = circle(&[], &arrows(&crate_of(&whole))).expect("a circle");
    assert_eq!(found, ["a uses b", "b::d uses c", "c uses a"]);
}
