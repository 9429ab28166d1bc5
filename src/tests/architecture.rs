//! The picture of the house in `src/lib.rs` is the house: rooms use only rooms on lower floors, no
//! modules of a room use each other in a circle, tasks and mixers are named in their own rooms
//! alone, and what has no place in a program is not in it.

use crate::modules::{self, Modules};
use crate::sources::{self, Source, PACKAGES};
use dsf::golden::files;
use dsf::mixers::MIXERS;
use proc_macro2::TokenTree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A file of the program with more lines than this holds a second idea.
const LONGEST: usize = 900;

/// Circles among modules that are still to be cut. This list may only shrink.
const CIRCLES: &[&str] = &[];

/// Files outside `src/tasks` that decide by the name of a task. This list may only shrink.
const DECIDE_BY_TASK: &[&str] = &[];

/// Files whose strings name something else: layouts (`mamba`), heads, schedules and activations (`linear`), groups (`s4`),
/// architectures of `transformers` (`mamba2`).
const OTHER_NAMES: &[&str] = &[
    "src/config/named_block.rs",
    "src/config/settings.rs",
    "src/model/weights/hf/architectures/fla.rs",
    "src/model/weights/hf/architectures/mamba.rs",
    "src/model/weights/hf/config_file.rs",
    "src/tasks/groups.rs",
];

/// Ops that are fused on a GPU alone, to save launches.
const ON_A_GPU: &[&str] = &["expression", "shift", "split"];

/// Files that name a mixer in a string. This list may only shrink.
const NAME_A_MIXER: &[&str] = &["src/bench/ops/table.rs", "src/bench/peers.rs"];

fn source(path: &str) -> Source {
    let found = sources::all().into_iter().find(|s| s.path == path);
    found.unwrap_or_else(|| panic!("no {path}"))
}

/// The floor of each room, from the table in the documentation of the library.
fn floors() -> BTreeMap<String, usize> {
    let lib = source("src/lib.rs");
    let mut floors = BTreeMap::new();
    for line in lib.text.lines() {
        let Some(row) = line.strip_prefix("//! |") else {
            continue;
        };
        let mut cells = row.split('|').map(str::trim);
        let Some(Ok(floor)) = cells.next().map(str::parse::<usize>) else {
            continue; // the head of the table
        };
        for room in cells.next().unwrap_or("").split_whitespace() {
            let room = room.trim_matches('`').to_owned();
            let before = floors.insert(room.clone(), floor);
            assert_eq!(before, None, "room {room} is on two floors");
        }
    }
    floors
}

/// The room that a file belongs to; none for the roots of library, program and build script.
fn room(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    let roots = ["lib.rs", "main.rs", "build"];
    let name = inside.split('/').next()?;
    (!roots.contains(&name)).then(|| name.strip_suffix(".rs").unwrap_or(name))
}

/// Names that follow `crate::` in a text: `crate::a::b` gives a, `crate::{a::b, c}` gives a and c.
fn used_rooms(code: &str) -> Vec<&str> {
    let ident = |s: &'_ str| s.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(s.len());
    let mut rooms = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + path.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            rooms.push(&rest[..ident(rest)]);
            continue;
        };
        let (mut depth, mut expecting) = (0, true);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => expecting = true,
                c if expecting && (c.is_alphanumeric() || c == '_') => {
                    rooms.push(&group[i..i + ident(&group[i..])]);
                    expecting = false;
                }
                _ => {}
            }
        }
    }
    rooms
}

/// Number of modules between a file and the crate.
fn depth(path: &str) -> usize {
    let parts = path.split('/').count() - 1;
    let root = ["/mod.rs", "/lib.rs"].iter().any(|root| path.ends_with(root));
    parts - usize::from(root)
}

/// The most steps up that a text takes at once.
fn highest_climb(code: &str) -> usize {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words.map(|w| w.matches("super::").count()).max().unwrap_or(0)
}

#[test]
fn every_room_is_on_the_plan_and_every_place_on_the_plan_is_a_room() {
    let lib = source("src/lib.rs");
    let rooms = lib.text.lines().filter_map(|l| {
        let l = l.strip_suffix(';')?.strip_prefix("pub ")?;
        let package = || l.strip_prefix("use dsf_")?.split_once(" as ");
        l.strip_prefix("mod ").or_else(|| Some(package()?.1))
    });
    let mut rooms: Vec<String> = rooms.map(str::to_owned).collect();
    rooms.sort();
    let planned: Vec<String> = floors().into_keys().collect();
    assert_eq!(rooms, planned);
}

