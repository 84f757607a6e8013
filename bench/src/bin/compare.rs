//! Measures two builds alternately and reports which metrics of the new one are worse. `scripts/bench compare REV` builds the
//! revisions and starts this program.
//!
//! `compare OLD NEW ELAPSED_S`: two folders with the programs of each build, and the seconds that the builds took. Each line runs
//! in a short form, `WINDLASS_BENCH_PAIRS` (7) times per build; the builds alternate in going first. `WINDLASS_BENCH_LINES` limits
//! the comparison to some lines, separated by commas. Lines with a worse metric are measured a second time as long as the time
//! limit allows it. Exit code 1 if a metric is worse or missing, 2 if a program fails.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use windlass_bench::{
    comparison::{METRICS, Samples, Summary, Verdict, heading, table_row},
    setting,
};

/// The whole comparison, builds included, ends before this. A repetition that would take longer is left out.
const TIME_LIMIT: Duration = Duration::from_secs(29 * 60);
/// A program that runs for longer than this is stopped, and the comparison fails.
const PROGRAM_LIMIT: Duration = Duration::from_secs(180);

/// A bench program in its short form.
struct Line {
    name: &'static str,
    program: &'static str,
    argument: Argument,
    /// Limits of the short form. Programs of older revisions know the same settings.
    settings: &'static [(&'static str, &'static str)],
}

enum Argument {
    None,
    Text(&'static str),
    /// The path of `windlass`. The program does not link the engine, so the new build's program measures both servers.
    Server,
}

const LOOP: &[(&str, &str)] = &[("ROUNDS", "1"), ("SECS1", "1"), ("SECS", "3")];

const LINES: &[Line] = &[
    Line { name: "durable", program: "durable", argument: Argument::None, settings: LOOP },
    Line { name: "postgres", program: "durable", argument: Argument::Text("postgres"), settings: LOOP },
    Line { name: "laps", program: "laps", argument: Argument::None, settings: &[] },
    Line { name: "suspended", program: "suspended", argument: Argument::Server, settings: &[("SUSPENDED", "4000")] },
    Line { name: "streams", program: "streams", argument: Argument::None, settings: &[("SECS", "4")] },
    Line { name: "gateway", program: "gateway", argument: Argument::Server, settings: &[("SECS", "2"), ("RESPONSES", "5000")] },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    Old,
    New,
}

/// What one pass over some lines measured.
#[derive(Default)]
struct Pass {
    /// One entry per metric of `METRICS`.
    samples: Vec<Samples>,
    /// Seconds that all pairs of a line took.
    seconds: BTreeMap<&'static str, f64>,
    /// Cores that other machines on the same hardware took, per phase.
    stolen: Vec<f64>,
}

struct Comparison {
    old: PathBuf,
    new: PathBuf,
    pairs: u64,
    /// How long the builds took before this program started.
    built_for: Duration,
    began: Instant,
}

impl Comparison {
    fn elapsed(&self) -> Duration {
        self.built_for + self.began.elapsed()
    }

    fn command(&self, line: &Line, build: Build) -> Command {
        let own = if build == Build::Old { &self.old } else { &self.new };
        let (programs, argument): (_, Option<OsString>) = match line.argument {
            Argument::None => (own, None),
            Argument::Text(text) => (own, Some(text.into())),
            Argument::Server => (&self.new, Some(own.join("windlass").into())),
        };
        let mut command = Command::new(programs.join(line.program));
        command.args(argument).envs(line.settings.iter().copied());
        command
    }

    /// Measures these lines with both builds, pair after pair.
    async fn measure(&self, lines: &[&'static Line], title: &str) -> io::Result<Pass> {
        let mut pass = Pass { samples: vec![Samples::default(); METRICS.len()], ..Pass::default() };
        for pair in 1..=self.pairs {
            let order = if pair % 2 == 1 { [Build::Old, Build::New] } else { [Build::New, Build::Old] };
            for line in lines {
                let began = Instant::now();
                for build in order {
                    let printed = run(self.command(line, build), line.name).await?;
                    pass.add(line, build, &printed);
                }
                let (seconds, elapsed) = (began.elapsed().as_secs_f64(), self.elapsed().as_secs());
                *pass.seconds.entry(line.name).or_default() += seconds;
                let (minutes, rest) = (elapsed / 60, elapsed % 60);
                eprintln!("{title}pair {pair} of {}, {}: {seconds:.1} s, elapsed {minutes}:{rest:02}", self.pairs, line.name);
            }
        }
        Ok(pass)
    }

    /// The lines with a worse metric that can be measured again before the time limit, the shortest first.
    fn lines_to_repeat(&self, pass: &Pass, verdicts: &[Verdict]) -> Vec<&'static Line> {
        let is_worse =
            |line: &Line| METRICS.iter().zip(verdicts).any(|(metric, verdict)| metric.line == line.name && *verdict == Verdict::Worse);
        let mut worse: Vec<_> = LINES.iter().filter(|line| is_worse(line)).map(|line| (pass.seconds[line.name], line)).collect();
        worse.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut left = TIME_LIMIT.saturating_sub(self.elapsed()).as_secs_f64();
        let fits = worse.into_iter().take_while(|(seconds, _)| {
            left -= seconds * 1.1;
            left >= 0.0
        });
        fits.map(|(_, line)| line).collect()
    }

