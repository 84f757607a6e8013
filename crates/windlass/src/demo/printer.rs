//! Prints the demo: titles, lines, and text as it streams.

use std::{
    io::{self, Write},
    time::Duration,
};

const INDENT: &str = "   ";
const QUOTED: &str = "   | ";
/// The column after which streamed text wraps.
const COLUMNS: usize = 84;

/// The output on stdout.
pub(super) struct Printer {
    out: io::Stdout,
    /// The column of the streamed text; `None` outside of one.
    column: Option<usize>,
}

impl Printer {
    pub fn new() -> Self {
        Printer { out: io::stdout(), column: None }
    }

    /// Starts a part with a title.
    pub fn title(&mut self, text: &str) -> io::Result<()> {
        self.end_text()?;
        writeln!(self.out, "\n{text}")
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.end_text()?;
        writeln!(self.out, "{INDENT}{text}")
    }

    /// Prints a delta of a streamed text at once.
    pub fn delta(&mut self, delta: &str) -> io::Result<()> {
        for letter in delta.chars() {
            let column = match self.column {
                Some(column) if column >= COLUMNS && letter == ' ' => {
                    write!(self.out, "\n{QUOTED}")?;
                    self.column = Some(0);
                    continue;
                }
                Some(column) => column,
                None => {
                    write!(self.out, "{QUOTED}")?;
                    0
                }
            };
            write!(self.out, "{letter}")?;
            self.column = Some(column + 1);
        }
        self.out.flush()
    }

    fn end_text(&mut self) -> io::Result<()> {
        if self.column.take().is_some() {
            writeln!(self.out)?;
        }
        Ok(())
    }
}

/// A duration for people.
pub(super) fn seconds(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
