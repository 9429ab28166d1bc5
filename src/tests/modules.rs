//! Dependencies between the items of a module tree: the paths in the tokens of every module, resolved to the item
//! that they name.

use crate::sources::{Source, PACKAGES};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// A path, from the crate's root or as it is written.
type Path = Vec<String>;

/// An item of a module: a function, a type, an `impl` block, a constant, a macro.
pub struct Item {
    /// The keyword that it starts with.
    pub keyword: String,
    /// Name of the item; of the type, for an `impl` block.
    pub name: String,
    pub tokens: Vec<TokenTree>,
}

#[derive(Default)]
struct Module {
    items: Vec<Item>,
    children: BTreeSet<String>,
    /// Names that `use` brings in, with what they stand for.
    imports: BTreeMap<String, Path>,
    globs: Vec<Path>,
}

/// Target of a path: a module, and the item in it unless the path names the module.
type Target = (Path, Option<String>);

/// The modules of the library, by path.
pub struct Modules(BTreeMap<Path, Module>);

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(name)) => Some(name.to_string()),
        _ => None,
    }
}

fn punct(token: Option<&TokenTree>, char: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == char)
}

fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(g)) if g.delimiter() == delimiter => Some(g),
        _ => None,
    }
}

fn path_separator(tokens: &[TokenTree], at: usize) -> bool {
    punct(tokens.get(at), ':') && punct(tokens.get(at + 1), ':')
}

/// Whether the attribute keeps its item out of the program.
fn for_tests(attribute: &Group) -> bool {
    let text = attribute.to_string().replace([' ', '\n'], "");
    text == "[cfg(test)]" || text.starts_with("[cfg(all(test,")
}

/// The items of a text that are compiled into the program.
pub fn items(text: &str) -> Vec<Item> {
    let stream: TokenStream = text.parse().expect("Rust source");
    split(stream)
}

/// Cuts a stream after each `;`, and after each `{}` that ends an item.
fn split(stream: TokenStream) -> Vec<Item> {
    let mut items = Vec::new();
    let (mut tokens, mut test) = (Vec::new(), false);
    let mut stream = stream.into_iter().peekable();
    while let Some(token) = stream.next() {
        if tokens.is_empty() && punct(Some(&token), '#') {
            stream.next_if(|t| punct(Some(t), '!'));
            let attribute = stream.next();
            let attribute = group(attribute.as_ref(), Delimiter::Bracket);
            test |= attribute.is_some_and(for_tests);
            continue;
        }
        let brace = group(Some(&token), Delimiter::Brace).is_some();
        let semicolon = punct(Some(&token), ';');
        tokens.push(token);
        let item = named(&tokens);
        let value = matches!(item.0.as_str(), "const" | "static" | "use" | "let" | "type");
        if semicolon || brace && !value {
            let (keyword, name) = item;
            let tokens = std::mem::take(&mut tokens);
            if !std::mem::take(&mut test) {
                items.push(Item { keyword, name, tokens });
            }
        }
    }
    items
}

/// The keyword of an item and its name, which for an `impl` block is that of its type.
fn named(tokens: &[TokenTree]) -> (String, String) {
    let keywords =
        ["fn", "struct", "enum", "union", "trait", "type", "static", "const", "mod", "use", "impl", "macro_rules"];
    let words = tokens.iter().map(|t| ident(Some(t)).unwrap_or_default());
    let words: Vec<String> = words.collect();
    let keyword = |from: usize| {
        let after = words.get(from..)?;
        Some(from + after.iter().position(|w| keywords.contains(&w.as_str()))?)
    };
    let Some(mut at) = keyword(0) else {
        return Default::default();
    };
    if words[at] == "const" && keyword(at + 1) == Some(at + 1) {
        at += 1; // const fn
    }
    let name = match words[at].as_str() {
        "impl" => implemented(&tokens[at + 1..]),
        _ => words[at + 1..].iter().find(|w| !w.is_empty()).cloned(),
    };
    (words[at].clone(), name.unwrap_or_default())
}

