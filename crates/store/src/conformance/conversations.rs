//! Conversations: their items, and the runs that extend them.

use std::sync::Arc;

use windlass_kernel::{AgentKey, BoxRange, ConversationId, Failure, FailureCause, Input, ItemId, ItemKind, RunId, StreamedText, Tenant};
use windlass_ports::{
    ConversationChange, ConversationView, Conversed, Enqueued, InConversation, NewRun, Part, Withdrawn, conversation_agent,
};

use super::{
    Full,
    fixtures::{HANDED_BACK, Kit, START, agent, calls, final_reply, foreign},
};

/// A conversation of the tenant that most cases use.
struct TestConversation {
    store: Arc<dyn Full>,
    kit: Kit,
    tenant: Tenant,
    id: ConversationId,
}

impl TestConversation {
    async fn begin(store: Arc<dyn Full>, input: &[&str]) -> Self {
        let kit = Kit::new(&store);
        TestConversation::begin_with(store, kit, input).await
    }

    async fn begin_with(store: Arc<dyn Full>, kit: Kit, input: &[&str]) -> Self {
        let (tenant, id) = (agent("").tenant, kit.conversation_id());
        let conversation = TestConversation { store, kit, tenant, id };
        let items = conversation.items(input);
        let begin = ConversationChange::Begin { metadata: "{}".into(), id: conversation.kit.box_id(), items };
        assert!(matches!(conversation.change(begin).await, Conversed::Done(_)));
        conversation
    }

    fn items(&self, input: &[&str]) -> Vec<windlass_kernel::NewItem> {
        input.iter().map(|input| self.kit.item(ItemKind::Instruction, input.as_bytes())).collect()
    }

    fn agent(&self) -> AgentKey {
        conversation_agent(&self.tenant, self.id)
    }

    async fn change(&self, change: ConversationChange) -> Conversed {
        self.store.converse(self.tenant.clone(), self.id, change, START).await.unwrap()
    }

    fn adding(&self, input: &[&str]) -> ConversationChange {
        ConversationChange::Add { id: self.kit.box_id(), items: self.items(input), items_max: 100 }
    }

    async fn add(&self, input: &[&str]) {
        assert!(matches!(self.change(self.adding(input)).await, Conversed::Done(_)));
    }

    async fn view(&self) -> ConversationView {
        self.store.conversation(&self.tenant, self.id).await.unwrap().unwrap()
    }

    async fn parts(&self) -> Vec<Part> {
        self.store.conversation_parts(&self.tenant, self.id).await.unwrap()
    }

    /// The items of a range as text; those of runs are shown by their kind.
    async fn read(&self, range: BoxRange) -> Vec<String> {
        let items = self.store.range_items(&self.tenant, range).await.unwrap();
        items.iter().map(|item| String::from_utf8_lossy(&item.content).into_owned()).collect()
    }

    /// The items that the next run continues from.
    async fn all_items(&self) -> Vec<String> {
        match self.view().await.tail {
            Some(tail) => self.read(tail).await,
            None => Vec::new(),
        }
    }

    async fn conversation_items(&self) -> Vec<ItemId> {
        let tail = self.view().await.tail.unwrap();
        self.store.range_items(&self.tenant, tail).await.unwrap().iter().map(|item| item.id).collect()
    }

    /// A run with this input, by a client that has just read the conversation.
    async fn run(&self, input: &str, may_wait: bool) -> NewRun {
        let view = self.view().await;
        let parent = view.tail.filter(|_| !view.is_busy);
        let new = self.kit.new_run_after(&self.agent(), parent, self.items(&[input]), START);
        let asked = InConversation { id: self.id, version: view.version, is_busy: view.is_busy, may_wait };
        self.kit.entering(NewRun { conversation: Some(asked), ..new })
    }

    async fn ask(&self, input: &str, may_wait: bool) -> (RunId, Enqueued) {
        let new = self.run(input, may_wait).await;
        (new.run, self.store.enqueue(new).await.unwrap())
    }

    async fn answer(&self, input: &str) {
        self.kit.advance(&self.agent(), final_reply(input), START).await;
    }

