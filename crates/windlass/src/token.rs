//! The token of a server without configured tokens: created once and kept in the data folder, readable by its owner only.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::config::TOKEN_CHARS_MIN;

/// Reads or creates the token of this data folder, and returns it with the path of its file. A file that another user could have read or
/// written is refused.
pub(crate) fn own_token(data: &Path) -> anyhow::Result<(String, PathBuf)> {
    let path = data.join("token");
    match File::open(&path) {
        Ok(file) => Ok((read(file, &path)?, path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((make(data, &path)?, path)),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

fn read(mut file: File, path: &Path) -> anyhow::Result<String> {
    let about = file.metadata().with_context(|| format!("{} cannot be read", path.display()))?;
    let shown = path.display();
    let (user, owner, mode) = (rustix::process::geteuid().as_raw(), about.uid(), about.mode() & 0o777);
    anyhow::ensure!(
        owner == user,
        "{shown} belongs to the user {owner}, and the server runs as {user}; delete it, and a new token is made"
    );
    anyhow::ensure!(
        mode & 0o077 == 0,
        "{shown} has the mode {mode:04o}: other users may have read or changed it; delete it, and a new token is made, \
         or run chmod 600 on it if you are sure of its content"
    );
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("{shown} cannot be read"))?;
    let token = text.trim();
    anyhow::ensure!(
        token.chars().count() >= TOKEN_CHARS_MIN,
        "the token in {shown} has fewer than {TOKEN_CHARS_MIN} characters; delete the file, and a new token is made"
    );
    Ok(token.to_owned())
}

fn make(data: &Path, path: &Path) -> anyhow::Result<String> {
    windlass_store::create_private_folder(data).with_context(|| format!("the data folder {} cannot be made", data.display()))?;
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).context("no random bytes for a token")?;
    let token: String = std::iter::once("wl_".to_owned()).chain(bytes.iter().map(|byte| format!("{byte:02x}"))).collect();
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    writeln!(file, "{token}")?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn with_mode(mode: u32) -> Result<String, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let (made, path) = own_token(folder.path()).expect("a token is made");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode can be changed");
        let read = own_token(folder.path()).map(|(token, _)| token).map_err(|error| format!("{error:#}"));
        assert!(read.as_ref().is_err() || read.as_ref() == Ok(&made));
        read
    }

    #[test]
    fn tm_15_a_token_file_that_others_can_read_or_write_is_refused() {
        for mode in [0o600, 0o400, 0o700] {
            assert!(with_mode(mode).is_ok(), "{mode:o}");
        }
        for mode in [0o666, 0o644, 0o640, 0o602, 0o604] {
            let refused = with_mode(mode).expect_err("it is refused");
            assert!(refused.contains(&format!("{mode:04o}")) && refused.contains("delete it"), "{refused}");
        }
    }

    #[test]
    fn tm_15_a_token_file_of_another_user_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, path) = own_token(folder.path()).expect("a token is made");
        // Only root can change the owner of a file.
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_err() {
            return;
        }
        let refused = own_token(folder.path()).expect_err("it is refused").to_string();
        assert!(refused.contains("belongs to the user 65534"), "{refused}");
    }

    #[test]
    fn a_short_token_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, path) = own_token(folder.path()).expect("a token is made");
        for text in ["", "short\n"] {
            fs::write(&path, text).expect("it can be written");
            assert!(own_token(folder.path()).expect_err("it is refused").to_string().contains("fewer than 22"));
        }
    }
}
