//! HTTP download of one file. It resumes a partial download, retries when a connection drops, and renames the file to
//! its own name only once it is complete and matches the published checksum.

use super::context::FetchContext;
use super::part::{PartialDownload, Version};
use crate::error::{Error, Result};
use crate::files;
use md5::Md5;
use sha2::Sha256;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread;
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{header, Response, StatusCode};
use ureq::Agent;

/// Number of consecutive failures without progress after which a download is abandoned.
const TRIES: u32 = 4;
const CONNECT: Duration = Duration::from_secs(20);
/// Time without data after which a server is taken to be gone.
const SILENCE: Duration = Duration::from_secs(60);
/// Size in bytes of one read.
const BLOCK: usize = 1 << 17;
/// Number of blocks that may wait for the disk.
const BLOCKS: usize = 16;

/// File to download.
pub(super) struct Download<'a> {
    pub url: &'a str,
    /// Destination, whose folder exists.
    pub target: &'a Path,
    /// Published length in bytes.
    pub bytes: Option<u64>,
    pub checksum: PublishedChecksum,
    /// Access token, sent only to the host of `url`.
    pub token: Option<&'a str>,
}

/// Published checksum, in lower-case hexadecimal digits.
#[derive(Clone, Debug)]
pub(super) enum PublishedChecksum {
    /// No checksum is published.
    Unknown,
    /// MD5: sufficient against damage, not against an attacker.
    Md5(String),
    /// SHA-256.
    Sha256(String),
}

impl PublishedChecksum {
    /// Returns a description of the mismatch if the file at `path` has another checksum.
    fn mismatch(&self, path: &Path, context: &FetchContext) -> Result<Option<String>> {
        let check_stopped = || context.check_stopped();
        let (name, found, published) = match self {
            Self::Unknown => return Ok(None),
            Self::Md5(published) => ("MD5", files::digest::<Md5>(path, check_stopped)?, published),
            Self::Sha256(published) => ("SHA-256", files::digest::<Sha256>(path, check_stopped)?, published),
        };
        Ok((found != *published).then(|| format!("its {name} is {found}, not {published} as published")))
    }
}

/// Failure of one attempt, classified for retries.
#[derive(Debug)]
pub(super) enum AttemptFailure {
    /// Another attempt may succeed.
    Transient(String),
    /// Another attempt may succeed, and need not fetch again what this one received.
    Interrupted(String),
    /// Another attempt would fail in the same way.
    Permanent(String),
}

/// Downloads `wanted`, resuming a partial download of an earlier call. Fails with an [`Error::Io`] that names the
/// address or the file that could not be written, or with [`Error::Stopped`].
pub(super) fn download(wanted: &Download, context: &mut FetchContext) -> Result<()> {
    let mut part = PartialDownload::open(wanted.target, wanted.url)?;
    let (url, from) = (wanted.url, part.len);
    let what = match from {
        0 => url.to_owned(),
        n => format!("{url}, from byte {n} on"),
    };
    let total = part.whole().or(wanted.bytes);
    context.progress.start(&what, from, total);
    let whole = retry(url, context, |context| attempt(wanted, &mut part, context));
    context.progress.end();
    if let Err(e) = whole {
        if part.len > 0 {
            let (kept, path) = (part.len, part.path.display());
            let line = format!("kept {kept} bytes in {path}: the same command continues there");
            context.progress.say(&line);
        }
        return Err(e);
    }
    if let Some(fault) = wanted.checksum.mismatch(&part.path, context)? {
        part.remove()?;
        let advice = "nothing was kept; try again, or another mirror";
        return Err(failed(url, format!("{fault}: {advice}")));
    }
    part.finish(wanted.target)
}

/// Error of the form "cannot download URL: ...".
pub(super) fn failed(url: &str, reason: String) -> Error {
    Error::io("download", url)(io::Error::other(reason))
}

/// Repeats `attempt` until it succeeds or cannot succeed. The outer error of an attempt ends the download, the inner
/// one only the attempt.
pub(super) fn retry<T>(
    url: &str,
    context: &mut FetchContext,
    mut attempt: impl FnMut(&mut FetchContext) -> Result<Result<T, AttemptFailure>>,
) -> Result<T> {
    let mut failures = 0;
    loop {
        context.check_stopped()?;
        let reason;
        (failures, reason) = match attempt(context)? {
            Ok(done) => return Ok(done),
            Err(AttemptFailure::Permanent(reason)) => return Err(failed(url, reason)),
            Err(AttemptFailure::Interrupted(reason)) => (1, reason),
            Err(AttemptFailure::Transient(reason)) => (failures + 1, reason),
        };
        if failures == TRIES {
            return Err(failed(url, format!("{reason}, {TRIES} times in a row")));
        }
        context.progress.say(&format!("{reason}; trying again"));
        context.sleep(context.pause * 2_u32.pow(failures - 1))?;
    }
}

