//! Web server on loopback whose failures the test chooses.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Same request for another path.
    pub fn at(&self, path: String) -> Self {
        Self { path, headers: self.headers.clone() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name)?;
        Some(&found.1)
    }

    /// First and, if given, last byte of a header such as `Range: bytes=5-9`.
    pub fn range(&self) -> Option<(usize, Option<usize>)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()))
    }
}

#[derive(Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Number of bytes of the body after which the server closes the connection.
    pub cut: Option<usize>,
    /// Whether to keep the connection open without sending more after `cut` bytes.
    pub hang: bool,
    /// Whether to omit the length.
    pub lengthless: bool,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn ok(body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..Self::status(200) }
    }

    pub fn redirect(to: String) -> Self {
        Self::status(302).with("Location", to)
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn cut(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }

    /// Answer of a correct server with `body` and `etag`: the requested range, unless the file has changed.
    pub fn file(request: &Request, body: &[u8], etag: &str) -> Self {
        let tag = format!("\"{etag}\"");
        let same = request.header("if-range").is_none_or(|asked| asked == tag);
        let (first, last) = match request.range() {
            Some(range) if same => range,
            _ => return Self::ok(body).with("ETag", tag),
        };
        let whole = body.len();
        if first >= whole {
            return Self::status(416).with("Content-Range", format!("bytes */{whole}"));
        }
        let last = last.unwrap_or(whole - 1).min(whole - 1);
        let mut answer = Self::ok(&body[first..=last])
            .with("ETag", tag)
            .with("Content-Range", format!("bytes {first}-{last}/{whole}"));
        answer.status = 206;
        answer
    }
}

/// Server that answers one request per connection until it is dropped.
pub struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server. `answer` receives a request and the number of earlier ones.
    pub fn start(answer: impl Fn(&Request, usize) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, over) = (Arc::new(Mutex::new(Vec::new())), Arc::default());
        let (requests, ended) = (Arc::clone(&seen), Arc::<AtomicBool>::clone(&over));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                let Some(request) = read(&stream) else {
                    continue;
                };
                let before = requests.lock().unwrap().len();
                let answer = answer(&request, before);
                requests.lock().unwrap().push(request);
                let _ = write(&mut stream, &answer); // fails if the client is gone
                while answer.hang && !ended.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(10));
                }
            }
        });
        Self { address, seen, over, thread: Some(thread) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the listener
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    Some(Request { path, headers })
}

fn write(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Said\r\nConnection: close\r\n", answer.status);
    if !answer.lengthless {
        head += &format!("Content-Length: {}\r\n", answer.body.len());
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(&answer.body[..answer.cut.unwrap_or(answer.body.len())])
}
