//! A small language for scenarios. Only this module uses the kernel's API; the scripts don't.

pub mod driver;
mod laws;
pub mod script;
pub mod setup;
mod transcript;

use expect_test::Expect;

use driver::Driver;
use script::Line;
use transcript::Transcript;

/// Plays a script against a fresh run and compares what happened, a line for each line of the script:
///
/// `line -> events [effects newly owed] +items appended = head status, what it waits for`
///
/// The laws of the kernel are checked after every line, whatever the script is about.
pub fn check(setup: &str, script: &str, expected: Expect) {
    expected.assert_eq(&play(setup, script));
}

pub fn play(setup: &str, script: &str) -> String {
    let mut driver = Driver::new(setup::parse(setup));
    let mut transcript = Transcript::default();
    for text in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match script::parse(text) {
            Line::At(now) => {
                driver.now = now;
                transcript.note(text, "");
            }
            Line::Ask(question) => transcript.note(text, &transcript::answer(question, &driver)),
            Line::Happens(asked) => {
                let before = driver.run.clone();
                let input = driver.input(asked, &mut |item, label| transcript.name(item, label));
                let made = driver.take(input);
                transcript.happened(text, &before, &made);
            }
        }
    }
    transcript.text
}