/// The type of an `impl` block, from what follows the keyword: the last segment of its path.
fn implemented(tokens: &[TokenTree]) -> Option<String> {
    let (mut depth, mut name) = (0, None);
    for (i, token) in tokens.iter().enumerate() {
        let arrow = i > 0 && (punct(tokens.get(i - 1), '-') || punct(tokens.get(i - 1), '='));
        match token {
            TokenTree::Punct(p) if p.as_char() == '<' => depth += 1,
            TokenTree::Punct(p) if p.as_char() == '>' && !arrow => depth -= 1,
            TokenTree::Ident(word) if depth == 0 => match word.to_string().as_str() {
                "for" => name = None,
                "where" => break,
                word => name = Some(word.to_owned()),
            },
            _ => {}
        }
    }
    name
}

/// The paths that a `use` tree brings in, each with the name that it gets; `*` for all names.
fn use_tree(tokens: &[TokenTree], prefix: &Path, found: &mut Vec<(String, Path)>) {
    let (mut path, mut at) = (prefix.clone(), 0);
    while let Some(token) = tokens.get(at) {
        if let Some(inner) = group(Some(token), Delimiter::Brace) {
            let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
            for branch in inner.split(|t| punct(Some(t), ',')) {
                use_tree(branch, &path, found);
            }
            return;
        } else if punct(Some(token), '*') {
            return found.push(("*".into(), path));
        } else if let Some(word) = ident(Some(token)) {
            match word.as_str() {
                "as" => {
                    let name = ident(tokens.get(at + 1)).unwrap_or_default();
                    return found.push((name, path));
                }
                "self" if !prefix.is_empty() => {}
                _ => path.push(word),
            }
        }
        at += 1;
    }
    if let Some(name) = path.last().filter(|_| path.len() > prefix.len() || at > 0) {
        found.push((name.clone(), path.clone()));
    }
}

/// Every path among tokens, at any depth, `use` trees included.
fn paths(tokens: &[TokenTree], found: &mut Vec<Path>) {
    let mut at = 0;
    while at < tokens.len() {
        if let TokenTree::Group(inner) = &tokens[at] {
            let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
            paths(&inner, found);
        }
        let Some(word) = ident(tokens.get(at)) else {
            at += 1;
            continue;
        };
        if word == "use" {
            let end = tokens[at..].iter().position(|t| punct(Some(t), ';'));
            let end = end.map_or(tokens.len(), |end| at + end);
            let mut tree = Vec::new();
            use_tree(&tokens[at + 1..end], &Path::new(), &mut tree);
            found.extend(tree.into_iter().map(|(_, path)| path));
            at = end;
            continue;
        }
        let start = at;
        let mut path = vec![word];
        at += 1;
        while path_separator(tokens, at) {
            let Some(next) = ident(tokens.get(at + 2)) else {
                break;
            };
            path.push(next);
            at += 3;
        }
        let field = start > 0 && punct(tokens.get(start - 1), '.');
        let tail = start > 1 && path_separator(tokens, start - 2);
        let method = start > 0 && ident(tokens.get(start - 1)).as_deref() == Some("fn");
        let declared = method || path.len() == 1 && punct(tokens.get(at), ':');
        if !field && !tail && !declared {
            found.push(path);
        }
    }
}

/// Whether a module is one of a package.
fn package(path: &Path) -> bool {
    path.first().is_some_and(|room| PACKAGES.contains(&room.as_str()))
}

impl Modules {
    /// The modules of sources under `src/`, without those for tests.
    pub fn of(sources: &[Source]) -> Self {
        let mut modules = Self(BTreeMap::new());
        for source in sources.iter().filter(|s| !s.test) {
            let Some(file) = source.path.strip_prefix("src/") else {
                continue;
            };
            let Some(file) = file.strip_suffix(".rs") else {
                continue;
            };
            let mut path: Path = file.split('/').map(str::to_owned).collect();
            if ["mod", "lib"].contains(&path[path.len() - 1].as_str()) {
                path.pop();
            }
            let built_by =
                path.starts_with(&["build".to_owned()]) || path.starts_with(&["gpu".to_owned(), "build".to_owned()]);
            if file != "main" && !built_by {
                modules.insert(path, items(&source.text));
            }
        }
        modules
    }

