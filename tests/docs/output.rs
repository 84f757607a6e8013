//! Compares the output that a page shows with the output of a block.

/// Whether a text matches the text that a page shows. `…` matches any part of a line; a line that contains nothing else matches any lines.
pub fn is_as_shown(shown: &str, printed: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    lines_match(&lines(shown), &lines(printed))
}

fn lines_match(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "…" => (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..])),
        Some((line, rest)) => printed.split_first().is_some_and(|(first, others)| line_matches(line, first) && lines_match(rest, others)),
    }
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let Some((before, after)) = shown.split_once('…') else { return shown == printed };
    let Some(rest) = printed.strip_prefix(before) else { return false };
    (0..=rest.len()).filter(|&at| rest.is_char_boundary(at)).any(|at| line_matches(after, &rest[at..]))
}

#[test]
fn dots_stand_for_any_text() {
    assert!(is_as_shown("id …, done\n", "id 17, done\n\n"));
    assert!(is_as_shown("first\n…\nlast\n", "first\n\nsecond\nlast\n"));
    assert!(is_as_shown("a … b … c", "a 1 b 2 c"));
    assert!(!is_as_shown("id …, done", "id 17, failed"));
    assert!(!is_as_shown("first", "first\nsecond"));
    assert!(!is_as_shown("first\nsecond", "first"));
}
