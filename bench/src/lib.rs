//! Shared by the bench programs: percentiles, process and disk accounting, one JSON line per program.
//!
//! Ratios within one execution can be compared between machines, absolute figures cannot. Processor time per run varies least on a shared
//! machine.

pub mod backend;
pub mod comparison;
pub mod engine;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Map, Value, json};

/// Iterations of one run of the durable tool loop.
pub const ITERATIONS: usize = 3;
/// Durable steps of one run: a model call and a tool call per iteration.
pub const STEPS: f64 = 2.0 * ITERATIONS as f64;

/// The model's reply in each iteration: 300 bytes.
pub fn model_reply() -> String {
    "m".repeat(300)
}

/// Microseconds since the Unix epoch.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// A tool result of about 1 KB that starts with the time at which it was posted, so that the run can measure how long the wakeup took.
pub fn tool_result() -> String {
    format!("{:020}{}", now_us(), "t".repeat(1004))
}

/// The time since a result was posted.
pub fn resumed_after_us(result: &str) -> u64 {
    let posted = result.get(..20).and_then(|head| head.parse().ok()).unwrap_or(0);
    now_us().saturating_sub(posted)
}

/// Where a program keeps its data: a folder from the command line, or a temporary one.
pub enum Place {
    /// A folder from the command line, which is kept.
    Given(PathBuf),
    /// A temporary folder, which is removed when the program ends.
    Temporary(tempfile::TempDir),
}

impl Place {
    /// Uses the first argument as the folder, or a temporary folder if there is none.
    pub fn from_arguments() -> Self {
        env::args().nth(1).map_or_else(Place::temporary, |given| Place::Given(given.into()))
    }

    /// Creates a temporary folder.
    pub fn temporary() -> Self {
        Place::Temporary(tempfile::tempdir().expect("a folder for the data"))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        match self {
            Place::Given(path) => path,
            Place::Temporary(folder) => folder.path(),
        }
    }

    /// Creates a folder below it.
    pub fn below(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(&path).expect("a folder for the data");
        path
    }
}

/// A setting from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Percentile of microsecond samples, in milliseconds.
pub fn percentile(samples: &mut [u64], p: f64) -> f64 {
    if samples.is_empty() {
        return f64::NAN;
    }
    samples.sort_unstable();
    let index = ((samples.len() - 1) as f64 * p).round() as usize;
    samples[index] as f64 / 1000.0
}

/// Processor seconds of a process.
pub fn cpu_s(pid: u32) -> f64 {
    stat_cpu_s(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default())
}

/// Processor seconds from a `stat` line of the system about a process or a thread.
pub fn stat_cpu_s(stat: &str) -> f64 {
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) as f64 / 100.0
}

/// Busy processor seconds of the whole machine. The part that this process did not use belongs to other processes.
fn machine_cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> = stat.lines().next().unwrap_or("").split_whitespace().filter_map(|field| field.parse().ok()).collect();
    [0, 1, 2, 5, 6].iter().map(|index| fields.get(*index).copied().unwrap_or(0)).sum::<u64>() as f64 / 100.0
}

/// Processor seconds that the hypervisor took from this machine (steal time).
pub fn stolen_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok());
    ticks.unwrap_or(0) as f64 / 100.0
}

/// Proportional resident memory of a process in kilobytes.
pub fn memory_kb(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let pss = rollup.lines().find(|line| line.starts_with("Pss:"));
    pss.and_then(|line| line.split_whitespace().nth(1)).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

/// Flush requests and bytes written of the block device `BENCH_DISK` (default `vda`).
fn device() -> (u64, u64) {
    let disk = env::var("BENCH_DISK").unwrap_or_else(|_| "vda".to_owned());
    let stat = fs::read_to_string(format!("/sys/block/{disk}/stat")).unwrap_or_default();
    let fields: Vec<u64> = stat.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    (fields.get(15).copied().unwrap_or(0), fields.get(6).copied().unwrap_or(0) * 512)
}

/// Allocated bytes below a path.
pub fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let below = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| disk_bytes(&entry.path())).sum::<u64>();
    metadata.blocks() * 512 + below
}

/// Measures what a phase uses, from its start on.
pub struct Meter {
    began: Instant,
    device: (u64, u64),
    data: PathBuf,
    disk: u64,
    own: f64,
    machine: f64,
    stolen: f64,
}