    /// The items that the active run reads.
    async fn context(&self) -> Vec<String> {
        let run = self.kit.load(&self.agent()).await.run.unwrap();
        self.read(run.state.output).await
    }
}

/// Texts as they are stored: those of clients, and answers, which begin with `=`.
fn texts(input: &[&str]) -> Vec<String> {
    let text = |input: &&str| match input.strip_prefix('=') {
        Some(answer) => format!("{{\"text\":\"{answer}\"}}"),
        None => (*input).to_owned(),
    };
    input.iter().map(text).collect()
}

/// A stop by a client.
fn stop() -> Input {
    Input::Stopped { reason: "enough".into(), streamed: StreamedText::default() }
}

/// Added items keep their order, and share one box as long as no run has read it.
pub async fn added_items_keep_their_order(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store.clone(), &[]).await;
    assert_eq!((conversation.view().await.tail, conversation.parts().await), (None, Vec::new()));
    conversation.add(&["a"]).await;
    conversation.add(&["b", "c"]).await;
    assert_eq!(conversation.all_items().await, texts(&["a", "b", "c"]));
    assert_eq!((conversation.view().await.items, conversation.parts().await.len()), (3, 1));
    let described = conversation.change(ConversationChange::Describe { metadata: "{\"k\":\"v\"}".into() }).await;
    assert!(matches!(described, Conversed::Done(view) if view.metadata == "{\"k\":\"v\"}" && view.items == 3));
    let other = foreign("").tenant;
    assert_eq!(store.conversation(&other, conversation.id).await.unwrap(), None, "tenants are apart");
    assert_eq!(store.conversation_parts(&other, conversation.id).await.unwrap(), Vec::new());
    let foreign = store.converse(other, conversation.id, ConversationChange::End, START).await.unwrap();
    assert_eq!(foreign, Conversed::Unknown);
    assert_eq!(store.conversation(&conversation.tenant, conversation.kit.conversation_id()).await.unwrap(), None);
}

/// The input and the output of a run are added when it ends, not before, and no byte of them is copied.
pub async fn a_run_continues_a_conversation_and_is_added_when_it_ends(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store, &["a"]).await;
    let (first, enqueued) = conversation.ask("b", false).await;
    assert!(matches!(enqueued, Enqueued::Entered { .. }), "{enqueued:?}");
    assert_eq!(conversation.context().await, texts(&["a", "b"]));
    assert_eq!((conversation.all_items().await, conversation.view().await.is_busy), (texts(&["a"]), true), "its output is not added yet");
    conversation.answer("one").await;
    assert_eq!((conversation.all_items().await, conversation.view().await.is_busy), (texts(&["a", "b", "=one"]), false));
    let (second, _) = conversation.ask("c", false).await;
    assert_eq!(conversation.context().await, texts(&["a", "b", "=one", "c"]));
    conversation.kit.advance(&conversation.agent(), calls(&[HANDED_BACK]), START).await;
    conversation.add(&["d"]).await;
    assert_eq!(conversation.view().await.items, 6);
    assert!(
        matches!(conversation.parts().await[..], [Part::Items(_), Part::Run(a), Part::Run(b), Part::Items(_)] if a == first && b == second)
    );
    assert_eq!(conversation.all_items().await.len(), 6, "the text about its end is not added");
}

/// After a failure a client sends the same input again, which is then in the conversation once.
pub async fn a_run_that_failed_or_was_stopped_is_not_added(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store, &["a"]).await;
    let failure = Failure {
        code: "x".into(),
        cause: FailureCause::Unreachable,
        message: "no".into(),
        retry_after_ms: None,
        retry_at: None,
        fallback: None,
        spent: Default::default(),
        streamed: Default::default(),
    };
    for end in [Input::AttemptFailed(failure), stop()] {
        conversation.ask("b", false).await;
        conversation.kit.advance(&conversation.agent(), end, START).await;
        assert_eq!((conversation.all_items().await, conversation.view().await.is_busy), (texts(&["a"]), false));
    }
    assert_eq!((conversation.parts().await.len(), conversation.view().await.version), (1, 1));
}

