//! Datasets from archives.

use super::server::{Answer, Server};
use super::{names, sha256, World};
use crate::error::Diagnostic;
use crate::fetch::catalogue::entry;
use crate::tasks::lra::LraDataset::{Image, Listops, Pathfinder, Retrieval};
use flate2::{write::GzEncoder, Compression};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tar::{Builder, EntryType, Header};

/// Tar of names and contents. Names are not validated, so that hostile archives can be made.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    tar_of(files.iter().map(|(name, body)| (*name, *body, EntryType::Regular)))
}

fn tar_of<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8], EntryType)>) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, body, kind) in files {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        if kind == EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_size(body.len() as u64);
        header.set_cksum();
        builder.append(&header, body).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

const RELEASE: &[(&str, &[u8])] = &[
    ("./lra_release/lra_release/listops-1000/basic_train.tsv", b"train"),
    ("lra_release/lra_release/listops-1000/basic_val.tsv", b"val"),
    ("lra_release/lra_release/listops-1000/basic_test.tsv", b"test"),
    ("lra_release/lra_release/tsv_data/new_aan_pairs.train.tsv", b"a"),
    ("lra_release/lra_release/tsv_data/new_aan_pairs.eval.tsv", b"b"),
    ("lra_release/lra_release/tsv_data/new_aan_pairs.test.tsv", b"c"),
    ("lra_release/lra_release/pathfinder32/curv_baseline/imgs/0/sample_0.png", b""),
    ("lra_release/pathfinder32/curv_contour_length_14/metadata/0.npy", b"m"),
    ("lra_release/pathfinder32/curv_contour_length_14/imgs/0/sample_0.png", b"p"),
];

fn serves(body: Vec<u8>) -> Server {
    Server::start(move |request, _| Answer::file(request, &body, "v1"))
}

#[test]
fn datasets_of_one_archive_share_its_download_even_later() {
    let body = gzip(&tar(RELEASE));
    let sum = sha256(&body);
    let server = serves(body);
    let mut world = World::new(&server, &[Listops, Retrieval]);
    assert_eq!(world.fetch().unwrap(), [Listops, Retrieval]);
    let read = |path| fs::read(path).unwrap();
    assert_eq!(read(world.folder(Listops).join("basic_val.tsv")), b"val");
    assert_eq!(read(world.folder(Retrieval).join("new_aan_pairs.eval.tsv")), b"b");
    assert_eq!(world.fetch().unwrap(), [], "a second call has nothing to do");
    world.request.datasets = vec![Pathfinder.into()];
    world.request.offline = true; // the archive was kept
    world.fetch().unwrap();
    let picture = world.folder(Pathfinder).join("imgs/0/sample_0.png");
    assert_eq!(read(picture), b"p");
    let easy = world.request.root.join("lra_release/lra_release/pathfinder32");
    assert_eq!(names(&easy), ["curv_contour_length_14"]);
    assert_eq!(server.seen().len(), 1);
    let archives = names(&world.request.root.join("archives"));
    assert_eq!(archives, ["lra.lock", "lra_release.gz", "lra_release.gz.sha256"]);
    let record = fs::read_to_string(world.request.root.join("fetched/listops.json")).unwrap();
    assert!(record.contains(&sum) && record.contains("lra_release.gz"), "{record}");
}

#[test]
fn an_archive_can_be_removed_and_a_plain_tar_will_do() {
    let parts = entry(Image.into()).parts.iter().map(|p| format!("cifar-10-batches-bin/{p}"));
    let parts: Vec<String> = parts.collect();
    let files: Vec<(&str, &[u8])> = parts.iter().map(|p| (p.as_str(), &b"x"[..])).collect();
    let server = serves(tar(&files));
    let mut world = World::new(&server, &[Image]);
    world.request.delete_archive = true;
    assert_eq!(world.fetch().unwrap(), [Image]);
    assert!(world.folder(Image).join("test_batch.bin").exists());
    assert!(!world.request.root.join("archives/cifar-10-binary.tar.gz").exists());
}

/// Error for an archive, after which the folder of the dataset must not exist.
fn refused(body: Vec<u8>) -> Diagnostic {
    refused_as("corrupt", body)
}

/// [`refused`], with the kind of the error.
fn refused_as(kind: &str, body: Vec<u8>) -> Diagnostic {
    let server = serves(body);
    let mut world = World::new(&server, &[Listops]);
    let at = world.fails(kind);
    assert!(!world.folder(Listops).exists(), "{at:?}");
    let archives = names(&world.request.root.join("archives"));
    let left = |name: &String| name.starts_with("unpacking");
    assert!(!archives.iter().any(left), "{archives:?}");
    assert_eq!(names(world.dir.path()), ["root"], "nothing outside the root");
    at
}

#[test]
fn names_that_lead_out_of_an_archive_are_refused() {
    for name in ["../../../evil", "/tmp/evil", "lra_release/lra_release/listops-1000/../../../../../evil"] {
        let files = [RELEASE, &[(name, b"x")]].concat();
        refused(gzip(&tar(&files))).names(&[name]);
    }
}

#[test]
fn links_in_a_wanted_folder_are_refused() {
    let name = "lra_release/lra_release/listops-1000/basic_train.tsv";
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char] {
        refused(gzip(&tar_of([(name, &b""[..], kind)]))).names(&[name]);
    }
}

