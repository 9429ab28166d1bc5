//! Event files of TensorBoard: one folder per run with its curves, results, config as text, and settings for the
//! HParams tab.
//!
//! A file is a list of records: length of the data in 8 bytes, checksum of the length, data, checksum of the data. The
//! data is a protobuf message `Event`; the few messages needed here are written field by field, each beginning with its
//! field number and wire type.

use super::{numbers, ExportedRun};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::store::{Field, Role};
use jiff::Timestamp;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the runs into folders `MIXER-ID` below `to`, and returns the paths of their files.
pub fn tensorboard(runs: &[ExportedRun], to: &Path) -> Result<Vec<PathBuf>> {
    let written = runs.iter().map(|run| {
        let mixer = &run.config.model.mixer;
        let folder = to.join(format!("{mixer}-{}", run.id));
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let began = began(run);
        let path = folder.join(format!("events.out.tfevents.{}.dsf", began as u64));
        write_atomic(&path, &events(run, began))?;
        Ok(path)
    });
    written.collect()
}

/// Start of the run in seconds since 1970; 0 if its record lacks it.
fn began(run: &ExportedRun) -> f64 {
    let parsed = run.started.parse::<Timestamp>();
    parsed.map_or(0.0, |time| time.as_second() as f64)
}

/// Returns the event file of a run.
fn events(run: &ExportedRun, began: f64) -> Vec<u8> {
    let mut file = Vec::new();
    let mut record = |time: f64, step: usize, what: Protobuf| {
        let head = Protobuf::default().double(1, time).varint(2, step as u64);
        append(&mut file, &head.and(&what).0);
    };
    record(began, 0, Protobuf::default().bytes(3, b"brain.Event:2"));
    record(began, 0, summary([config(run), begin(run, began)]));
    let (mut time, mut last) = (began, 0);
    for row in run.epochs {
        (time, last) = (time + row.seconds, row.epoch);
        let known = numbers(row).into_iter();
        let known = known.filter_map(|(name, value)| Some((name, value?)));
        let values = known.map(|(name, value)| scalar(&format!("epoch/{name}"), value));
        record(time, row.epoch, summary(values));
    }
    if let Some(result) = run.result {
        let metrics = result.metrics.iter();
        let numbers = metrics.filter_map(|(metric, value)| Some((metric.name, value.number()?)));
        let values = numbers.map(|(name, value)| scalar(&format!("result/{name}"), value));
        record(time, last, summary(values));
        let failed = result.failure().is_some();
        record(time, last, summary([end(failed, time)]));
    }
    file
}

/// Appends one record.
fn append(file: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked(&length).to_le_bytes());
    file.extend(data);
    file.extend(masked(data).to_le_bytes());
}

/// Checksum of a record: CRC-32C, rotated by 15 bits, plus a constant of the format.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns `Event.summary` with these values.
fn summary(values: impl IntoIterator<Item = Protobuf>) -> Protobuf {
    let values = values.into_iter();
    let summary = values.fold(Protobuf::default(), |all, value| all.message(1, &value));
    Protobuf::default().message(5, &summary)
}

/// Returns a `Summary.Value` with a number.
fn scalar(tag: &str, value: f64) -> Protobuf {
    Protobuf::default().bytes(1, tag.as_bytes()).float(2, value as f32)
}

/// Returns a value for a plugin of TensorBoard, with the plugin's own `content`.
fn plugin(tag: &str, name: &str, content: &Protobuf, tensor: &Protobuf) -> Protobuf {
    let data = Protobuf::default().bytes(1, name.as_bytes()).message(2, content);
    let metadata = Protobuf::default().message(1, &data);
    Protobuf::default().bytes(1, tag.as_bytes()).message(9, &metadata).message(8, tensor)
}

/// Returns the config as a block of Markdown.
fn config(run: &ExportedRun) -> Protobuf {
    const STRING: u64 = 7;
    let json = serde_json::to_string_pretty(run.config).expect("a run config is plain data");
    let text: String = json.lines().map(|line| format!("    {line}\n")).collect();
    let tensor = Protobuf::default().varint(1, STRING).message(2, &Protobuf::default()).bytes(8, text.as_bytes());
    plugin("config", "text", &Protobuf::default(), &tensor)
}

/// Returns `SessionStartInfo`: the settings of the run, for the HParams tab.
fn begin(run: &ExportedRun, began: f64) -> Protobuf {
    let record = run.record();
    let settings = [Role::Setting, Role::Cell, Role::Rate, Role::Seed];
    let settings = settings.into_iter().flat_map(|role| record.values(role));
    let mut session = Protobuf::default();
    for (column, value) in settings {
        let value = match value {
            Field::Absent => continue,
            Field::Flag(flag) => Protobuf::default().varint(4, u64::from(*flag)),
            Field::Text(text) => Protobuf::default().bytes(3, text.as_bytes()),
            Field::Count(_) | Field::Real(_) => Protobuf::default().double(2, value.number().unwrap_or(f64::NAN)),
        };
        let entry = Protobuf::default().bytes(1, column.name.as_bytes()).message(2, &value);
        session = session.message(1, &entry);
    }
    let session = session.bytes(4, run.id.as_bytes()).double(5, began);
    of_session("start", 3, &session)
}