    /// Measures, repeats what is worse, prints the table. Returns the number of metrics that fail.
    async fn compare(&self, lines: &[&'static Line]) -> io::Result<usize> {
        let first = self.measure(lines, "").await?;
        let mut verdicts = first.verdicts();
        println!("{}", heading());
        for ((metric, samples), verdict) in METRICS.iter().zip(&first.samples).zip(&verdicts) {
            if lines.iter().any(|line| line.name == metric.line) {
                println!("{}", table_row(metric, samples, *verdict));
            }
        }
        if let Some(stolen) = Summary::of(&first.stolen) {
            println!("cores stolen by other machines: median {:.2}, at most {:.2}", stolen.median, stolen.max);
        }
        if verdicts.contains(&Verdict::Worse) {
            self.repeat(&first, &mut verdicts).await?;
        }
        Ok(verdicts.into_iter().filter(|verdict| verdict.is_failure()).count())
    }

    /// Measures the lines with a worse metric again and prints these metrics with their final verdicts.
    async fn repeat(&self, first: &Pass, verdicts: &mut [Verdict]) -> io::Result<()> {
        let lines = self.lines_to_repeat(first, verdicts);
        let second = self.measure(&lines, "repetition, ").await?;
        println!("\nrepetition of the worse metrics:\n{}", heading());
        let all = METRICS.iter().zip(&second.samples).zip(second.verdicts()).zip(verdicts);
        for (((metric, samples), again), verdict) in all.filter(|(_, verdict)| **verdict == Verdict::Worse) {
            if lines.iter().any(|line| line.name == metric.line) {
                *verdict = verdict.repeated(again);
                println!("{}", table_row(metric, samples, *verdict));
            } else {
                println!("{:<10} - {}: worse, and not measured again: the time limit is reached", metric.line, metric.label);
            }
        }
        Ok(())
    }
}

impl Pass {
    fn add(&mut self, line: &Line, build: Build, printed: &[Value]) {
        for (metric, samples) in METRICS.iter().zip(&mut self.samples).filter(|(metric, _)| metric.line == line.name) {
            let samples = if build == Build::Old { &mut samples.old } else { &mut samples.new };
            samples.extend(metric.read(printed));
        }
        self.stolen.extend(printed.iter().filter_map(|object| object["cores_stolen"].as_f64()));
    }

    fn verdicts(&self) -> Vec<Verdict> {
        METRICS.iter().zip(&self.samples).map(|(metric, samples)| Verdict::of(metric.better, &samples.old, &samples.new)).collect()
    }
}

/// Runs one program to its end and returns the JSON objects that it printed. The program and the servers that it started form a
/// process group, which is terminated if the program fails, exceeds its time limit or the user stops the comparison. (The
/// guard of a private PostgreSQL ignores that signal and removes the database.)
async fn run(mut command: Command, name: &str) -> io::Result<Vec<Value>> {
    let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?).process_group(0);
    let mut child = command.spawn().map_err(|error| failure(name, &format!("{:?} does not start: {error}", command.get_program())))?;
    let group = Pid::from_child(&child);
    let mut exit = tokio::task::spawn_blocking(move || child.wait());
    let outcome = tokio::select! {
        exited = &mut exit => exited.map_err(io::Error::other)?.map(|status| if status.success() { Ok(()) } else { Err(status.to_string()) })?,
        () = tokio::time::sleep(PROGRAM_LIMIT) => Err(format!("no result after {} s", PROGRAM_LIMIT.as_secs())),
        _ = interrupt.recv() => Err("stopped by the user".to_owned()),
        _ = terminate.recv() => Err("stopped by a signal".to_owned()),
    };
    if let Err(reason) = outcome {
        // An error means that no process of the group is left.
        let _ = kill_process_group(group, Signal::TERM);
        return Err(failure(name, &format!("{reason}\n{}", whole(&mut err)?)));
    }
    let lines = whole(&mut out)?;
    let objects = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    objects.map_err(|error| failure(name, &format!("a line is not JSON: {error}\n{lines}")))
}

fn failure(name: &str, reason: &str) -> io::Error {
    io::Error::other(format!("bench line {name}: {reason}"))
}

fn whole(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines that `WINDLASS_BENCH_LINES` names, or all of them.
fn wanted_lines() -> Result<Vec<&'static Line>, String> {
    let Ok(names) = env::var("WINDLASS_BENCH_LINES") else { return Ok(LINES.iter().collect()) };
    let known = LINES.iter().map(|line| line.name).collect::<Vec<_>>().join(", ");
    let find = |name: &str| {
        let line = LINES.iter().find(|line| line.name == name.trim());
        line.ok_or_else(|| format!("WINDLASS_BENCH_LINES: there is no line `{}`; the lines are {known}", name.trim()))
    };
    names.split(',').map(find).collect()
}

async fn compare(arguments: &[String]) -> Result<usize, String> {
    let [old, new, elapsed] = arguments else { return Err("usage: compare OLD NEW ELAPSED_S".to_owned()) };
    let elapsed = elapsed.parse().map_err(|_| format!("ELAPSED_S is not a number of seconds: {elapsed}"))?;
    let folder = |path: &str| Path::new(path).canonicalize().map_err(|error| format!("{path}: {error}"));
    let comparison = Comparison {
        old: folder(old)?,
        new: folder(new)?,
        pairs: setting("WINDLASS_BENCH_PAIRS", 7).max(1),
        built_for: Duration::from_secs(elapsed),
        began: Instant::now(),
    };
    comparison.compare(&wanted_lines()?).await.map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match compare(&arguments).await {
        Ok(0) => {
            println!("nothing is worse");
            ExitCode::SUCCESS
        }
        Ok(count) => {
            println!("{count} metric(s) worse or missing");
            ExitCode::from(1)
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