/// A queued run gets the items that were added meanwhile, also those of a run that was queued before it.
pub async fn a_run_that_waits_begins_after_the_one_before_it(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store.clone(), &["a"]).await;
    conversation.ask("b", false).await;
    for input in ["c", "d", "e"] {
        let (_, enqueued) = conversation.ask(input, true).await;
        assert!(matches!(enqueued, Enqueued::Queued { .. }), "{enqueued:?}");
    }
    let (withdrawn, _) = conversation.ask("f", true).await;
    let view = store.run(&conversation.tenant, withdrawn).await.unwrap().unwrap();
    let commit = conversation.kit.commit(withdrawn, &view.state, stop(), START);
    assert_eq!(store.withdraw(conversation.agent(), commit).await.unwrap(), Withdrawn::Done);
    conversation.answer("one").await;
    conversation.enter().await;
    assert_eq!(conversation.context().await, texts(&["a", "b", "=one", "c"]));
    conversation.answer("two").await;
    conversation.enter().await;
    assert_eq!(conversation.context().await, texts(&["a", "b", "=one", "c", "=two", "d"]));
    conversation.kit.advance(&conversation.agent(), stop(), START).await;
    conversation.enter().await;
    assert_eq!(conversation.context().await, texts(&["a", "b", "=one", "c", "=two", "e"]), "the output of a stopped run is not added");
    conversation.answer("three").await;
    assert_eq!(conversation.all_items().await, texts(&["a", "b", "=one", "c", "=two", "e", "=three"]));
    assert!(!conversation.view().await.is_busy);
}

impl TestConversation {
    /// Enters the run that the agent is leased to.
    async fn enter(&self) {
        self.kit.advance(&self.agent(), Input::Entered(windlass_kernel::Opening::Ask), START).await;
    }
}

/// No run begins in another state of the conversation than the request was built on.
pub async fn a_run_for_an_outdated_conversation_is_refused(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store.clone(), &["a"]).await;
    let late = conversation.run("b", true).await;
    conversation.add(&["c"]).await;
    assert_eq!(store.enqueue(late).await.unwrap(), Enqueued::ConversationMoved);
    let late = conversation.run("b", true).await;
    let (first, _) = conversation.ask("d", false).await;
    assert_eq!(store.enqueue(late.clone()).await.unwrap(), Enqueued::ConversationMoved, "the request saw no active run");
    assert_eq!(conversation.ask("e", false).await.1, Enqueued::Busy, "one that does not wait is refused");
    let waiting = conversation.run("f", true).await;
    conversation.answer("one").await;
    assert_eq!(store.enqueue(waiting).await.unwrap(), Enqueued::ConversationMoved, "there is no run to wait for");
    let strange =
        NewRun { conversation: late.conversation.map(|asked| InConversation { id: conversation.kit.conversation_id(), ..asked }), ..late };
    assert_eq!(store.enqueue(strange).await.unwrap(), Enqueued::UnknownConversation);
    let mut again = conversation.run("d", false).await;
    again.run = first;
    assert!(matches!(store.enqueue(again).await.unwrap(), Enqueued::Duplicate { .. }), "the same request is known again");
    assert_eq!(conversation.all_items().await, texts(&["a", "c", "d", "=one"]));
}

/// The items that a run continues from do not change while it is active.
pub async fn during_a_run_no_item_is_added_or_removed(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store, &["a"]).await;
    conversation.ask("b", false).await;
    let item = conversation.first_item().await;
    let remove = ConversationChange::Remove { id: conversation.kit.box_id(), items: vec![item] };
    for change in [conversation.adding(&["c"]), remove, ConversationChange::End] {
        assert_eq!(conversation.change(change).await, Conversed::Busy);
    }
    let described = conversation.change(ConversationChange::Describe { metadata: "x".into() }).await;
    assert!(matches!(described, Conversed::Done(view) if view.metadata == "x" && view.is_busy));
    conversation.answer("one").await;
    assert_eq!((conversation.all_items().await, conversation.view().await.metadata), (texts(&["a", "b", "=one"]), "x".into()));
}

