//! What lies on the disk in the moment of death, before any server has looked at it.
//!
//! Only a copy is opened: SQLite folds the log into the database when its last reader closes, and the next server would find
//! an easier beginning than the crash left it.

use std::{collections::BTreeMap, path::Path, process::Command};

use rusqlite::{Connection, Row};
use serde_json::Value;
use tempfile::TempDir;
use windlass_tests::{PATIENCE, binary};

/// What is wrong there.
pub fn inspect(folder: &Path) -> Vec<String> {
    let copy = copy(folder);
    let database = open(copy.path());
    let mut wrong = rows(&database);
    for run in runs(&database) {
        wrong.extend(fold(copy.path(), &run));
    }
    wrong.into_iter().map(|what| format!("in the wreck: {what}")).collect()
}

/// A copy of a server's database and log.
pub fn copy(folder: &Path) -> TempDir {
    let copy = TempDir::new().expect("a folder for the copy");
    let data = copy.path().join(".windlass");
    std::fs::create_dir(&data).expect("a folder in the copy");
    for name in ["windlass.db", "windlass.db-wal"] {
        let from = folder.join(".windlass").join(name);
        if from.exists() {
            std::fs::copy(from, data.join(name)).expect("the database can be copied");
        }
    }
    copy
}

/// The database of a server's folder.
pub fn open(folder: &Path) -> Connection {
    let database = Connection::open(folder.join(".windlass/windlass.db")).expect("the database opens");
    database.busy_timeout(PATIENCE).expect("a timeout can be set");
    database
}

/// What the rows of a database say that they must not, dead server or not.
pub fn rows(database: &Connection) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut refuse = |sql: &str, what: &str| {
        let found = all(database, sql, |row| row.get::<_, String>(0));
        wrong.extend(found.into_iter().map(|found| format!("{what}: {found}")));
    };
    refuse("SELECT agent FROM runs WHERE status = 'active' GROUP BY tenant, agent HAVING count(*) > 1", "S1: two active runs");
    refuse(
        "SELECT h.agent FROM heads h LEFT JOIN runs r ON r.run = h.run WHERE h.run IS NOT NULL AND r.status IS NOT 'active'",
        "S1: a head shows a run that is not active",
    );
    refuse(
        "SELECT r.agent FROM runs r LEFT JOIN heads h ON h.run = r.run WHERE r.status = 'active' AND h.run IS NULL",
        "S1: an active run that its head does not show",
    );
    refuse("SELECT hex(run) FROM journal GROUP BY run HAVING count(*) <> max(number) + 1 OR min(number) <> 0", "S7: a journal with a gap");
    refuse(
        "SELECT hex(a.run) || '#' || b.number FROM journal a JOIN journal b ON a.run = b.run AND b.number = a.number + 1
         WHERE a.epoch > b.epoch OR (a.epoch IS NOT NULL AND b.epoch IS NULL)",
        "S2: an old epoch wrote",
    );
    refuse(
        "SELECT r.agent FROM runs r JOIN heads h USING (tenant, agent) WHERE r.epoch > h.epoch",
        "S2: a run is ahead of its head's epoch",
    );
    refuse(
        "SELECT h.agent FROM heads h WHERE h.queued <>
         (SELECT count(*) FROM runs r WHERE r.tenant = h.tenant AND r.agent = h.agent AND r.status = 'queued')",
        "S4: a head counts its queued runs wrongly",
    );
    refuse("SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'", "the database is damaged");
    wrong.extend(overlaps(database));
    wrong
}

/// Runs of one agent follow each other: a later one begins under a higher epoch, and not before the earlier one's end.
fn overlaps(database: &Connection) -> Vec<String> {
    struct Span {
        agent: String,
        epochs: (i64, i64),
        times: (i64, Option<i64>),
    }
    let sql = "SELECT r.agent, min(j.epoch), max(j.epoch), min(CASE j.kind WHEN 'leased' THEN j.at END),
                      max(CASE j.kind WHEN 'ended' THEN j.at END)
               FROM runs r JOIN journal j ON j.run = r.run WHERE EXISTS (SELECT 1 FROM journal l WHERE l.run = r.run AND l.kind = 'leased')
               GROUP BY r.run ORDER BY r.tenant, r.agent, r.ordinal";
    let spans =
        all(database, sql, |row| Ok(Span { agent: row.get(0)?, epochs: (row.get(1)?, row.get(2)?), times: (row.get(3)?, row.get(4)?) }));
    let mut wrong = Vec::new();
    for pair in spans.windows(2).filter(|pair| pair[0].agent == pair[1].agent) {
        let [before, after] = pair else { continue };
        if after.epochs.0 <= before.epochs.1 {
            wrong
                .push(format!("S1: a run of {} began under epoch {}, the one before had {}", after.agent, after.epochs.0, before.epochs.1));
        }
        if before.times.1.is_none_or(|end| after.times.0 < end) {
            wrong.push(format!("S1: two runs of {} overlap", after.agent));
        }
    }
    wrong
}

/// The runs of a database, as the command line names them.
pub fn runs(database: &Connection) -> Vec<String> {
    all(database, "SELECT 'run_' || lower(hex(run)) FROM runs ORDER BY agent, ordinal", |row| row.get(0))
}

/// What an export of a run says, a line each.
pub fn export(folder: &Path, run: &str) -> Result<Vec<Value>, String> {
    let out = Command::new(binary()).args(["export", run]).current_dir(folder).output().expect("export runs");
    if !out.status.success() {
        return Err(format!("{run} cannot be exported: {}", String::from_utf8_lossy(&out.stderr)));
    }
    let lines = String::from_utf8_lossy(&out.stdout).lines().map(serde_json::from_str).collect::<Result<_, _>>();
    lines.map_err(|error| format!("the export of {run} is not JSON lines: {error}"))
}

/// The state is the fold of the journal, also in the moment of death.
fn fold(folder: &Path, run: &str) -> Option<String> {
    match export(folder, run) {
        Err(why) => Some(why),
        Ok(lines) => {
            let is_fold = lines.iter().any(|line| line["type"] == "state" && line["is_fold_of_journal"] == true);
            (!is_fold).then(|| format!("S8: the state of {run} is not the fold of its journal"))
        }
    }
}

/// Every row a query finds.
pub fn all<T>(database: &Connection, sql: &str, read: impl Fn(&Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
    let mut statement = database.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = statement.query_map([], |row| read(row)).expect("the query runs");
    rows.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Rows as counts by key.
pub fn counts(database: &Connection, sql: &str) -> BTreeMap<String, i64> {
    all(database, sql, |row| Ok((row.get(0)?, row.get(1)?))).into_iter().collect()
}