/// Returns `SessionEndInfo`.
fn end(failed: bool, time: f64) -> Protobuf {
    const SUCCESS: u64 = 1;
    const FAILURE: u64 = 2;
    let status = if failed { FAILURE } else { SUCCESS };
    let session = Protobuf::default().varint(1, status).double(2, time);
    of_session("end", 4, &session)
}

fn of_session(what: &str, field: u64, session: &Protobuf) -> Protobuf {
    const FLOAT: u64 = 1;
    let content = Protobuf::default().message(field, session);
    // The value is empty; the content holds the data.
    let empty = Protobuf::default().varint(1, FLOAT).message(2, &Protobuf::default().message(2, &Protobuf::default()));
    let tag = format!("_hparams_/session_{what}_info");
    plugin(&tag, "hparams", &content, &empty)
}

/// A protobuf message under construction.
#[derive(Clone, Debug, Default)]
struct Protobuf(Vec<u8>);

impl Protobuf {
    const VARINT: u64 = 0;
    const EIGHT_BYTES: u64 = 1;
    const LENGTH: u64 = 2;
    const FOUR_BYTES: u64 = 5;

    /// Appends a varint: seven bits per byte, lowest first; the eighth bit marks that more follow.
    fn number(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn key(self, field: u64, wire: u64) -> Self {
        self.number(field << 3 | wire)
    }

    fn varint(self, field: u64, value: u64) -> Self {
        self.key(field, Self::VARINT).number(value)
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self = self.key(field, Self::EIGHT_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(mut self, field: u64, value: f32) -> Self {
        self = self.key(field, Self::FOUR_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self = self.key(field, Self::LENGTH).number(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn message(self, field: u64, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Appends the fields of `other`.
    fn and(mut self, other: &Self) -> Self {
        self.0.extend(&other.0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::sample;
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_format() {
        // The check value of CRC-32C.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        // TFRecord's documentation: ((crc >> 15) | (crc << 17)) + 0xa282ead8.
        let check = 0xe306_9283_u64;
        let turned = ((check >> 15) | (check << 17)) & 0xffff_ffff;
        let masked_check = (turned + 0xa282_ead8) & 0xffff_ffff;
        assert_eq!(u64::from(masked(b"123456789")), masked_check);
    }

    /// Returns the data of a file's records, after checking lengths and checksums.
    fn records(mut file: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !file.is_empty() {
            let (length, rest) = file.split_at(8);
            let (check, rest) = rest.split_at(4);
            assert_eq!(masked(length).to_le_bytes(), check);
            let size = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let (data, rest) = rest.split_at(size);
            let (check, rest) = rest.split_at(4);
            assert_eq!(masked(data).to_le_bytes(), check);
            records.push(data.to_vec());
            file = rest;
        }
        records
    }

    fn holds(data: &[u8], text: &str) -> bool {
        data.windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[test]
    fn a_run_is_a_file_of_records_with_its_version_its_epochs_and_its_end() {
        let sample = sample(3);
        let folder = tempfile::tempdir().unwrap();
        let written = tensorboard(&[sample.done()], folder.path()).unwrap();
        let name = written[0].to_string_lossy().into_owned();
        let place = format!("linear-{}/events.out.tfevents.1769853600.dsf", sample.done().id);
        assert!(name.ends_with(&place), "{name}");
        let found = records(&fs::read(&written[0]).unwrap());
        assert_eq!(found.len(), 6, "version, settings, two epochs, results, end");
        assert!(holds(&found[0], "brain.Event:2"));
        for text in ["config", "_hparams_/session_start_info", "kv_pairs"] {
            assert!(holds(&found[1], text), "{text}");
        }
        assert!(holds(&found[3], "epoch/train_loss") && !holds(&found[3], "val_loss"));
        assert!(holds(&found[4], "result/accuracy"));
        assert!(holds(&found[5], "_hparams_/session_end_info"));
    }

    #[test]
    fn an_unfinished_run_has_no_end_event() {
        let sample = sample(3);
        let found = records(&events(&sample.begun(), 0.0));
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn numbers_are_written_in_sevens_of_bits() {
        assert_eq!(Protobuf::default().varint(2, 300).0, [0x10, 0xac, 0x02]);
        assert_eq!(Protobuf::default().bytes(1, b"ab").0, [0x0a, 2, b'a', b'b']);
    }
}
