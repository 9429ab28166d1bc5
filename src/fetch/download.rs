//! A file by HTTP: continued where it broke off, tried again when a connection drops, and under its
//! own name only once it is whole and has the right sum.

use super::checksum::Checksum;
use super::host::Host;
use super::http::{self, Failure, Piece, Request, SILENCE};
use super::part::{Part, Version};
use crate::error::{Error, Result};
use std::io;
use std::path::Path;
use ureq::http::{header, Response, StatusCode};

/// Failures in a row, without a byte between them, after which a download is given up.
const TRIES: u32 = 4;

/// A file to be had.
pub(super) struct Wanted<'a> {
    pub url: &'a str,
    /// Where it shall lie; its folder exists.
    pub target: &'a Path,
    /// Its published length.
    pub bytes: Option<u64>,
    pub checksum: Checksum,
    /// See [`Request::token`].
    pub token: Option<&'a str>,
}

/// Fetches `wanted` and gives its SHA-256. A part that an earlier call left is continued.
///
/// # Errors
/// [`Error::Io`] that names the address, or the file that could not be written;
/// [`Error::Stopped`] once the host's flag is up.
pub(super) fn download(wanted: &Wanted, host: &mut Host) -> Result<String> {
    let mut part = Part::open(wanted.target, wanted.url)?;
    let (url, from) = (wanted.url, part.len());
    let what = match from {
        0 => url.to_owned(),
        n => format!("{url}, from byte {n} on"),
    };
    host.watch.start(&what, from, part.whole().or(wanted.bytes));
    let whole = persist(wanted, &mut part, host);
    host.watch.end();
    if let Err(e) = whole {
        if part.len() > 0 {
            let path = part.path().display();
            let kept = format!(
                "kept {} bytes in {path}: the same command continues there",
                part.len()
            );
            host.watch.say(&kept);
        }
        return Err(e);
    }
    match wanted.checksum.verify(part.path(), host)? {
        Ok(sha256) => part.finish(wanted.target).map(|()| sha256),
        Err(sentence) => {
            part.remove()?;
            let advice = "nothing was kept; try again, or another mirror";
            Err(failed(url, format!("{sentence}: {advice}")))
        }
    }
}

/// "cannot download URL: ..."
pub(super) fn failed(url: &str, reason: String) -> Error {
    Error::io("download", url)(io::Error::other(reason))
}

/// Attempts until the part is whole.
fn persist(wanted: &Wanted, part: &mut Part, host: &mut Host) -> Result<()> {
    let mut failures = 0;
    loop {
        let before = part.len();
        let reason = match attempt(wanted, part, host)? {
            Ok(()) => return Ok(()),
            Err(Failure::Final(reason)) => return Err(failed(wanted.url, reason)),
            Err(Failure::Passing(reason)) => reason,
        };
        failures = if part.len() > before { 1 } else { failures + 1 };
        if failures == TRIES {
            let reason = format!("{reason}, {TRIES} times in a row");
            return Err(failed(wanted.url, reason));
        }
        host.watch.say(&format!("{reason}; trying again"));
        host.sleep(host.pause * 2_u32.pow(failures - 1))?;
    }
}

/// One request and what it brings. The outer error ends the download, the inner one the attempt.
fn attempt(wanted: &Wanted, part: &mut Part, host: &mut Host) -> Result<Result<(), Failure>> {
    host.go_on()?;
    let from = part.len();
    if from > 0 && part.whole() == Some(from) {
        return Ok(Ok(())); // stopped between the last byte and the checksum
    }
    let answer = http::ask(Request {
        url: wanted.url.to_owned(),
        token: wanted.token.map(str::to_owned),
        from,
        validator: part.validator().map(str::to_owned),
    });
    let mut accepted = false;
    loop {
        // The client itself knows when a server has been silent for too long.
        let Ok(piece) = host.receive(&answer, 4 * SILENCE)? else {
            return Ok(Err(broke_off(part, "no answer")));
        };
        match piece {
            Piece::Head(head) => {
                if let Err(failure) = accept(wanted, &head, part)? {
                    return Ok(Err(failure));
                }
                accepted = true;
                if let Some(whole) = part.whole() {
                    host.watch.total(whole);
                }
            }
            Piece::Bytes(bytes) => part.append(&bytes)?,
            Piece::End => return check_length(part),
            Piece::Failed(Failure::Passing(reason)) if accepted => {
                return Ok(Err(broke_off(part, &reason)));
            }
            Piece::Failed(failure) => return Ok(Err(failure)),
        }
        host.watch.reach(part.len());
    }
}

/// Makes `part` ready for the body of `response`, or says why that body is not wanted.
fn accept(
    wanted: &Wanted,
    response: &Response<()>,
    part: &mut Part,
) -> Result<Result<(), Failure>> {
    let from = part.len();
    match response.status() {
        StatusCode::PARTIAL_CONTENT if from > 0 => {
            if http::content_range(response) == part.whole().map(|whole| (from, whole)) {
                return Ok(Ok(()));
            }
            part.clear()?;
            let reason = "the server continued with other bytes than were asked for";
            Ok(Err(Failure::Passing(reason.to_owned())))
        }
        StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => {
            part.clear()?;
            let reason = "the server has another file now";
            Ok(Err(Failure::Passing(reason.to_owned())))
        }
        StatusCode::OK => {
            let length = http::text(response, header::CONTENT_LENGTH);
            let bytes = length.and_then(|text| text.trim().parse().ok());
            if let (Some(found), Some(published)) = (bytes, wanted.bytes) {
                if found != published {
                    let reason = format!("it has {found} bytes, not {published} as published");
                    return Ok(Err(Failure::Final(reason)));
                }
            }
            part.restart(Version {
                url: wanted.url.to_owned(),
                validator: http::validator(response),
                bytes: bytes.or(wanted.bytes),
            })?;
            Ok(Ok(()))
        }
        status => Ok(Err(http::refusal(status))),
    }
}

/// A body that ended is all that was announced, or another attempt is needed.
fn check_length(part: &mut Part) -> Result<Result<(), Failure>> {
    match part.whole() {
        Some(whole) if part.len() < whole => Ok(Err(broke_off(part, "the server closed it"))),
        Some(whole) if part.len() > whole => {
            part.clear()?;
            let reason = format!("more than the {whole} bytes came that were announced");
            Ok(Err(Failure::Passing(reason)))
        }
        _ => Ok(Ok(())),
    }
}

fn broke_off(part: &Part, why: &str) -> Failure {
    let len = part.len();
    let of = part.whole().map_or(String::new(), |n| format!(" of {n}"));
    Failure::Passing(format!(
        "the connection broke off after {len}{of} bytes ({why})"
    ))
}
