use std::sync::Arc;

use windlass_ports::{Commit, StateWrite};

use super::MemoryStore;
use crate::{
    StoreOptions,
    conformance::{
        Full,
        fixtures::{Kit, LOOKUP, START, agent, calls},
    },
};

/// A commit that rewrites no row of the run stores the state only if it says so, and either way the run is read with the same state.
#[tokio::test]
async fn a_commit_stores_the_state_of_its_run_if_it_says_so() {
    for (name, state_write) in [("a", StateWrite::Always), ("b", StateWrite::WithRow)] {
        let memory = Arc::new(MemoryStore::new(StoreOptions::default()));
        let store: Arc<dyn Full> = memory.clone();
        let kit = Kit::new(&store);
        let (run, _) = kit.begin(&agent(name), START).await;
        let stored = || memory.look(|rows| Ok(rows.runs.get(&run).unwrap().state.clone())).unwrap();
        let before = stored();
        let (guard, commit) = kit.prepare(&agent(name), calls(&[LOOKUP]), START).await;
        let state = commit.state.clone();
        store.commit(guard, Commit { state_write, ..commit }).await.unwrap();
        assert_eq!(stored() != before, state_write == StateWrite::Always);
        assert_eq!(kit.load(&agent(name)).await.run.unwrap().state, state);
    }
}
