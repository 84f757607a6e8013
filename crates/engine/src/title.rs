//! The title of a run: the first line of its instruction, found in the instruction's first bytes.

/// The length of a title, in characters.
const CHARS_MAX: usize = 80;

/// The JSON members of an instruction, or of an item in it, that contain the text of the request.
const MEMBERS: [&str; 4] = ["\"text\"", "\"content\"", "\"summary\"", "\"output\""];

/// The title in an instruction, which may be truncated anywhere. `None` if it contains no text.
pub(crate) fn title(content: &[u8]) -> Option<String> {
    let content = String::from_utf8_lossy(content);
    let texts = MEMBERS.iter().flat_map(|member| content.match_indices(member).map(|(at, _)| at + member.len()));
    let mut found: Vec<(usize, String)> = texts.filter_map(|at| Some((at, string_after(&content[at..])?))).collect();
    found.sort_unstable_by_key(|(at, _)| *at);
    found.iter().find_map(|(_, text)| first_line(text))
}

/// The string that is a member's value, up to its end or the truncation.
fn string_after(rest: &str) -> Option<String> {
    let quoted = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut is_escaped = false;
    let end = quoted.find(|letter| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    let text = &quoted[..end.unwrap_or(quoted.len())];
    // A text that was truncated in the middle of an escape sequence is read up to that.
    (0..=12).find_map(|cut| {
        let kept = text.len().checked_sub(cut).filter(|at| text.is_char_boundary(*at)).map(|at| &text[..at])?;
        serde_json::from_str(&format!("\"{kept}\"")).ok()
    })
}

fn first_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut short: String = line.chars().filter(|letter| !letter.is_control() && *letter != '\u{fffd}').take(CHARS_MAX).collect();
    if line.chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    Some(short).filter(|short| !short.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_what_was_asked_is_the_title() {
        let item = br#"{"item":{"type":"message","role":"user","content":[{"type":"input_text","text" : "say \"hi\"\nnow"}]}}"#;
        for (content, wanted) in [
            (br#"{"text":"do it"}"#.as_slice(), Some("do it")),
            (br#"{"text":"\n  \n second line\nthird"}"#, Some("second line")),
            (br#"{"item":{"role":"user","content":"plain"}}"#, Some("plain")),
            (item, Some("say \"hi\"")),
            (br#"{"item":{"content":[{"type":"input_text","text":"cut \u00"#, Some("cut")),
            (br#"{"item":{"type":"input_image","image_url":"data:..."}}"#, None),
            (br#"{"text":""}"#, None),
            (b"\xff\xfe", None),
            (b"", None),
        ] {
            assert_eq!(title(content).as_deref(), wanted, "{}", String::from_utf8_lossy(content));
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let content = format!("{{\"text\":\"{}\"}}", "é".repeat(200));
        assert_eq!(title(content.as_bytes()), Some(format!("{}…", "é".repeat(80))));
        assert_eq!(title(&content.as_bytes()[..100]).map(|title| title.chars().count()), Some(45), "a cut within a character");
    }
}
