//! One request, and which of its failures pass.

use std::io::{ErrorKind, Read};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread;
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{header, Response, StatusCode};
use ureq::{Agent, Body};

const CONNECT: Duration = Duration::from_secs(20);
/// A server that says nothing for so long has gone.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// Bytes read at once.
const PIECE: usize = 1 << 17;
/// Pieces that may wait for the disk.
const PIECES: usize = 16;

/// Why an attempt came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another attempt may do better.
    Passing(String),
    /// Another attempt would end the same way.
    Final(String),
}

/// A client that follows redirections, with proxies from the usual variables.
fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        // Parts of a file that a server compresses on the way cannot be put together again.
        .accept_encoding("identity")
        .user_agent(concat!("dsf/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT))
        .timeout_per_read(Some(SILENCE))
        .build()
        .into()
}

/// What is asked for.
pub(super) struct Request {
    pub url: String,
    /// Told to the host of `url` alone.
    pub token: Option<String>,
    /// The first byte that is wanted.
    pub from: u64,
    /// The version that a part has to be of, see [`validator`].
    pub validator: Option<String>,
}

/// What comes in answer, one after the other.
pub(super) enum Piece {
    /// Status and headers.
    Head(Box<Response<()>>),
    /// Some of the body.
    Bytes(Vec<u8>),
    /// Its end.
    End,
    /// What went wrong.
    Failed(Failure),
}

/// Asks on a thread of its own, which ends once nobody receives: a read from a silent server cannot
/// be stopped.
pub(super) fn ask(request: Request) -> Receiver<Piece> {
    let (sender, receiver) = sync_channel(PIECES);
    thread::spawn(move || {
        let last = match fetch(&request, &sender) {
            Ok(()) => Piece::End,
            Err(failure) => Piece::Failed(failure),
        };
        let _ = sender.send(last); // nobody receives after a stop
    });
    receiver
}

fn fetch(request: &Request, sender: &SyncSender<Piece>) -> Result<(), Failure> {
    let (head, body) = get(request)?.into_parts();
    let head = Piece::Head(Box::new(Response::from_parts(head, ())));
    let mut going = sender.send(head).is_ok();
    let mut reader = body.into_reader();
    while going {
        let mut buffer = vec![0; PIECE];
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                buffer.truncate(n);
                going = sender.send(Piece::Bytes(buffer)).is_ok();
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Failure::Passing(e.to_string())),
        }
    }
    Ok(())
}

fn get(asked: &Request) -> Result<Response<Body>, Failure> {
    let mut request = agent().get(&asked.url);
    if let Some(token) = &asked.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if asked.from > 0 {
        request = request.header(header::RANGE, format!("bytes={}-", asked.from));
        if let Some(validator) = &asked.validator {
            request = request.header(header::IF_RANGE, validator);
        }
    }
    request.call().map_err(failure)
}

/// Whether an error of the client may pass.
pub(super) fn failure(error: ureq::Error) -> Failure {
    use ureq::Error::{
        BodyStalled, ConnectProxyFailed, ConnectionFailed, HostNotFound, Io, Protocol, Timeout,
    };
    let passing = matches!(
        error,
        Io(_)
            | Timeout(_)
            | HostNotFound
            | ConnectionFailed
            | ConnectProxyFailed(_)
            | Protocol(_)
            | BodyStalled
    );
    let reason = match error {
        ureq::Error::StatusCode(code) => {
            return StatusCode::from_u16(code).map_or_else(
                |_| Failure::Final(format!("the server answered {code}")),
                refusal,
            )
        }
        Io(e) => e.to_string(),
        other => other.to_string(),
    };
    if passing {
        Failure::Passing(reason)
    } else {
        Failure::Final(reason)
    }
}

/// What a status that is no success means.
pub(super) fn refusal(status: StatusCode) -> Failure {
    let said = format!("the server answered {status}");
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Failure::Passing(said),
        s if s.is_server_error() => Failure::Passing(said),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Failure::Final(format!("{said}: it wants a login or does not serve you"))
        }
        _ => Failure::Final(said),
    }
}

/// A header's text.
pub(super) fn text(response: &Response<()>, name: header::HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// The first byte and the whole length of a `Content-Range: bytes 5-9/10`.
pub(super) fn content_range(response: &Response<()>) -> Option<(u64, u64)> {
    parse_range(text(response, header::CONTENT_RANGE)?)
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (range, whole) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, whole.trim().parse().ok()?))
}

/// What tells this version of a file from others: a strong ETag, else the time of its last change.
pub(super) fn validator(response: &Response<()>) -> Option<String> {
    let strong = text(response, header::ETAG).filter(|tag| tag.starts_with('"'));
    let found = strong.or_else(|| text(response, header::LAST_MODIFIED));
    found.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_or_not_at_all() {
        assert_eq!(parse_range("bytes 5-9/10"), Some((5, 10)));
        for broken in [
            "",
            "bytes",
            "bytes */10",
            "bytes 5-9/*",
            "items 5-9/10",
            "bytes a-b/c",
        ] {
            assert_eq!(parse_range(broken), None, "{broken}");
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let passing = |code| {
            let status = StatusCode::from_u16(code).unwrap();
            matches!(refusal(status), Failure::Passing(_))
        };
        assert_eq!([429, 500, 503].map(passing), [true; 3]);
        assert_eq!([400, 401, 403, 404, 410].map(passing), [false; 5]);
    }
}