    fn insert(&mut self, path: Path, items: Vec<Item>) {
        for (depth, name) in path.iter().enumerate() {
            let parent = self.0.entry(path[..depth].to_vec()).or_default();
            parent.children.insert(name.clone());
        }
        let mut own = Vec::new();
        for item in items {
            let body = group(item.tokens.last(), Delimiter::Brace);
            match (item.keyword.as_str(), body) {
                ("mod", Some(body)) => {
                    let inner = path.iter().chain([&item.name]).cloned().collect();
                    self.insert(inner, split(body.stream()));
                }
                ("mod", None) => {}
                ("use", _) => self.import(&path, &item),
                ("impl", _) => own.push(Item { name: format!("impl {}", item.name), ..item }),
                _ => own.push(item),
            }
        }
        self.0.entry(path).or_default().items.extend(own);
    }

    fn import(&mut self, path: &Path, item: &Item) {
        let module = self.0.entry(path.clone()).or_default();
        let from = item.tokens.iter().position(|t| ident(Some(t)).as_deref() == Some("use"));
        let tree = &item.tokens[from.map_or(0, |at| at + 1)..];
        let mut found = Vec::new();
        use_tree(tree, &Path::new(), &mut found);
        for (name, path) in found {
            match name.as_str() {
                "*" => module.globs.push(path),
                _ => drop(module.imports.insert(name, path)),
            }
        }
    }

    /// Resolves a path that is written in a module, through imports and re-exports; none for
    /// other crates and for local names.
    fn resolve(&self, from: &Path, path: &[String], depth: usize) -> Option<Target> {
        let mut at = from.clone();
        let mut rest = path;
        let mut anchored = false;
        while let Some((word, after)) = rest.split_first() {
            match word.as_str() {
                // The root of a package is its folder, not that of the library.
                "crate" => at.truncate(usize::from(package(&at))),
                "super" => drop(at.pop()?),
                "self" => {}
                _ => break,
            }
            (rest, anchored) = (after, true);
        }
        while let Some((name, after)) = rest.split_first() {
            let module = self.0.get(&at)?;
            if module.children.contains(name) {
                at.push(name.clone());
            } else if module.items.iter().any(|i| i.name == *name) {
                return Some((at, Some(name.clone())));
            } else {
                let import = module.imports.get(name);
                let import = import.filter(|i| depth < 8 && (*i != path || anchored));
                let onward = |path: &Path| {
                    let path: Path = path.iter().chain(after).cloned().collect();
                    self.resolve(&at, &path, depth + 1)
                };
                if let Some(found) = import.and_then(onward) {
                    return Some(found);
                }
                let mut globs = module.globs.iter().filter(|_| depth < 8);
                return globs.find_map(|glob| {
                    let path: Path = glob.iter().chain(rest).cloned().collect();
                    self.resolve(&at, &path, depth + 1)
                });
            }
            (rest, anchored) = (after, true);
        }
        anchored.then_some((at, None))
    }

    /// Uses of a module: for each of its items the targets. A block of `impl` does not use
    /// its own type, where that is one of the module or of a module around it. The imports of a module
    /// without children count as uses of an item without a name, except for such types that it implements.
    fn uses(&self, path: &Path) -> Vec<(String, Target)> {
        let module = &self.0[path];
        let type_of = |item: &Item| {
            let name = item.name.strip_prefix("impl ")?;
            let found = self.resolve(path, &[name.to_owned()], 0);
            found.filter(|(module, _)| path.starts_with(module))
        };
        let implemented: BTreeSet<Target> = module.items.iter().filter_map(type_of).collect();
        let mut uses = Vec::new();
        for item in &module.items {
            let (mut found, own) = (Vec::new(), type_of(item));
            paths(&item.tokens, &mut found);
            let used = found.iter().filter_map(|used| self.resolve(path, used, 0));
            let used = used.filter(|used| Some(used) != own.as_ref());
            uses.extend(used.map(|used| (item.name.clone(), used)));
        }
        if module.children.is_empty() {
            let imports = module.imports.values();
            let used = imports.filter_map(|used| self.resolve(path, used, 0));
            let used = used.filter(|used| !implemented.contains(used));
            uses.extend(used.map(|used| (String::new(), used)));
        }
        uses
    }