impl TestConversation {
    async fn first_item(&self) -> ItemId {
        let tail = self.view().await.tail.unwrap();
        self.store.range_items(&self.tenant, tail).await.unwrap()[0].id
    }
}

/// Removed items are still read by a run that began before, and by no later run.
pub async fn removed_items_are_not_read_by_later_runs(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store.clone(), &["a", "b"]).await;
    let (first, _) = conversation.ask("c", false).await;
    conversation.answer("one").await;
    let item = conversation.first_item().await;
    let removed = conversation.change(ConversationChange::Remove { id: conversation.kit.box_id(), items: vec![item] }).await;
    assert!(matches!(removed, Conversed::Done(view) if view.items == 3 && view.gone == [item]));
    assert_eq!(conversation.all_items().await, texts(&["b", "c", "=one"]));
    conversation.add(&["d"]).await;
    conversation.ask("e", false).await;
    assert_eq!(conversation.context().await, texts(&["b", "c", "=one", "d", "e"]));
    let before = store.run(&conversation.tenant, first).await.unwrap().unwrap().state.output;
    assert_eq!(conversation.read(before).await, texts(&["a", "b", "c", "=one"]));
}

/// A change whose answer was lost is sent again.
pub async fn a_repeated_change_changes_nothing(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store, &[]).await;
    let begin = ConversationChange::Begin { metadata: "other".into(), id: conversation.kit.box_id(), items: conversation.items(&["x"]) };
    assert!(matches!(conversation.change(begin).await, Conversed::Done(view) if view.metadata == "{}" && view.items == 0));
    let add = conversation.adding(&["a", "b"]);
    for _ in 0..2 {
        assert!(matches!(conversation.change(add.clone()).await, Conversed::Done(view) if view.items == 2 && view.version == 1));
    }
    let remove = ConversationChange::Remove { id: conversation.kit.box_id(), items: vec![conversation.first_item().await] };
    for _ in 0..2 {
        assert!(matches!(conversation.change(remove.clone()).await, Conversed::Done(view) if view.items == 1 && view.version == 2));
    }
    assert_eq!(conversation.all_items().await, texts(&["b"]));
}

/// A change that would exceed the limit changes nothing. Removed items count, because they are remembered.
pub async fn a_conversation_has_a_limit_of_items(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store, &["a", "b"]).await;
    let add = |input: &[&str]| ConversationChange::Add { id: conversation.kit.box_id(), items: conversation.items(input), items_max: 3 };
    assert_eq!(conversation.change(add(&["c", "d"])).await, Conversed::Full);
    assert!(matches!(conversation.change(add(&["c"])).await, Conversed::Done(_)));
    assert_eq!(conversation.change(add(&["d"])).await, Conversed::Full);
    conversation.change(ConversationChange::Remove { id: conversation.kit.box_id(), items: vec![conversation.first_item().await] }).await;
    assert_eq!(conversation.change(add(&["d"])).await, Conversed::Full);
    assert_eq!(conversation.all_items().await, texts(&["b", "c"]));
}

/// Runs outlive the conversation that they belonged to.
pub async fn a_deleted_conversation_is_unknown_and_its_runs_are_not(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store.clone(), &["a"]).await;
    let (run, _) = conversation.ask("b", false).await;
    conversation.answer("one").await;
    let next = conversation.run("c", true).await;
    assert!(matches!(conversation.change(ConversationChange::End).await, Conversed::Done(_)));
    assert_eq!(store.conversation(&conversation.tenant, conversation.id).await.unwrap(), None);
    assert_eq!(conversation.parts().await, Vec::new());
    assert_eq!(conversation.change(ConversationChange::End).await, Conversed::Unknown);
    assert_eq!(conversation.change(conversation.adding(&["d"])).await, Conversed::Unknown);
    assert_eq!(store.enqueue(next).await.unwrap(), Enqueued::UnknownConversation);
    assert!(store.head(&conversation.agent()).await.unwrap().is_none(), "its head is gone with it");
    let output = store.run(&conversation.tenant, run).await.unwrap().unwrap().state.output;
    assert_eq!(conversation.read(output).await, texts(&["a", "b", "=one"]));
}

