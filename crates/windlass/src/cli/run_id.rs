//! Run ids as people write them: whole, abbreviated, or as `@last`.

use serde_json::Value;

use super::client::{CliError, Client};

/// Digits of a run's id.
const DIGITS: usize = 32;

/// The full id of the run that `text` names. An error if no run matches, or several do.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, CliError> {
    if text == "@last" {
        let newest = client.get("/v1/windlass/runs", &[("limit", "1")]).await?;
        return id(&newest.json, 0).ok_or_else(|| CliError::Failed("there is no run yet".to_owned()));
    }
    let digits = text.strip_prefix("run_").unwrap_or(text).to_ascii_lowercase();
    let is_id = !digits.is_empty() && digits.len() <= DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Err(CliError::Usage(format!("{text:?} is no run; name one as run_…, by the beginning of its id, or as @last")));
    }
    if digits.len() == DIGITS {
        return Ok(format!("run_{digits}"));
    }
    // A list goes from the newest run down, so the first runs below the highest id with this prefix are those that have the prefix.
    let above = format!("run_{digits:f<DIGITS$}");
    let found = client.get("/v1/windlass/runs", &[("limit", "2"), ("after", &above)]).await?;
    let has_beginning = |id: &String| id.strip_prefix("run_").is_some_and(|id| id.starts_with(&digits));
    match (id(&found.json, 0).filter(has_beginning), id(&found.json, 1).filter(has_beginning)) {
        (Some(run), None) => Ok(run),
        (Some(_), Some(_)) => Err(CliError::Failed(format!("more than one run begins with {text}; give more digits"))),
        (None, _) => Err(CliError::Failed(format!("no run begins with {text}; `windlass ls` lists runs"))),
    }
}

fn id(list: &Value, index: usize) -> Option<String> {
    list["runs"][index]["run_id"].as_str().map(str::to_owned)
}

/// The length of the shortest prefixes, of at least `MIN` digits, that are distinct for these runs.
pub(crate) fn short(ids: &[&str]) -> usize {
    /// The digits that encode the millisecond in which a run was accepted.
    const MIN: usize = 12;
    let digits = |id: &str| id.strip_prefix("run_").unwrap_or(id).to_owned();
    let mut sorted: Vec<String> = ids.iter().map(|id| digits(id)).collect();
    sorted.sort_unstable();
    let common = |pair: &[String]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
    sorted.windows(2).map(|pair| common(pair) + 1).max().unwrap_or(0).clamp(MIN, DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_prefixes_identify_runs() {
        assert_eq!(short(&[]), 12);
        assert_eq!(short(&["run_0197f3aaaaaaaaaaaaaaaaaaaaaaaaaa"]), 12);
        assert_eq!(short(&["run_0197f3aaaaaaaa1aaaaaaaaaaaaaaaaa", "run_0197f3aaaaaaaa2aaaaaaaaaaaaaaaaa"]), 15);
    }
}
