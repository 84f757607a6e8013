//! The token of a server that was given none: made once, kept in the data folder, readable by its owner only.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// Reads the token of this data folder, or makes it. Returns it with the file it stands in.
pub(crate) fn own_token(data: &Path) -> anyhow::Result<(String, PathBuf)> {
    let path = data.join("token");
    if let Ok(text) = fs::read_to_string(&path) {
        let token = text.trim().to_owned();
        anyhow::ensure!(!token.is_empty(), "{} is empty; delete it, and a new token is made", path.display());
        return Ok((token, path));
    }
    fs::create_dir_all(data).with_context(|| format!("the data folder {} cannot be made", data.display()))?;
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).context("no random bytes for a token")?;
    let token: String = std::iter::once("wl_".to_owned()).chain(bytes.iter().map(|byte| format!("{byte:02x}"))).collect();
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    writeln!(file, "{token}")?;
    Ok((token, path))
}
