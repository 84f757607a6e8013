//! The client libraries that `scripts/clients` installs.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The folder with the client libraries, installed once per test program: `python` is a virtual environment, `node` has `node_modules`.
pub fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder");
        let installed = std::process::Command::new(root.join("scripts/clients")).status();
        assert!(installed.expect("bash runs").success(), "the clients cannot be installed");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
        target.join("clients")
    })
}