/// What a phase used: time, device flushes and bytes, disk growth, processor.
pub struct Used {
    /// Seconds.
    pub seconds: f64,
    /// Flush requests of the device.
    pub flushes: u64,
    /// Bytes the device wrote.
    pub written: u64,
    /// Bytes the data folder grew by.
    pub grown: i64,
    /// Cores this process used.
    pub cores: f64,
    /// Cores that all other processes used.
    pub cores_others: f64,
    /// Cores that other machines on the same hardware took. A figure measured while this is high means little.
    pub cores_stolen: f64,
}

impl Meter {
    /// Begins a phase whose data is in this folder.
    pub fn start(data: &Path) -> Self {
        let (device, disk, own, machine) = (device(), disk_bytes(data), cpu_s(std::process::id()), machine_cpu_s());
        Meter { began: Instant::now(), device, data: data.to_owned(), disk, own, machine, stolen: stolen_s() }
    }

    /// Ends the phase and returns what it used.
    pub fn stop(self) -> Used {
        let seconds = self.began.elapsed().as_secs_f64();
        let (own, machine, device) = (cpu_s(std::process::id()), machine_cpu_s(), device());
        Used {
            seconds,
            flushes: device.0 - self.device.0,
            written: device.1 - self.device.1,
            grown: disk_bytes(&self.data) as i64 - self.disk as i64,
            cores: (own - self.own) / seconds,
            cores_others: ((machine - self.machine) - (own - self.own)) / seconds,
            cores_stolen: (stolen_s() - self.stolen) / seconds,
        }
    }
}

/// Rounds for printing.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// The measurements of one program.
pub struct Measured {
    /// Runs at once in the busy phase.
    pub concurrency: usize,
    /// Runs completed in the busy phase.
    pub runs: u64,
    /// What the busy phase used.
    pub busy: Used,
    /// Microseconds of each run in the phase without concurrency.
    pub alone_us: Vec<u64>,
    /// What the phase without concurrency used.
    pub alone: Used,
    /// Microseconds from the arrival of a result until the run continues, without concurrency.
    pub resume_alone_us: Vec<u64>,
    /// Microseconds from the arrival of a result until the run continues, with many concurrent runs.
    pub resume_busy_us: Vec<u64>,
}

impl Measured {
    /// The fields every durable-loop driver prints.
    pub fn fields(mut self, peer: &str, variant: &str) -> Map<String, Value> {
        let (runs, alone) = (self.runs as f64, self.alone_us.len() as f64);
        let fields = json!({
            "peer": peer, "variant": variant, "concurrency": self.concurrency,
            "runs": self.runs, "runs_per_s": round(runs / self.busy.seconds, 1), "steps_per_s": round(runs * STEPS / self.busy.seconds, 0),
            "run_c1_p50_ms": round(percentile(&mut self.alone_us, 0.50), 2), "run_c1_p99_ms": round(percentile(&mut self.alone_us, 0.99), 2),
            "run_c1_n": self.alone_us.len(),
            "resume_c1_p50_ms": round(percentile(&mut self.resume_alone_us, 0.50), 2),
            "resume_c1_p99_ms": round(percentile(&mut self.resume_alone_us, 0.99), 2),
            "resume_cN_p50_ms": round(percentile(&mut self.resume_busy_us, 0.50), 2),
            "resume_cN_p99_ms": round(percentile(&mut self.resume_busy_us, 0.99), 2),
            "disk_bytes_per_run": (self.busy.grown as f64 / runs).round(), "device_bytes_per_run": (self.busy.written as f64 / runs).round(),
            "flushes_per_run_cN": round(self.busy.flushes as f64 / runs, 2), "flushes_per_run_c1": round(self.alone.flushes as f64 / alone, 2),
            "cores_server": 0.0, "cores_driver": round(self.busy.cores, 2),
            "cores_stolen": round(self.busy.cores_stolen, 2), "cores_others": round(self.busy.cores_others, 2), "cores_others_c1": round(self.alone.cores_others, 2),
            "cpu_ms_per_run": round(self.busy.cores * self.busy.seconds * 1000.0 / runs, 3),
        });
        fields.as_object().cloned().unwrap_or_default()
    }
}
