//! The contents of the database at the moment of death, before any server has opened it.
//!
//! Only a copy is opened: SQLite checkpoints the log into the database when its last connection closes, and the next server would find a
//! cleaner state than the crash left.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;
use windlass_tests::{Database, Place, Row, Server, Store, binary};

/// What is wrong in the database, without the states of runs that were made unreadable on purpose.
pub fn inspect(server: &Server, spoiled: &[&str]) -> Vec<String> {
    let remains = Remains::copied(server);
    let database = remains.open();
    let mut wrong = rows(&database);
    for run in runs(&database).into_iter().filter(|run| !spoiled.contains(&run.as_str())) {
        wrong.extend(fold(&remains, &run));
    }
    wrong.into_iter().map(|what| format!("in the wreck: {what}")).collect()
}

/// The data that a server left behind, or a copy of it.
pub struct Remains {
    folder: PathBuf,
    place: Place,
    /// The folder of the copy, which is removed with this.
    _copy: Option<TempDir>,
}

impl Remains {
    /// The data that a server has now.
    pub fn of(server: &Server) -> Self {
        Remains { folder: server.folder().to_owned(), place: server.place().clone(), _copy: None }
    }

    /// A copy of a server's database.
    pub fn copied(server: &Server) -> Self {
        let copy = TempDir::new().expect("a folder for the copy");
        Remains { folder: copy.path().to_owned(), place: server.place().copy(copy.path()), _copy: Some(copy) }
    }

    /// Opens the database.
    pub fn open(&self) -> Database {
        self.place.open()
    }

    /// The folder from which the command line finds the database.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Rows of a database that violate an invariant, whether or not the server died.
pub fn rows(database: &Database) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut refuse = |sql: &str, what: &str| {
        let found = database.rows(sql).into_iter().flatten().flatten();
        wrong.extend(found.map(|found| format!("{what}: {found}")));
    };
    refuse("SELECT agent FROM runs WHERE status = 'active' GROUP BY tenant, agent HAVING count(*) > 1", "S1: two active runs");
    refuse(
        "SELECT h.agent FROM heads h LEFT JOIN runs r ON r.run = h.run WHERE h.run IS NOT NULL AND r.status IS DISTINCT FROM 'active'",
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
    refuse(
        "SELECT hex(c.run) FROM runs c JOIN runs p ON p.run = c.parent WHERE p.status = 'ended' AND c.status <> 'ended'
         AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.run = c.run AND i.kind = 'stop')",
        "S15: a child outlives its parent without a stop",
    );
    refuse(
        "SELECT hex(c.run) FROM runs c WHERE c.parent IS NOT NULL AND c.status = 'ended'
         AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.run = c.parent AND i.call = c.parent_call AND i.kind = 'tool_result')",
        "S15: a child has ended, and its parent has no result",
    );
    // A dying client can't damage the files of PostgreSQL.
    if database.store() == Store::Sqlite {
        refuse("SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'", "the database is damaged");
    }
    wrong.extend(overlaps(database));
    wrong
}

/// The runs of one agent are sequential: a later one begins with a higher epoch, and not before the earlier one's end.
fn overlaps(database: &Database) -> Vec<String> {
    struct Span {
        agent: String,
        epochs: (i64, i64),
        times: (i64, Option<i64>),
    }
    let sql = "SELECT r.agent, min(j.epoch), max(j.epoch), min(CASE j.kind WHEN 'leased' THEN j.at END),
                      max(CASE j.kind WHEN 'ended' THEN j.at END)
               FROM runs r JOIN journal j ON j.run = r.run WHERE EXISTS (SELECT 1 FROM journal l WHERE l.run = r.run AND l.kind = 'leased')
               GROUP BY r.run ORDER BY r.tenant, r.agent, r.ordinal";
    let number = |value: &Option<String>| value.as_deref().map(|text| text.parse::<i64>().expect("a number"));
    let known = |value: &Option<String>| number(value).expect("a leased run has epochs and times");
    let read = |row: &Row| Span {
        agent: row[0].clone().expect("a run has an agent"),
        epochs: (known(&row[1]), known(&row[2])),
        times: (known(&row[3]), number(&row[4])),
    };
    let spans: Vec<Span> = database.rows(sql).iter().map(read).collect();
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

/// The ids of the runs of a database, as the command line prints them.
pub fn runs(database: &Database) -> Vec<String> {
    let rows = database.rows("SELECT 'run_' || lower(hex(run)) FROM runs ORDER BY agent, ordinal");
    rows.into_iter().flatten().flatten().collect()
}

/// The lines of an export of a run.
pub fn export(remains: &Remains, run: &str) -> Result<Vec<Value>, String> {
    let out = Command::new(binary()).args(["export", run]).current_dir(remains.folder()).output().expect("export runs");
    if !out.status.success() {
        return Err(format!("{run} cannot be exported: {}", String::from_utf8_lossy(&out.stderr)));
    }
    let lines = String::from_utf8_lossy(&out.stdout).lines().map(serde_json::from_str).collect::<Result<_, _>>();
    lines.map_err(|error| format!("the export of {run} is not JSON lines: {error}"))
}

/// Checks that the state is the fold of the journal, also at the moment of death.
fn fold(remains: &Remains, run: &str) -> Option<String> {
    match export(remains, run) {
        Err(why) => Some(why),
        Ok(lines) => {
            let is_fold = lines.iter().any(|line| line["type"] == "state" && line["is_fold_of_journal"] == true);
            (!is_fold).then(|| format!("S8: the state of {run} is not the fold of its journal"))
        }
    }
}

/// The rows of a query as counts by key.
pub fn counts(database: &Database, sql: &str) -> BTreeMap<String, i64> {
    let read = |row: Row| {
        let mut values = row.into_iter().flatten();
        let key = values.next().expect("a key");
        (key, values.next().expect("a count").parse().expect("a number"))
    };
    database.rows(sql).into_iter().map(read).collect()
}