/// Makes one request and appends its body to `part`.
fn attempt(
    wanted: &Download,
    part: &mut PartialDownload,
    context: &mut FetchContext,
) -> Result<Result<(), AttemptFailure>> {
    let from = part.len;
    if from > 0 && part.whole() == Some(from) {
        return Ok(Ok(())); // an earlier call was stopped before the checksum
    }
    let messages = request_file(wanted, from, part.validator());
    let mut accepted = false;
    loop {
        // The client itself times out on a silent server; this limit guards against a client that hangs.
        let Ok(message) = context.receive(&messages, 4 * SILENCE)? else {
            return Ok(Err(broke_off(part, from, "no answer")));
        };
        match message {
            TransferMessage::Head(head) => {
                if let Err(failure) = accept(wanted, &head, part)? {
                    return Ok(Err(failure));
                }
                accepted = true;
                if let Some(whole) = part.whole() {
                    context.progress.total(whole);
                }
            }
            TransferMessage::Block(bytes) => part.append(&bytes)?,
            TransferMessage::End => return check_length(part, from),
            TransferMessage::Failed(AttemptFailure::Transient(reason)) if accepted => {
                return Ok(Err(broke_off(part, from, &reason)));
            }
            TransferMessage::Failed(failure) => return Ok(Err(failure)),
        }
        context.progress.reach(part.len);
    }
}

/// Prepares `part` for the body of `response`, or returns the reason why the body is unusable.
fn accept(
    wanted: &Download,
    response: &Response<()>,
    part: &mut PartialDownload,
) -> Result<Result<(), AttemptFailure>> {
    let from = part.len;
    match response.status() {
        StatusCode::PARTIAL_CONTENT if from > 0 => {
            if content_range(response) == part.whole().map(|whole| (from, whole)) {
                return Ok(Ok(()));
            }
            part.clear()?;
            let reason = "the server sent other bytes than were requested";
            Ok(Err(AttemptFailure::Transient(reason.to_owned())))
        }
        StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => {
            part.clear()?;
            let reason = "the file on the server has changed";
            Ok(Err(AttemptFailure::Transient(reason.to_owned())))
        }
        StatusCode::OK => {
            let bytes = text(response, header::CONTENT_LENGTH).and_then(|text| text.trim().parse().ok());
            if let (Some(found), Some(published)) = (bytes, wanted.bytes) {
                if found != published {
                    let reason = format!("it has {found} bytes, not {published} as published");
                    return Ok(Err(AttemptFailure::Permanent(reason)));
                }
            }
            part.restart(Version {
                url: wanted.url.to_owned(),
                validator: validator(response),
                bytes: bytes.or(wanted.bytes),
            })?;
            Ok(Ok(()))
        }
        status => Ok(Err(refusal(status))),
    }
}

/// Checks that a body that ended has the announced length. If not, another attempt is needed.
fn check_length(part: &mut PartialDownload, from: u64) -> Result<Result<(), AttemptFailure>> {
    match part.whole() {
        Some(whole) if part.len < whole => Ok(Err(broke_off(part, from, "the server closed it"))),
        Some(whole) if part.len > whole => {
            part.clear()?;
            let reason = format!("the server sent more than the announced {whole} bytes");
            Ok(Err(AttemptFailure::Transient(reason)))
        }
        _ => Ok(Ok(())),
    }
}

fn broke_off(part: &PartialDownload, from: u64, why: &str) -> AttemptFailure {
    let len = part.len;
    let of = part.whole().map_or(String::new(), |n| format!(" of {n}"));
    let reason = format!("the connection broke off after {len}{of} bytes ({why})");
    match len > from {
        true => AttemptFailure::Interrupted(reason),
        false => AttemptFailure::Transient(reason),
    }
}

/// Messages of the thread of a request, in order.
enum TransferMessage {
    /// Status and headers.
    Head(Box<Response<()>>),
    /// Some bytes of the body.
    Block(Vec<u8>),
    /// End of the body.
    End,
    Failed(AttemptFailure),
}