    /// The circles among the modules of each module, named `room/module: a, b`. See the test that
    /// asks for them.
    pub fn circles(&self) -> BTreeSet<String> {
        let mut graphs: BTreeMap<&[String], Graph> = BTreeMap::new();
        for path in self.0.keys().filter(|path| !path.is_empty()) {
            for (item, (target, used)) in self.uses(path) {
                let shared = path.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if shared == 0 {
                    continue; // another room
                }
                let node = |module: &Path, item: Option<&String>| match module.get(shared) {
                    Some(child) => Some(child.clone()),
                    None => item.map(|item| format!("`{item}`")),
                };
                let edge = (node(path, Some(&item)), node(&target, used.as_ref()));
                if let (Some(from), Some(to)) = edge {
                    let graph = graphs.entry(&path[..shared]).or_default();
                    graph.entry(from).or_default().insert(to);
                }
            }
        }
        let mut circles = BTreeSet::new();
        for (place, graph) in graphs {
            let named = |circle: Vec<&str>| format!("{}: {}", place.join("/"), circle.join(", "));
            circles.extend(strongly_connected(&graph).into_iter().map(named));
        }
        circles
    }
}

/// Edges from users to what they use. Items of the module itself stand in backticks.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn reach<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(node) = waiting.pop() {
        for next in graph.get(node).into_iter().flatten() {
            if reached.insert(next.as_str()) {
                waiting.push(next);
            }
        }
    }
    reached
}

/// The strongly connected components with more than one node and at least one module among them.
fn strongly_connected(graph: &Graph) -> BTreeSet<Vec<&str>> {
    let reached: BTreeMap<&str, _> = graph.keys().map(|n| (n.as_str(), reach(graph, n))).collect();
    let mutual = |a: &str, b: &str| reached.get(b).is_some_and(|r| r.contains(a));
    let mut found = BTreeSet::new();
    for (node, onward) in &reached {
        let circle: Vec<&str> = onward.iter().filter(|o| mutual(node, o)).copied().collect();
        if circle.len() > 1 && circle.iter().any(|n| !n.starts_with('`')) {
            found.insert(circle);
        }
    }
    found
}

#[test]
fn circles_are_seen_through_every_spelling_of_a_path() {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into(), test: false };
    let circles = |sources: &[Source]| -> Vec<String> { Modules::of(sources).circles().into_iter().collect() };
    // Through the parent's re-export, and through a group.
    let sources = [
        source("src/room/mod.rs", "mod a; mod b; pub use a::A;"),
        source("src/room/a.rs", "use super::{b::{self}}; pub struct A; fn f() { b::g() }"),
        source("src/room/b.rs", "use crate::room::A; pub fn g() -> A { A }"),
    ];
    assert_eq!(circles(&sources), ["room: a, b"]);
    // A type of the parent that needs no child closes no circle; a function that calls one does.
    let parent = "mod a; pub struct Shape; impl Shape { fn n(&self) {} } pub fn run() { a::go() }";
    let child = "use super::Shape; pub fn go() { Shape.n() }";
    let sources = [source("src/room.rs", parent), source("src/room/a.rs", child)];
    assert_eq!(circles(&sources), [""; 0]);
    let child = "pub fn go() { super::run() }";
    let sources = [source("src/room.rs", parent), source("src/room/a.rs", child)];
    assert_eq!(circles(&sources), ["room: `run`, a"]);
    // Methods of the parent's type in a child that the type needs.
    let parent = "mod a; pub struct Row { of: a::Of }";
    let child = "use super::Row; pub struct Of; impl Row { fn of(r: Row) -> Of { r.of } }";
    let sources = [source("src/room.rs", parent), source("src/room/a.rs", child)];
    assert_eq!(circles(&sources), [""; 0]);
    // Methods of another child's type, which uses this one.
    let sources = [
        source("src/room/mod.rs", "mod a; mod b;"),
        source("src/room/a.rs", "use super::b::B; pub struct A; impl B { fn f(&self) {} }"),
        source("src/room/b.rs", "use super::a::A; pub struct B { a: A }"),
    ];
    assert_eq!(circles(&sources), ["room: a, b"]);
    // Folders, though no two files use each other; tests and comments do not count.
    let sources = [
        source("src/room/a/x.rs", "use crate::room::b::y::Y; pub struct X;"),
        source("src/room/a/w.rs", "pub struct W; // super::x::X"),
        source("src/room/b/y.rs", "pub struct Y; #[cfg(test)] mod tests { use super::super::z; }"),
        source("src/room/b/z.rs", "fn f(_: super::super::a::w::W) {}"),
    ];
    assert_eq!(circles(&sources), ["room: a, b"]);
}
