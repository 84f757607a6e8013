//! The fenced blocks of a page, and what the test does with each.

/// The language of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Shell,
    Python,
    JavaScript,
    Yaml,
    Ini,
    Nginx,
}

impl Language {
    fn named(name: &str) -> Option<Language> {
        let known = [
            ("sh", Language::Shell),
            ("python", Language::Python),
            ("js", Language::JavaScript),
            ("yaml", Language::Yaml),
            ("ini", Language::Ini),
            ("nginx", Language::Nginx),
        ];
        known.iter().find(|(known, _)| *known == name).map(|(_, language)| *language)
    }
}

/// What the test does with a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Executes the block to its end.
    Run(Language),
    /// Starts the block as the server of the page.
    StartServer,
    /// Starts the block and executes the later blocks beside it.
    StartBackground,
    /// Starts a server with the block as its configuration.
    CheckConfig,
    /// Writes the block to the folder of the page.
    Write { name: String, language: Language },
    /// Compares the block with the output of the block before it.
    Compare,
    /// Checks only the syntax.
    Parse(Language),
}

/// One fenced block.
#[derive(Clone, Debug)]
pub struct Block {
    pub page: String,
    /// The line of its opening fence.
    pub line: usize,
    pub action: Action,
    pub text: String,
}

impl Block {
    /// The page and the line, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// All blocks of a page. Fails on an unknown info string and on a block without an end.
pub fn parse(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let line = index + 1;
        let action = action(info).unwrap_or_else(|| panic!("{page}:{line}: the info string {info:?} is unknown; see tests/docs/main.rs"));
        let mut text = String::new();
        loop {
            let (_, line_of_block) = lines.next().unwrap_or_else(|| panic!("{page}:{line}: the block has no end"));
            if line_of_block == "```" {
                break;
            }
            text.push_str(line_of_block);
            text.push('\n');
        }
        blocks.push(Block { page: page.to_owned(), line, action, text });
    }
    blocks
}

fn action(info: &str) -> Option<Action> {
    let (name, mark) = info.split_once(' ').map_or((info, None), |(name, mark)| (name, Some(mark)));
    if name == "text" {
        return mark.is_none().then_some(Action::Compare);
    }
    let language = Language::named(name)?;
    match (language, mark) {
        (Language::Shell, Some("server")) => Some(Action::StartServer),
        (Language::Shell, Some("background")) => Some(Action::StartBackground),
        (Language::Shell | Language::Ini | Language::Nginx, Some("no-run")) => Some(Action::Parse(language)),
        (Language::Shell | Language::Python | Language::JavaScript, None) => Some(Action::Run(language)),
        (Language::Yaml, None) => Some(Action::CheckConfig),
        (Language::Yaml | Language::Python | Language::JavaScript, Some(mark)) => {
            let name = mark.strip_prefix("file=").filter(|name| !name.is_empty() && !name.contains([' ', '/']))?.to_owned();
            Some(Action::Write { name, language })
        }
        (Language::Shell | Language::Ini | Language::Nginx, _) => None,
    }
}

#[test]
fn info_strings_say_what_is_done() {
    assert_eq!(action("sh"), Some(Action::Run(Language::Shell)));
    assert_eq!(action("sh server"), Some(Action::StartServer));
    assert_eq!(action("sh no-run"), Some(Action::Parse(Language::Shell)));
    assert_eq!(action("python file=worker.py"), Some(Action::Write { name: "worker.py".to_owned(), language: Language::Python }));
    for unknown in
        ["", "bash", "sh norun", "sh no-run server", "yaml no-run", "python no-run", "text no-run", "ini", "js file=", "yaml file=a/b"]
    {
        assert_eq!(action(unknown), None, "{unknown:?}");
    }
}

#[test]
#[should_panic(expected = "README.md:3: the info string \"sh later\" is unknown")]
fn an_unknown_info_string_fails() {
    parse("README.md", "# A page\n\n```sh later\ntrue\n```\n");
}
