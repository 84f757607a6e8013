//! Rules of the repository that no compiler checks.

mod dependencies;
mod formats;
mod layout;
mod requirements;
mod threats;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder").to_owned()
}

/// Every file below a folder, without build output and git's own files.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", ".git", ".windlass"].contains(&name.as_str()) {
                found.extend(files(&path));
            }
        } else {
            found.push(path);
        }
    }
    found
}

/// Every Rust file below a folder, with its text.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let rust = files(folder).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|path| (path.clone(), fs::read_to_string(&path).expect("a source file is UTF-8"))).collect()
}
