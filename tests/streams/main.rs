//! Death in the middle of a stream, at every boundary and at random moments: a client that reconnects with its last sequence number gets
//! the rest, and both parts together are the uninterrupted stream. `tests/streams_postgres` has the same on PostgreSQL.

mod deaths;
mod rare;
mod story;

#[tokio::test(flavor = "multi_thread")]
async fn s_07_a_stream_continues_where_it_broke_wherever_the_server_dies() {
    deaths::at_every_point(&story::READS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_a_stream_continues_where_it_broke_whenever_the_server_dies() {
    deaths::at_random_moments(&story::READS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_06_a_write_in_a_stream_starts_once_wherever_the_server_dies() {
    deaths::at_every_point(&story::WRITES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_06_a_write_in_a_stream_starts_once_whenever_the_server_dies() {
    deaths::at_random_moments(&story::WRITES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_a_heartbeat_is_sent_once_whatever_happens_to_the_server() {
    rare::with_heartbeats().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_text_that_is_not_continued_stays_as_it_was_streamed() {
    rare::text_that_is_not_continued().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_kept_is_erased_though_the_server_dies_over_it() {
    rare::what_is_not_kept_is_erased().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_structured_answer_that_cannot_be_continued_fails_with_a_clear_error() {
    rare::half_an_object_fails().await;
}