#[test]
fn a_room_uses_only_rooms_on_lower_floors() {
    let floors = floors();
    let mut wrong = Vec::new();
    for source in sources::all().iter().filter(|s| !s.test) {
        let Some(room) = room(&source.path).filter(|room| !PACKAGES.contains(room)) else {
            continue; // of a package cargo knows what it uses
        };
        for used in used_rooms(&source.code_text()) {
            let floor = |room: &str| floors.get(room);
            let below = match (floor(used), floor(room)) {
                (Some(used), Some(own)) => used < own,
                _ => false,
            };
            if used != room && !below {
                wrong.push(format!("{}: `{room}` uses `{used}`", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "see the floors in src/lib.rs\n{}", wrong.join("\n"));
}

#[test]
fn no_path_climbs_out_of_its_room() {
    for source in sources::all().iter().filter(|s| !s.test) {
        let climb = highest_climb(&source.code_text());
        let room = room(&source.path).is_some();
        assert!(!room || climb < depth(&source.path), "{}: {climb} up", source.path);
    }
}

#[test]
fn the_scanner_sees_every_spelling_of_a_path() {
    let code = "use crate::a::b;\nuse crate::{c::{d, e}, f};\nlet x = crate::g::h(); xcrate::i;";
    assert_eq!(used_rooms(code), ["a", "c", "f", "g"]);
    assert_eq!(highest_climb("use super::super::a; use super::b;"), 2);
    assert_eq!((depth("src/a.rs"), depth("src/a/mod.rs"), depth("src/a/b.rs")), (1, 1, 2));
}

/// Asserts that the found items are the listed ones, with none new and none gone.
fn assert_listed(found: &BTreeSet<String>, listed: &[&str], list: &str) {
    let known: BTreeSet<String> = listed.iter().map(|&l| l.to_owned()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(found).collect();
    assert!(new.is_empty() && gone.is_empty(), "not allowed: {new:#?}\ngone, so strike them from {list}: {gone:#?}");
}

/// The rule, in every module that has modules of its own: among its children (each a file or a whole
/// folder) and its own items, what uses what has no circle with a child in it. A use is a path in
/// the program's code that leads there, through `super`, `crate`, imports and re-exports, so the
/// declaration `mod child;` and `pub use child::X;` are no uses.
///
/// Two children that use each other, directly or by way of others, are a circle. A child may use
/// a type, a trait or a function that its parent itself defines, as long as that item does not need
/// the child: `parent::run` calling `child::go` that calls `parent::run` is a circle, and so is
/// a type of the parent with a field of a child's type if a function of that child takes it. Blocks
/// of `impl` are items of their own that no path leads to, and such a block does not use its own
/// type if a module around it defines that: the methods of a folder's type may stand in several of
/// its files. A block for the type of another child does use it.
#[test]
fn no_modules_of_a_room_use_each_other_in_a_circle() {
    let circles = Modules::of(&sources::all()).circles();
    assert_listed(&circles, CIRCLES, "CIRCLES");
}

/// Calls `see` for every token, at any depth, with those that follow and that precede it.
fn each_token(tokens: &[TokenTree], see: &mut impl FnMut(&[TokenTree], usize)) {
    for at in 0..tokens.len() {
        see(tokens, at);
        if let TokenTree::Group(group) = &tokens[at] {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            each_token(&inner, see);
        }
    }
}

/// The Rust files of the program outside some folders that have an item in which `wrong` says so.
fn files_where(
    allowed: &[&str],
    wrong: impl Fn(&Source, &modules::Item, &[TokenTree], usize) -> bool,
) -> BTreeSet<String> {
    let outside = |s: &&Source| {
        let inside = |folder: &&str| s.path.starts_with(&format!("src/{folder}/"));
        s.path.ends_with(".rs") && !s.test && !allowed.iter().any(inside)
    };
    let sources = sources::all();
    let found = sources.iter().filter(outside).filter(|source| {
        modules::items(&source.text).iter().any(|item| {
            let mut found = false;
            let mut see = |tokens: &[TokenTree], at| found |= wrong(source, item, tokens, at);
            each_token(&item.tokens, &mut see);
            found
        })
    });
    found.map(|s| s.path.clone()).collect()
}

/// The text of a token; empty past the ends.
fn text(tokens: &[TokenTree], at: Option<usize>) -> String {
    let token = at.and_then(|at| tokens.get(at));
    token.map_or(String::new(), ToString::to_string)
}

/// A variant of the tasks (`TaskConfig::Mqar`, `Task::Lra`, `Self::Lra` in their own blocks of
/// `impl`), or a task's name as a pattern (`"mqar" =>`) or in a comparison (`== "mqar"`).
#[test]
fn nothing_outside_the_tasks_decides_by_a_task() {
    let tasks = ["Mqar", "Lra", "Wikitext"];
    let enums = ["TaskConfig", "Task"];
    let names = tasks.map(|t| format!("{:?}", t.to_lowercase()));
    let decides = |_: &Source, item: &modules::Item, tokens: &[TokenTree], at: usize| {
        let token = tokens[at].to_string();
        let before = |n| text(tokens, at.checked_sub(n));
        let after = |n| text(tokens, Some(at + n));
        let path = before(1) == ":" && before(2) == ":";
        let own = before(3) == "Self" && enums.contains(&item.name.as_str());
        let task = path && (own || enums.contains(&before(3).as_str()));
        let compared = before(1) == "=" && ["=", "!"].contains(&before(2).as_str())
            || after(1) == "=" && [">", "="].contains(&after(2).as_str())
            || after(1) == "|";
        tasks.contains(&token.as_str()) && task || names.contains(&token) && compared
    };
    let found = files_where(&["tasks"], decides);
    assert_listed(&found, DECIDE_BY_TASK, "DECIDE_BY_TASK");
}

/// Operations lie on a lower floor than mixers, so that a kernel may share a mixer's name; the paper's
/// numbers in a report are rows of data.
#[test]
fn a_mixer_is_named_only_by_mixers_and_recipes() {
    let names: Vec<String> = MIXERS.iter().map(|e| format!("{:?}", e.name)).collect();
    let named = |source: &Source, item: &modules::Item, tokens: &[TokenTree], at: usize| {
        let data = ["static", "const"].contains(&item.keyword.as_str());
        let row = data && source.path.starts_with("src/report/");
        let other = OTHER_NAMES.contains(&source.path.as_str());
        !row && !other && names.contains(&tokens[at].to_string())
    };
    let found = files_where(&["mixers", "recipes", "ops"], named);
    assert_listed(&found, NAME_A_MIXER, "NAME_A_MIXER");
}

#[test]
fn every_op_has_the_same_five_parts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
    let lib = source("src/ops/lib.rs");
    let modules = lib.text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let ops: Vec<&str> = modules.filter(|name| !["runtime", "tests"].contains(name)).collect();
    assert!(ops.len() > 25, "{ops:?}");
    for op in ops {
        let parts = ["mod.rs", "reference", "cuda", "tests"].into_iter();
        for part in parts.chain((!ON_A_GPU.contains(&op)).then_some("cpu")) {
            let place = root.join(op).join(part);
            assert!(place.exists() || place.with_extension("rs").exists(), "{op} has no {part}");
        }
    }
}

#[test]
fn comments_hold_no_promise_and_no_path_of_somebodys_machine() {
    // In halves, or this file would be found.
    let forbidden = [("TO", "DO"), ("FIX", "ME"), ("/ho", "me/"), ("/wo", "rk/"), ("/Us", "ers/")];
    let forbidden = forbidden.map(|(a, b)| format!("{a}{b}"));
    let mut found = Vec::new();
    for source in sources::all() {
        for (number, line) in source.text.lines().enumerate() {
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            if forbidden.iter().any(|f| comment.contains(f.as_str())) {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_file_of_the_program_is_too_long_to_hold_one_idea() {
    for source in sources::all().iter().filter(|s| !s.test) {
        let (path, lines) = (&source.path, source.text.lines().count());
        assert!(lines <= LONGEST, "{path} has {lines} lines: cut it by meaning");
    }
}

#[test]
fn the_program_has_no_unwrap_and_no_unfinished_place() {
    let forbidden = [".unwrap()", "todo!(", "unimplemented!(", "dbg!("];
    let mut found = Vec::new();
    for source in sources::all().iter().filter(|s| !s.test) {
        for (number, line) in source.code() {
            if forbidden.iter().any(|f| line.contains(f)) {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_golden_file_belongs_to_a_mixer_or_a_known_kind() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let of_mixer = |stem: &str| {
        let mut variants = MIXERS.iter().flat_map(|e| e.variants.iter().map(move |v| (e, v)));
        // Of a mixer that has an order, the order stands in place of the variant.
        let stem = stem.split('-').next().unwrap();
        let order = stem.rsplit_once("_p").filter(|(_, p)| p.parse::<u8>().is_ok());
        let stem = order.map_or(stem, |(stem, _)| stem);
        let bare = MIXERS.iter().any(|e| e.stem == stem);
        bare || variants.any(|(e, v)| format!("{}_{v}", e.stem) == stem)
    };
    for path in files(&dir).unwrap() {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let known = ["lemma1", "lemma2", "mqar_numpy"].contains(&stem);
        let trajectory = stem.strip_prefix("trajectory_").map(|m| m.replace('_', "-"));
        let trajectory = trajectory.is_some_and(|m| {
            let mixer = m.strip_suffix("-exp").unwrap_or(&m);
            dsf::mixers::find(mixer).is_ok()
        });
        assert!(known || trajectory || of_mixer(stem), "{stem} is nobody's");
    }
}

/// A reader who looks up a name finds one type. Types that only tests have may share a name.
#[test]
fn a_type_name_stands_for_one_type_of_its_crate() {
    let types = ["struct", "enum", "union", "trait", "type"];
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for source in sources::all().iter().filter(|source| source.path.ends_with(".rs") && !source.test) {
        let package = PACKAGES.iter().find(|package| source.path.starts_with(&format!("src/{package}/")));
        for item in modules::items(&source.text).iter().filter(|item| types.contains(&item.keyword.as_str())) {
            let key = (package.map_or("dsf", |package| package).to_owned(), item.name.clone());
            places.entry(key).or_default().push(source.path.clone());
        }
    }
    assert!(places.len() > 500, "{}", places.len());
    places.retain(|_, files| files.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}
