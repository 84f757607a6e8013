//! Finds the server's address and token: from flags, then the environment, then the nearest data folder, then the default address.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::client::CliError;

/// The address of a server whose configuration has none.
const DEFAULT_URL: &str = "http://127.0.0.1:7600";
/// The data folder, as `dev` and `serve` name it.
const DATA_FOLDER: &str = ".windlass";
/// The file in the data folder with the address of its server.
const SERVER_FILE: &str = "server.json";

/// The content of that file.
#[derive(Debug, Serialize, Deserialize)]
struct ServerFile {
    url: String,
    pid: u32,
    version: String,
}

/// The server that a command talks to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The address, without a slash at the end.
    pub url: String,
    /// The source of the address, for error messages.
    pub source: String,
    /// The token, if one was found.
    pub token: Option<String>,
}

/// The inputs of the search.
struct Surroundings<'a> {
    folder: &'a Path,
    url: Option<String>,
    token: Option<String>,
}

impl Target {
    /// Finds the server from flags, environment and data folder.
    pub fn find(server: Option<&str>, token_file: Option<&Path>) -> Result<Self, CliError> {
        let here = std::env::current_dir().map_err(|error| CliError::Failed(format!("the current folder cannot be read: {error}")))?;
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let environment = Surroundings { folder: &here, url: variable("WINDLASS_URL"), token: variable("WINDLASS_TOKEN") };
        Self::find_in(environment, server, token_file)
    }

    fn find_in(environment: Surroundings<'_>, server: Option<&str>, token_file: Option<&Path>) -> Result<Self, CliError> {
        let nearest = nearest(environment.folder);
        let local = nearest.as_ref().and_then(|folder| url_in(folder));
        let (url, source) = match (server, environment.url, &local) {
            (Some(url), _, _) => (url.to_owned(), "--server".to_owned()),
            (None, Some(url), _) => (url, "WINDLASS_URL".to_owned()),
            (None, None, Some((url, file))) => (url.clone(), file.display().to_string()),
            (None, None, None) => (DEFAULT_URL.to_owned(), "the default address".to_owned()),
        };
        let url = spelled_out(&url);
        // The token of a data folder is only sent to the server of that folder.
        let is_local = local.as_ref().map_or(url == DEFAULT_URL, |(of_folder, _)| url == spelled_out(of_folder));
        let token = match (token_file, environment.token) {
            (Some(file), _) => {
                Some(read_token(file).map_err(|error| CliError::Usage(format!("{} cannot be read: {error}", file.display())))?)
            }
            (None, Some(token)) => Some(token),
            (None, None) => nearest.filter(|_| is_local).and_then(|folder| read_token(&folder.join("token")).ok()),
        };
        Ok(Target { url, source, token })
    }
}

/// An address with its scheme and without a slash at the end.
fn spelled_out(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

fn read_token(file: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

/// The data folder in `folder`, or in the nearest folder above it.
fn nearest(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().map(|folder| folder.join(DATA_FOLDER)).find(|folder| folder.is_dir())
}

fn url_in(folder: &Path) -> Option<(String, PathBuf)> {
    let path = folder.join(SERVER_FILE);
    let file: ServerFile = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
    Some((file.url, path))
}

/// Writes the file with the address of the data folder's server.
pub(crate) fn write(data: &Path, url: String) -> io::Result<()> {
    let file = ServerFile { url, pid: std::process::id(), version: env!("CARGO_PKG_VERSION").to_owned() };
    windlass_store::create_private_folder(data)?;
    let text = serde_json::to_string(&file).map_err(io::Error::other)?;
    // Written under another name and renamed, so that a reader never sees half of the file.
    let fresh = data.join(format!("{SERVER_FILE}.{}", file.pid));
    fs::write(&fresh, text + "\n")?;
    fs::rename(&fresh, data.join(SERVER_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(
        folder: &Path,
        url: Option<&str>,
        token: Option<&str>,
        server: Option<&str>,
        file: Option<&Path>,
    ) -> (String, String, Option<String>) {
        let environment = Surroundings { folder, url: url.map(str::to_owned), token: token.map(str::to_owned) };
        let found = Target::find_in(environment, server, file).expect("it is found");
        (found.url, found.source, found.token)
    }

    #[test]
    fn the_nearest_word_counts() {
        let top = tempfile::tempdir().expect("a folder");
        let below = top.path().join("a/b");
        fs::create_dir_all(&below).expect("folders");
        let nothing = find(&below, None, None, None, None);
        assert_eq!(nothing, (DEFAULT_URL.into(), "the default address".into(), None));

        let data = top.path().join(".windlass");
        write(&data, "http://127.0.0.1:7611".to_owned()).expect("it is written");
        fs::write(data.join("token"), "wl_1\n").expect("a token");
        let file = data.join("server.json").display().to_string();
        assert_eq!(find(&below, None, None, None, None), ("http://127.0.0.1:7611".into(), file, Some("wl_1".into())));
        let by_environment = find(&below, Some("http://h:1/"), Some("env"), None, None);
        assert_eq!(by_environment, ("http://h:1".into(), "WINDLASS_URL".into(), Some("env".into())));
        let other = top.path().join("other");
        fs::write(&other, "file\n").expect("a token");
        let by_flags = find(&below, Some("http://h:1"), Some("env"), Some("10.0.0.1:2"), Some(&other));
        assert_eq!(by_flags, ("http://10.0.0.1:2".into(), "--server".into(), Some("file".into())));
    }

    #[test]
    fn the_token_of_a_folder_goes_to_no_other_server() {
        let top = tempfile::tempdir().expect("a folder");
        let data = top.path().join(".windlass");
        write(&data, "http://127.0.0.1:7611".to_owned()).expect("it is written");
        fs::write(data.join("token"), "wl_1\n").expect("a token");
        assert_eq!(find(top.path(), None, None, Some("http://elsewhere:7611"), None).2, None);
        assert_eq!(find(top.path(), None, None, Some("127.0.0.1:7611"), None).2, Some("wl_1".into()));
    }

    #[test]
    fn a_token_file_that_is_not_there_is_a_mistake() {
        let environment = Surroundings { folder: Path::new("/"), url: None, token: None };
        let error = Target::find_in(environment, None, Some(Path::new("/no/such/file"))).expect_err("it is not there");
        assert!(matches!(&error, CliError::Usage(why) if why.contains("/no/such/file")), "{error}");
    }
}