/// Requests the bytes of a file from byte `from` on, on a thread, because a read from a silent server cannot be
/// interrupted. The thread ends once the receiver is dropped.
fn request_file(wanted: &Download, from: u64, validator: Option<&str>) -> Receiver<TransferMessage> {
    // By default the client follows redirections and takes proxies from the usual environment variables.
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        // A file that a server compresses in transit cannot be resumed at a byte offset.
        .accept_encoding("identity")
        .user_agent(concat!("dsf/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT))
        .timeout_per_read(Some(SILENCE))
        .build()
        .into();
    let mut request = agent.get(wanted.url);
    if let Some(token) = wanted.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if from > 0 {
        request = request.header(header::RANGE, format!("bytes={from}-"));
        if let Some(validator) = validator {
            request = request.header(header::IF_RANGE, validator);
        }
    }
    let (sender, receiver) = sync_channel(BLOCKS);
    thread::spawn(move || {
        let last = match request.call().map_err(failure).and_then(|r| send(r, &sender)) {
            Ok(()) => TransferMessage::End,
            Err(failure) => TransferMessage::Failed(failure),
        };
        let _ = sender.send(last); // fails after a stop, when the receiver is gone
    });
    receiver
}

fn send(response: Response<ureq::Body>, sender: &SyncSender<TransferMessage>) -> Result<(), AttemptFailure> {
    let (head, body) = response.into_parts();
    let head = TransferMessage::Head(Box::new(Response::from_parts(head, ())));
    let mut going = sender.send(head).is_ok();
    let mut reader = body.into_reader();
    while going {
        let mut block = vec![0; BLOCK];
        match reader.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                block.truncate(n);
                going = sender.send(TransferMessage::Block(block)).is_ok();
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(AttemptFailure::Transient(e.to_string())),
        }
    }
    Ok(())
}

/// Classifies an error of the client by whether another attempt may succeed.
pub(super) fn failure(error: ureq::Error) -> AttemptFailure {
    use ureq::Error::{
        BodyStalled, ConnectProxyFailed, ConnectionFailed, HostNotFound, Io, Protocol, StatusCode, Timeout,
    };
    match error {
        StatusCode(code) => match ureq::http::StatusCode::from_u16(code) {
            Ok(status) => refusal(status),
            Err(_) => AttemptFailure::Permanent(format!("the server answered {code}")),
        },
        Io(e) => AttemptFailure::Transient(e.to_string()),
        Timeout(_) | HostNotFound | ConnectionFailed | ConnectProxyFailed(_) | Protocol(_) | BodyStalled => {
            AttemptFailure::Transient(error.to_string())
        }
        other => AttemptFailure::Permanent(other.to_string()),
    }
}

/// Classifies a status other than success.
fn refusal(status: StatusCode) -> AttemptFailure {
    let said = format!("the server answered {status}");
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => AttemptFailure::Transient(said),
        s if s.is_server_error() => AttemptFailure::Transient(said),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            AttemptFailure::Permanent(format!("{said}: it requires a login or denies access"))
        }
        _ => AttemptFailure::Permanent(said),
    }
}

fn text(response: &Response<()>, name: header::HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// First byte and total length of a header such as `Content-Range: bytes 5-9/10`.
fn content_range(response: &Response<()>) -> Option<(u64, u64)> {
    parse_range(text(response, header::CONTENT_RANGE)?)
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (range, whole) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, whole.trim().parse().ok()?))
}

/// Validator of this version of the file: a strong ETag, or else the time of its last change.
fn validator(response: &Response<()>) -> Option<String> {
    let strong = text(response, header::ETAG).filter(|tag| tag.starts_with('"'));
    strong.or_else(|| text(response, header::LAST_MODIFIED)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_or_not_at_all() {
        assert_eq!(parse_range("bytes 5-9/10"), Some((5, 10)));
        for broken in ["", "bytes", "bytes */10", "bytes 5-9/*", "items 5-9/10", "bytes a-b/c"] {
            assert_eq!(parse_range(broken), None, "{broken}");
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let passing = |code| {
            let status = StatusCode::from_u16(code).unwrap();
            matches!(refusal(status), AttemptFailure::Transient(_))
        };
        assert_eq!([429, 500, 503].map(passing), [true; 3]);
        assert_eq!([400, 401, 403, 404, 410].map(passing), [false; 5]);
    }
}