#[test]
fn a_cut_archive_is_refused_wherever_it_is_cut() {
    let whole = gzip(&tar(RELEASE));
    for len in [20, whole.len() / 2, whole.len() - 1] {
        refused(whole[..len].to_vec()).names(&["--force"]);
    }
}

#[test]
fn every_damaged_byte_ends_in_a_sentence_or_in_the_right_files() {
    let whole = gzip(&tar(RELEASE));
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let server = serves(damaged);
        let mut world = World::new(&server, &[Listops]);
        if world.fetch().is_ok() {
            let train = fs::read(world.folder(Listops).join("basic_train.tsv"));
            assert_eq!(train.unwrap(), b"train", "byte {at}");
        }
    }
}

#[test]
fn an_archive_without_the_folder_or_a_file_of_it_is_refused() {
    let folder = "lra_release/lra_release/listops-1000";
    refused(gzip(&tar(&RELEASE[3..]))).names(&[folder]);
    refused(gzip(&tar(&RELEASE[1..]))).names(&["listops-1000/basic_train.tsv"]);
}

#[test]
fn a_page_in_place_of_an_archive_is_not_kept() {
    refused_as("io", b"<!DOCTYPE html><p>Please log in".to_vec()).names(&["gzip"]);
}

#[test]
fn a_folder_that_is_there_in_part_is_replaced_by_force_only() {
    let server = serves(gzip(&tar(RELEASE)));
    let mut world = World::new(&server, &[Listops]);
    let folder = world.folder(Listops);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("mine.txt"), b"mine").unwrap();
    let at = world.fails("refused");
    at.is_at(&folder, None).names(&["basic_train.tsv", "--force"]);
    assert_eq!(names(&folder), ["mine.txt"]);
    world.request.force = true;
    assert_eq!(world.fetch().unwrap(), [Listops]);
    assert_eq!(names(&folder).len(), 3);
    world.fetch().unwrap();
    assert_eq!(server.seen().len(), 2, "force downloads again");
}

#[test]
fn the_second_of_two_waits_and_downloads_nothing() {
    let server = serves(gzip(&tar(RELEASE)));
    let mut first = World::new(&server, &[Listops]);
    let mut second = World::new(&server, &[Listops]);
    second.request.root = first.request.root.clone();
    let archives = first.request.root.join("archives");
    fs::create_dir_all(&archives).unwrap();
    let lock = fs::File::create(archives.join("lra.lock")).unwrap();
    lock.lock().unwrap();
    let got = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for world in [&mut first, &mut second] {
            let got = Arc::clone(&got);
            scope.spawn(move || {
                let fetched = world.fetch().unwrap().len();
                got.lock().unwrap().push(fetched);
                assert!(world.recorder.said("another process"), "{:?}", world.recorder.said);
            });
        }
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(server.seen().len(), 0, "nothing happens without the lock");
        drop(lock);
    });
    let mut got = got.lock().unwrap().clone();
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
    assert_eq!(server.seen().len(), 1);
}
