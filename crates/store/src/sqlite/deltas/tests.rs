use windlass_kernel::StreamedText;
use windlass_ports::NodeId;

use super::*;
use crate::{
    conformance::fixtures::{agent, delta_batch},
    rows::{HeadRow, Reads, Rows},
    sqlite::statements::Manifests,
    verbs::{append_deltas, join_deltas},
};

fn run(number: u8) -> RunId {
    RunId::from_slice(&[number; 16]).unwrap()
}

/// A database in which the runs with numbers below `runs` are active, each of an agent of its own.
fn rows(runs: u8) -> SqliteRows {
    let mut connection = Connection::open_in_memory().unwrap();
    crate::sqlite::open::migrate(&mut connection).unwrap();
    let index = scan(&connection).unwrap();
    let mut rows = SqliteRows::new(connection, NodeId(1), Manifests::default(), Some(index));
    for number in 0..runs {
        rows.insert_head(&agent(&number.to_string()), &active(number)).unwrap();
    }
    rows
}

fn active(number: u8) -> HeadRow {
    HeadRow { status: windlass_kernel::HeadStatus::Running, epoch: Epoch(1), run: Some(run(number)), ..HeadRow::unused() }
}

fn append(rows: &mut SqliteRows, number: u8, first: u32) -> Result<()> {
    append_deltas(rows, &delta_batch(&agent(&number.to_string()), run(number), 1, first, &["x"]))
}

fn commit(rows: &mut SqliteRows, verb: impl FnOnce(&mut SqliteRows)) {
    rows.begin().unwrap();
    verb(rows);
    rows.commit().unwrap();
}

fn stored(rows: &SqliteRows) -> u32 {
    rows.one("SELECT count(*) FROM deltas", [], |row| row.get(0)).unwrap().unwrap()
}

