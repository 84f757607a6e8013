//! How the story is told: titles, lines, and a text that appears as it comes.

use std::{
    io::{self, Write},
    time::Duration,
};

const INDENT: &str = "   ";
const QUOTED: &str = "   | ";
/// Where a streamed text goes on in the next line.
const COLUMNS: usize = 84;

/// The story so far, on the standard output.
pub(super) struct Tale {
    out: io::Stdout,
    /// Where in its line the streamed text is; `None` outside of one.
    column: Option<usize>,
}

impl Tale {
    /// A story that begins.
    pub fn new() -> Self {
        Tale { out: io::stdout(), column: None }
    }

    /// The beginning of a part.
    pub fn title(&mut self, text: &str) -> io::Result<()> {
        self.end_text()?;
        writeln!(self.out, "\n{text}")
    }

    /// A line of the part.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.end_text()?;
        writeln!(self.out, "{INDENT}{text}")
    }

    /// A piece of a streamed text, shown at once.
    pub fn piece(&mut self, piece: &str) -> io::Result<()> {
        for letter in piece.chars() {
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

/// A time as people read it.
pub(super) fn seconds(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
