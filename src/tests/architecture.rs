//! The picture of the house in `src/lib.rs` is the house: rooms use only rooms on lower floors, files
//! are short, and what has no place in a program is not in it.

use crate::sources::{self, Source};
use dsf::golden::files;
use dsf::mixers::MIXERS;
use std::collections::BTreeMap;
use std::path::Path;

/// Most lines of a file.
const LONGEST: usize = 300;

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
    let ident = |s: &'_ str| {
        s.find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(s.len())
    };
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

/// How many modules a file lies below the crate.
fn depth(path: &str) -> usize {
    let parts = path.split('/').count() - 1;
    parts - usize::from(path.ends_with("/mod.rs"))
}

/// The most steps up that a text takes at once.
fn highest_climb(code: &str) -> usize {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words
        .map(|w| w.matches("super::").count())
        .max()
        .unwrap_or(0)
}

#[test]
fn every_room_is_on_the_plan_and_every_place_on_the_plan_is_a_room() {
    let lib = source("src/lib.rs");
    let rooms = lib
        .text
        .lines()
        .filter_map(|l| l.strip_prefix("pub ").unwrap_or(l).strip_prefix("mod "))
        .filter_map(|l| l.strip_suffix(';'));
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
        let Some(room) = room(&source.path) else {
            continue;
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
    assert!(
        wrong.is_empty(),
        "see the floors in src/lib.rs\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_path_climbs_out_of_its_room() {
    for source in sources::all().iter().filter(|s| !s.test) {
        let climb = highest_climb(&source.code_text());
        let room = room(&source.path).is_some();
        assert!(
            !room || climb < depth(&source.path),
            "{}: {climb} up",
            source.path
        );
    }
}

#[test]
fn the_scanner_sees_every_spelling_of_a_path() {
    let code = "use crate::a::b;\nuse crate::{c::{d, e}, f};\nlet x = crate::g::h(); xcrate::i;";
    assert_eq!(used_rooms(code), ["a", "c", "f", "g"]);
    assert_eq!(highest_climb("use super::super::a; use super::b;"), 2);
    assert_eq!(
        (
            depth("src/a.rs"),
            depth("src/a/mod.rs"),
            depth("src/a/b.rs")
        ),
        (1, 1, 2)
    );
}

#[test]
fn no_file_is_too_long_to_read_in_one_sitting() {
    for source in sources::all() {
        let (path, lines) = (&source.path, source.text.lines().count());
        assert!(lines <= LONGEST, "{path} has {lines} lines");
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
        let mut variants = MIXERS
            .iter()
            .flat_map(|e| e.variants.iter().map(move |v| (e, v)));
        let bare = MIXERS.iter().any(|e| e.stem == stem);
        bare || variants.any(|(e, v)| format!("{}_{v}", e.stem) == stem)
    };
    for path in files(&dir).unwrap() {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let known = ["lemma1", "lemma2", "mqar_numpy"].contains(&stem);
        let trajectory = stem
            .strip_prefix("trajectory_")
            .map(|m| m.replace('_', "-"));
        let trajectory = trajectory.is_some_and(|m| {
            let mixer = m.strip_suffix("-exp").unwrap_or(&m);
            dsf::mixers::find(mixer).is_ok()
        });
        assert!(known || trajectory || of_mixer(stem), "{stem} is nobody's");
    }
}
