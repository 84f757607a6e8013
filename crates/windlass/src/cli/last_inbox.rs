//! The ids that the last `windlass inbox` listed, so that the next command can name one by its number.

use std::path::PathBuf;

use super::client::CliError;

/// Remembers the listed ids. A machine without a place for them can still use the ids themselves.
pub(super) fn save<'a>(ids: impl Iterator<Item = &'a str>) {
    let Some(file) = file() else { return };
    let text: String = ids.flat_map(|id| [id, "\n"]).collect();
    if let Some(folder) = file.parent() {
        let _ = std::fs::create_dir_all(folder);
    }
    let _ = std::fs::write(file, text);
}

/// The id that was given, or the one with that number in the last list.
pub(super) fn resolve(given: &str) -> Result<String, CliError> {
    if given.starts_with("int_") {
        return Ok(given.to_owned());
    }
    let wanted = || CliError::Usage(format!("{given:?} is no interrupt; give its id as int_…, or its number in the last `windlass inbox`"));
    let number: usize = given.parse().ok().filter(|number| *number > 0).ok_or_else(wanted)?;
    let listed = file().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let missing = || CliError::Usage(format!("the last `windlass inbox` listed no number {number}; run it again"));
    listed.lines().nth(number - 1).map(str::to_owned).ok_or_else(missing)
}

/// The file of the last list, in the user's folder for state.
fn file() -> Option<PathBuf> {
    let of_variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = of_variable("XDG_STATE_HOME").or_else(|| of_variable("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("windlass/inbox"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_as_it_is_and_a_wrong_number_is_refused() {
        assert_eq!(resolve("int_0a_5").ok().as_deref(), Some("int_0a_5"));
        for given in ["0", "-1", "pay", ""] {
            assert!(matches!(resolve(given), Err(CliError::Usage(_))), "{given}");
        }
    }
}
