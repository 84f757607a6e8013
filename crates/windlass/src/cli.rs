//! Commands that use the API of a running server. Each makes a few requests; `--json` prints the server's answer unchanged.

mod client;
mod erase;
mod gc;
mod inbox;
mod last_inbox;
mod ls;
mod reconcile;
mod run_id;
mod show;
mod target;
mod text;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use client::CliError;
use target::Target;
pub(crate) use target::write as write_server_file;

/// A verb.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Lists runs, newest first, with why each one waits.
    Ls(ls::LsArguments),
    /// Shows one run: its iterations, its calls and why it waits. Exits with 3 if a person has to decide something.
    Show(show::ShowArguments),
    /// Lists what waits for a person. Exits with 3 if anything does.
    Inbox(inbox::InboxArguments),
    /// Approves a call with the arguments that the interrupt shows.
    Approve(inbox::ApproveArguments),
    /// Rejects a call: it is not made, and the model reads why.
    Reject(inbox::RejectArguments),
    /// Answers a question of a model.
    Answer(inbox::AnswerQuestionArguments),
    /// Gives the budget that a run waits for a higher limit.
    Raise(inbox::RaiseArguments),
    /// Lets a run continue that was held as a whole.
    Resume(inbox::AnswerArguments),
    /// Ends the run that waits.
    End(inbox::AnswerArguments),
    /// Decides about a call of which it is unknown whether it took effect.
    Reconcile(reconcile::ReconcileArguments),
    /// Erases everything of a tenant for good: asks the running server (scope admin), or opens the database if none runs.
    Erase(erase::EraseArguments),
    /// Erases the runs that are older than `retention` says: asks the running server (scope admin), or opens the database if none runs.
    Gc(gc::GcArguments),
}

/// Which server is asked, and how the answer is printed.
#[derive(Args)]
struct Common {
    /// The server's address. Otherwise WINDLASS_URL, the nearest .windlass/server.json, or http://127.0.0.1:7600.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// A file with the token. Otherwise WINDLASS_TOKEN, or the token beside that server.json.
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// Prints the server's answer as it came.
    #[arg(long)]
    json: bool,
}

/// The outcome of a command, which decides the exit code.
enum Done {
    /// Everything was done.
    Fully,
    /// A person has to decide something.
    WaitsForPerson,
}

/// The exit code of a command that failed.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const WAITS_FOR_PERSON: u8 = 3;
const UNREACHABLE: u8 = 8;
const NOT_ALLOWED: u8 = 9;
const ALREADY_ANSWERED: u8 = 10;

/// Runs a command. An error is printed to stderr; the exit code tells scripts its kind.
pub(crate) async fn run(verb: Verb) -> ExitCode {
    let done = match verb {
        Verb::Ls(arguments) => ls::ls(arguments).await,
        Verb::Show(arguments) => show::show(arguments).await,
        Verb::Inbox(arguments) => inbox::inbox(arguments).await,
        Verb::Approve(arguments) => inbox::approve(arguments).await,
        Verb::Reject(arguments) => inbox::reject(arguments).await,
        Verb::Answer(arguments) => inbox::answer(arguments).await,
        Verb::Raise(arguments) => inbox::raise(arguments).await,
        Verb::Resume(arguments) => inbox::resume(arguments).await,
        Verb::End(arguments) => inbox::end(arguments).await,
        Verb::Reconcile(arguments) => reconcile::reconcile(arguments).await,
        Verb::Erase(arguments) => erase::erase(arguments).await,
        Verb::Gc(arguments) => gc::gc(arguments).await,
    };
    match done {
        Ok(Done::Fully) => ExitCode::SUCCESS,
        Ok(Done::WaitsForPerson) => WAITS_FOR_PERSON.into(),
        Err(error) => {
            eprintln!("windlass: {error}");
            exit_code(&error).into()
        }
    }
}

fn exit_code(error: &CliError) -> u8 {
    match error {
        CliError::Unreachable { .. } => UNREACHABLE,
        CliError::NotAllowed { .. } => NOT_ALLOWED,
        CliError::AlreadyAnswered { .. } => ALREADY_ANSWERED,
        CliError::Usage(_) => USAGE,
        CliError::Refused { .. } | CliError::Failed(_) => FAILED,
    }
}

impl Common {
    fn client(&self) -> Result<client::Client, CliError> {
        client::Client::new(Target::find(self.server.as_deref(), self.token_file.as_deref())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        let refused = |status| client::refusal(status, "{}");
        for (error, code) in [
            (CliError::Failed("x".into()), 1),
            (refused(404), 1),
            (refused(500), 1),
            (CliError::Usage("x".into()), 2),
            (CliError::Unreachable { url: "u".into(), found_in: "s".into(), why: "w".into() }, 8),
            (refused(401), 9),
            (refused(403), 9),
            (client::refusal(409, r#"{"error":{"code":"already_answered","message":"x"}}"#), 10),
        ] {
            assert_eq!(exit_code(&error), code, "{error}");
        }
    }
}