/// The index must equal what a scan of the log finds.
fn check(rows: &SqliteRows, runs: u8) {
    let scanned = rows.scan_deltas().unwrap();
    let (scanned, index) = (scanned.lock().unwrap(), rows.deltas.lock().unwrap());
    assert_eq!(scanned.unsettled, index.unsettled);
    for number in 0..runs {
        let of = |committed: &Committed| committed.runs.get(&run(number)).map(|deltas| (deltas.rows.clone(), deltas.pieces));
        assert_eq!(of(&scanned), of(&index));
    }
    let settled = |committed: &Committed| {
        let mut all: Vec<i64> = committed.settled.iter().chain(&committed.sweeping).map(|(n, _)| *n).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(settled(&scanned), settled(&index));
}

#[test]
fn a_rollback_leaves_the_index_unchanged() {
    let mut rows = rows(2);
    commit(&mut rows, |rows| (0..3).for_each(|first| append(rows, 0, first).unwrap()));
    rows.begin().unwrap();
    append(&mut rows, 0, 3).unwrap();
    append(&mut rows, 1, 0).unwrap();
    rows.forget_deltas(run(0)).unwrap();
    append(&mut rows, 0, 0).unwrap();
    assert_eq!(join_deltas(rows.deltas(run(0)).unwrap()).chunks.0.len(), 1, "a transaction sees what it does");
    rows.roll_back();
    check(&rows, 2);
    assert_eq!(join_deltas(rows.deltas(run(0)).unwrap()).text, "xxx");
    assert_eq!(join_deltas(rows.deltas(run(1)).unwrap()), StreamedText::default());
    commit(&mut rows, |rows| append(rows, 0, 3).unwrap());
    check(&rows, 2);
}

#[test]
fn text_in_the_journal_is_not_read_as_deltas() {
    let mut rows = rows(1);
    commit(&mut rows, |rows| (0..3).for_each(|first| append(rows, 0, first).unwrap()));
    let reader = Deltas::new(rows.deltas.index.clone());
    rows.begin().unwrap();
    rows.forget_deltas(run(0)).unwrap();
    assert_eq!(reader.rows(run(0)).unwrap().len(), 3, "they are stored until they are settled");
    rows.deltas.withdraw();
    assert_eq!(reader.rows(run(0)), Some(Vec::new()));
    rows.roll_back();
    assert_eq!(reader.rows(run(0)).unwrap().len(), 3, "what could not be committed has not settled them");
    check(&rows, 1);
    commit(&mut rows, |rows| rows.forget_deltas(run(0)).unwrap());
    assert_eq!(reader.rows(run(0)), Some(Vec::new()));
    check(&rows, 1);
}

#[test]
fn a_fence_that_was_rolled_back_has_no_effect() {
    let mut rows = rows(1);
    let (key, before) = (agent("0"), active(0));
    let after = HeadRow { epoch: Epoch(2), ..before.clone() };
    commit(&mut rows, |rows| append(rows, 0, 0).unwrap());
    rows.begin().unwrap();
    assert!(rows.update_head(&key, &before, &after).unwrap());
    assert!(matches!(append(&mut rows, 0, 1), Err(StoreError::Fenced)));
    append_deltas(&mut rows, &delta_batch(&key, run(0), 2, 1, &["y"])).unwrap();
    rows.roll_back();
    assert!(matches!(append_deltas(&mut rows, &delta_batch(&key, run(0), 2, 1, &["y"])), Err(StoreError::Fenced)));
    commit(&mut rows, |rows| append(rows, 0, 1).unwrap());
    commit(&mut rows, |rows| assert!(rows.update_head(&key, &before, &after).unwrap()));
    assert!(matches!(append(&mut rows, 0, 2), Err(StoreError::Fenced)));
    commit(&mut rows, |rows| assert!(rows.delete_head(&key, &after).unwrap()));
    assert!(matches!(append_deltas(&mut rows, &delta_batch(&key, run(0), 2, 2, &["y"])), Err(StoreError::Fenced)));
}

#[test]
fn deltas_of_an_erased_run_are_deleted_at_once_and_others_stay() {
    let mut rows = rows(2);
    commit(&mut rows, |rows| (0..3).for_each(|first| (0..2).for_each(|number| append(rows, number, first).unwrap())));
    commit(&mut rows, |rows| rows.forget_deltas(run(0)).unwrap());
    commit(&mut rows, |rows| append(rows, 0, 0).unwrap());
    rows.begin().unwrap();
    rows.delete_deltas(run(0)).unwrap();
    rows.roll_back();
    assert_eq!(stored(&rows), 8, "three batches of each, one more, and a tombstone");
    commit(&mut rows, |rows| {
        append(rows, 0, 1).unwrap();
        rows.delete_deltas(run(0)).unwrap();
    });
    assert_eq!(stored(&rows), 3);
    assert_eq!(join_deltas(rows.deltas(run(1)).unwrap()).text, "xxx");
    assert_eq!(join_deltas(rows.deltas(run(0)).unwrap()), StreamedText::default());
    commit(&mut rows, |rows| rows.delete_deltas(run(0)).unwrap());
    commit(&mut rows, |rows| append(rows, 1, 3).unwrap());
    assert_eq!(stored(&rows), 4);
}

#[test]
fn settled_deltas_are_deleted_and_others_stay() {
    const RUNS: u8 = 8;
    let mut rows = rows(RUNS);
    let mut unsettled = [0; RUNS as usize];
    // One run is never settled, and its rows are all over the log.
    for round in 0..4_000_u32 {
        commit(&mut rows, |rows| {
            for number in 0..RUNS {
                append(rows, number, unsettled[number as usize]).unwrap();
                unsettled[number as usize] += 1;
            }
            let settles = (round % 7) as u8 + 1;
            if round % 10 == 0 {
                rows.forget_deltas(run(settles)).unwrap();
                unsettled[settles as usize] = 0;
            }
        });
        if round % 500 == 0 {
            check(&rows, RUNS);
        }
    }
    check(&rows, RUNS);
    let live: u32 = unsettled.iter().sum();
    assert_eq!(unsettled[0], 4_000);
    for number in 0..RUNS {
        assert_eq!(join_deltas(rows.deltas(run(number)).unwrap()).chunks.0.len() as u32, unsettled[number as usize]);
    }
    let most = live + live.max(SWEEP_MIN as u32) * 2;
    assert!(stored(&rows) <= most, "{} rows for {live}", stored(&rows));
    assert!(stored(&rows) < 20_000, "of 32,000 rows many were swept out: {}", stored(&rows));
}
