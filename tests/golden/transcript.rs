//! One transcript: requests, raw answers, and the file they are compared with.

use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf};

use reqwest::Method;
use serde_json::Value;
use windlass_tests::Server;

/// The shortest sequence of hexadecimal digits that is taken for an id.
const ID_DIGITS_MIN: usize = 16;

/// The headers that are part of a transcript.
const HEADERS: [&str; 4] = ["content-type", "retry-after", "x-should-retry", "www-authenticate"];

/// The time to the first token of a reply, whatever it was.
const FIRST_TOKEN: &str = "\"first_token_ms\":<ms>";

/// A transcript in the making.
#[derive(Default)]
pub struct Transcript {
    text: String,
    names: Names,
}

impl Transcript {
    /// Sends a request and records it with its raw answer. The server must end the answer. Returns the body of the answer as JSON, or null
    /// if it is no JSON.
    pub async fn send(&mut self, server: &Server, method: Method, path: &str, body: Option<Value>) -> Value {
        let text = self.send_with(server, method, path, &[], body).await;
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// The same with request headers, returning the raw body of the answer.
    pub async fn send_with(
        &mut self,
        server: &Server,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> String {
        let mut request = server.request(method.clone(), path).bearer_auth(server.token());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.line(&format!("> {method} {path}"));
        if let Some(body) = body {
            self.line(&format!("> {body}"));
            request = request.json(&body);
        }
        let response = request.send().await.expect("the server answers");
        self.line(&format!("< {}", response.status().as_u16()));
        for name in HEADERS {
            if let Some(value) = response.headers().get(name) {
                self.line(&format!("< {name}: {}", value.to_str().expect("a header of text")));
            }
        }
        let text = response.text().await.expect("the answer is text");
        self.line(&text);
        self.line("");
        text
    }

    /// Sends a GET request.
    pub async fn get(&mut self, server: &Server, path: &str) -> Value {
        self.send(server, Method::GET, path, None).await
    }

    /// Sends a POST request.
    pub async fn post(&mut self, server: &Server, path: &str, body: Value) -> Value {
        self.send(server, Method::POST, path, Some(body)).await
    }

    /// Records a line.
    pub fn line(&mut self, line: &str) {
        let line = self.names.replace_in(line);
        // A time of less than a millisecond is shown as null, or left out.
        let line = line.replace("\"first_token_ms\":null", FIRST_TOKEN).replace(&format!("\"model\":{{{FIRST_TOKEN}}},"), "");
        writeln!(self.text, "{line}").expect("a string takes text");
    }

    /// Compares the transcript with its file, or writes the file if `WINDLASS_UPDATE_GOLDEN=1` is set.
    pub fn check(self, name: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/transcripts").join(format!("{name}.txt"));
        if std::env::var_os("WINDLASS_UPDATE_GOLDEN").is_some() {
            return fs::write(&path, self.text).expect("the transcript can be written");
        }
        let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (number, (expected, found)) in golden.lines().zip(self.text.lines()).enumerate() {
            assert_eq!(found, expected, "{name}.txt, line {}", number + 1);
        }
        assert_eq!(self.text.lines().count(), golden.lines().count(), "{name}.txt has another number of lines");
    }
}

/// The placeholders for values that differ between executions: ids by the order of their appearance, times, ports.
#[derive(Default)]
struct Names {
    ids: BTreeMap<String, usize>,
}

impl Names {
    fn replace_in(&mut self, line: &str) -> String {
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            if let Some(after) = after_time(rest) {
                out.push_str("<time>");
                rest = after;
                continue;
            }
            let word: &str = match rest.find(|character: char| !character.is_ascii_alphanumeric()) {
                Some(0) => &rest[..first.len_utf8()],
                Some(end) => &rest[..end],
                None => rest,
            };
            rest = &rest[word.len()..];
            let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && out.ends_with("127.0.0.1:") {
                out.push_str("<port>");
            } else if is_number && ["\"first_token_ms\":", "\"waited_ms\":"].iter().any(|name| out.ends_with(name)) {
                out.push_str("<ms>");
            } else {
                out.push_str(&self.name(word));
            }
        }
        out
    }

    fn name(&mut self, word: &str) -> String {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_hex = word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        // Seconds or milliseconds since 1970.
        if is_number && word.starts_with("17") | word.starts_with("18") && [10, 13].contains(&word.len()) {
            return "<time>".to_owned();
        }
        if is_hex && word.len() >= ID_DIGITS_MIN {
            let next = self.ids.len() + 1;
            let number = *self.ids.entry(word.to_owned()).or_insert(next);
            return format!("<id {number}>");
        }
        word.to_owned()
    }
}

/// What follows a time such as 2026-11-18T20:24:39.103Z at the start of a text.
fn after_time(text: &str) -> Option<&str> {
    const FORM: &[u8] = b"dddd-dd-ddTdd:dd:dd.dddZ";
    let bytes = text.as_bytes().get(..FORM.len())?;
    let fits = bytes.iter().zip(FORM).all(|(byte, form)| if *form == b'd' { byte.is_ascii_digit() } else { byte == form });
    fits.then(|| &text[FORM.len()..])
}

#[test]
fn ids_times_and_ports_have_names() {
    let mut names = Names::default();
    let line = r#"{"id":"run_0123456789abcdef0123456789abcdef","at":1763494800123,"n":17,"of":"call_0123456789abcdef0123456789abcdef_2"}"#;
    assert_eq!(names.replace_in(line), r#"{"id":"run_<id 1>","at":<time>,"n":17,"of":"call_<id 1>_2"}"#);
    assert_eq!(names.replace_in("http://127.0.0.1:4711/mcp fedcba9876543210"), "http://127.0.0.1:<port>/mcp <id 2>");
    assert_eq!(names.replace_in(r#""2026-11-18T20:24:39.103Z" 2026-11-18"#), r#""<time>" 2026-11-18"#);
    assert_eq!(names.replace_in("é 1763494800 0123456789abcdef0123456789abcdef"), "é <time> <id 1>");
}
