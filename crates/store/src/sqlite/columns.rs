//! How values are encoded for the database: integers are signed, ids are blobs, names of variants are checked when they are read.

use rusqlite::{
    Row,
    types::{FromSqlError, Type},
};
use windlass_kernel::{AgentKey, CallNumber, Epoch, Timestamp};
use windlass_ports::{ErrorDetail, StoreError};

/// A number as SQLite holds it. The numbers of the store never come near the limit.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A limit as SQLite takes it.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(index)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, number))
}

pub(super) fn small(row: &Row<'_>, index: usize) -> rusqlite::Result<u32> {
    row.get(index)
}

pub(super) fn time(row: &Row<'_>, index: usize) -> rusqlite::Result<Timestamp> {
    row.get(index).map(Timestamp)
}

pub(super) fn maybe_time(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp))
}

pub(super) fn maybe_epoch(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Epoch>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(|number| Epoch(number.unsigned_abs())))
}

pub(super) fn maybe_call(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<CallNumber>> {
    Ok(row.get::<_, Option<u32>>(index)?.map(CallNumber))
}

pub(super) fn bytes<const N: usize>(row: &Row<'_>, index: usize) -> rusqlite::Result<[u8; N]> {
    row.get(index)
}

/// An id, or any other value that is made of a blob.
pub(super) fn id<T>(row: &Row<'_>, index: usize, read: impl Fn(&[u8]) -> Option<T>) -> rusqlite::Result<T> {
    maybe_id(row, index, read)?.ok_or_else(|| nonsense(index, Type::Null, "an id is missing"))
}

pub(super) fn maybe_id<T>(row: &Row<'_>, index: usize, read: impl Fn(&[u8]) -> Option<T>) -> rusqlite::Result<Option<T>> {
    match row.get_ref(index)?.as_blob_or_null().map_err(|error| wrong_type(index, error))? {
        None => Ok(None),
        Some(blob) => read(blob).map(Some).ok_or_else(|| nonsense(index, Type::Blob, "an id has not sixteen bytes")),
    }
}

/// A name from a closed list.
pub(super) fn variant<T>(row: &Row<'_>, index: usize, parse: impl Fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    maybe_variant(row, index, parse)?.ok_or_else(|| nonsense(index, Type::Null, "a word is missing"))
}

pub(super) fn maybe_variant<T>(row: &Row<'_>, index: usize, parse: impl Fn(&str) -> Option<T>) -> rusqlite::Result<Option<T>> {
    match row.get_ref(index)?.as_str_or_null().map_err(|error| wrong_type(index, error))? {
        None => Ok(None),
        Some(text) => parse(text).map(Some).ok_or_else(|| nonsense(index, Type::Text, "an unknown word")),
    }
}

/// Text that is kept as bytes.
pub(super) fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<String> {
    String::from_utf8(row.get(index)?).map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, Type::Blob, Box::new(error)))
}

/// Two neighbouring columns: tenant and agent.
pub(super) fn agent(row: &Row<'_>, index: usize) -> rusqlite::Result<AgentKey> {
    let tenant = row.get_ref(index)?.as_str().map_err(|error| wrong_type(index, error))?;
    let agent = row.get_ref(index + 1)?.as_str().map_err(|error| wrong_type(index + 1, error))?;
    Ok(AgentKey { tenant: tenant.into(), agent: agent.into() })
}

fn wrong_type(index: usize, error: FromSqlError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Null, Box::new(error))
}

fn nonsense(index: usize, found: Type, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, found, what.into())
}

/// An error of SQLite as the engine understands it. A violated constraint or an unreadable row is corrupt data, which another attempt does
/// not repair; any other error means that the database does not answer now.
pub(super) fn fault(error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{ConstraintViolation, DatabaseCorrupt, NotADatabase, TypeMismatch};
    let is_code =
        error.sqlite_error_code().is_some_and(|code| matches!(code, ConstraintViolation | DatabaseCorrupt | NotADatabase | TypeMismatch));
    let is_unreadable = matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    );
    let cause = ErrorDetail::of(error.to_string(), error);
    if is_code || is_unreadable { StoreError::Corrupt(cause) } else { StoreError::Unavailable(cause) }
}