/// Items that a run has read stay with that run.
pub async fn tm_05_items_that_only_a_conversation_held_go_with_it(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store.clone(), &["a", "b"]).await;
    let other = TestConversation::begin_with(store.clone(), Kit::starting_at(&store, 1_000), &["c"]).await;
    conversation.add(&["d"]).await;
    let unread = conversation.conversation_items().await;
    other.ask("e", false).await;
    other.answer("f").await;
    let read = other.conversation_items().await;
    other.add(&["g"]).await;
    let last = other.conversation_items().await.split_off(read.len());
    assert_eq!((unread.len(), read.len(), last.len()), (3, 3, 1));
    for conversation in [&conversation, &other] {
        assert!(matches!(conversation.change(ConversationChange::End).await, Conversed::Done(_)));
    }
    for (items, stays) in [(unread, false), (last, false), (read, true)] {
        for item in items {
            assert_eq!(store.item(&conversation.tenant, item).await.unwrap().is_some(), stays);
        }
    }
}

/// However many runs the conversation has, and whether they were queued or not.
pub async fn a_long_conversation_is_read_whole(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store, &[]).await;
    let mut wanted = Vec::new();
    for number in 0..40 {
        let (asked, waited) = (format!("q{number}"), format!("w{number}"));
        conversation.ask(&asked, false).await;
        conversation.ask(&waited, true).await;
        conversation.answer("one").await;
        conversation.enter().await;
        conversation.answer("two").await;
        wanted.extend(texts(&[asked.as_str(), "=one", waited.as_str(), "=two"]));
    }
    assert_eq!(conversation.all_items().await, wanted);
    assert_eq!((conversation.parts().await.len(), conversation.view().await.items), (80, 160));
}

/// Erasing a run removes nothing from the conversation.
pub async fn an_erased_run_stays_in_its_conversation(store: Arc<dyn Full>) {
    let conversation = TestConversation::begin(store.clone(), &[]).await;
    let (run, _) = conversation.ask("a", false).await;
    conversation.answer("one").await;
    store.erase(conversation.tenant.clone(), run).await.unwrap();
    assert_eq!(conversation.all_items().await, texts(&["a", "=one"]));
    conversation.ask("b", false).await;
    assert_eq!(conversation.context().await, texts(&["a", "=one", "b"]));
}

/// Of several requests the first one begins, and the refused ones read the conversation again. No item that was accepted is lost.
pub async fn of_racing_runs_one_begins_and_no_added_item_is_lost(store: Arc<dyn Full>) {
    let conversation = Arc::new(TestConversation::begin(store, &["a"]).await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let conversation = Arc::clone(&conversation);
        tasks.spawn(async move {
            let input = format!("r{number}");
            let (_, enqueued) = conversation.ask(&input, false).await;
            (matches!(enqueued, Enqueued::Entered { .. }), false)
        });
    }
    for number in 0..8 {
        let conversation = Arc::clone(&conversation);
        tasks.spawn(async move {
            let input = format!("i{number}");
            (false, matches!(conversation.change(conversation.adding(&[&input])).await, Conversed::Done(_)))
        });
    }
    let (mut begun, mut put_in) = (0, 0);
    while let Some(outcome) = tasks.join_next().await {
        let (is_begun, is_put_in) = outcome.unwrap();
        begun += usize::from(is_begun);
        put_in += usize::from(is_put_in);
    }
    assert!(begun <= 1, "{begun} runs at once");
    let is_busy = conversation.view().await.is_busy;
    assert_eq!(is_busy, begun == 1);
    if is_busy {
        assert_eq!(conversation.context().await.len(), 1 + put_in + begun, "the run knows all that was put in before it");
        conversation.answer("one").await;
    }
    assert_eq!(conversation.all_items().await.len(), 1 + put_in + 2 * begun);
}
