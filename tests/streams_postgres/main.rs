//! Death in the middle of a stream, on PostgreSQL: the stories and checks of `tests/streams`, unchanged.

#[path = "../golden/databases.rs"]
mod databases;
#[path = "../streams/deaths.rs"]
mod deaths;
mod nodes;
#[path = "../streams/rare.rs"]
mod rare;
#[path = "../streams/story.rs"]
mod story;

#[tokio::test(flavor = "multi_thread")]
async fn s_07_a_stream_goes_on_where_it_broke_off_wherever_the_server_dies() {
    deaths::at_every_point(&story::READS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_a_stream_goes_on_where_it_broke_off_whenever_the_server_dies() {
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
async fn s_07_a_sign_of_life_is_told_once_whatever_happens_to_the_server() {
    rare::signs_of_life().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_words_that_are_not_gone_on_with_stay_as_they_were_seen() {
    rare::words_that_are_not_gone_on_with().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_kept_is_erased_though_the_server_dies_over_it() {
    rare::what_is_not_kept_is_erased().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_structured_answer_that_cannot_be_gone_on_with_fails_and_says_so() {
    rare::half_an_object_fails().await;
}
