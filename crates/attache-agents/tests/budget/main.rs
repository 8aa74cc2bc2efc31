//! Budgets of callers, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use attache_agents::budget::{Budget, BudgetOptions};
use attache_core::{
    Agent, BoxAgent, Caller, ManualClock, MemoryStore, Owner, Principal, Reply, Service, Store, Turn,
    agent_fn,
};
use attache_protocol::{
    AgentCard, Error, ErrorKind, Message, Request, SendMessageRequest, Task, TaskState, Timestamp,
};

const DAY: i64 = 24 * 60 * 60 * 1000;

struct World {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(20_000 * DAY)));
        Self { store: Arc::new(MemoryStore::new()), clock }
    }

    fn budget(&self, agent: &str, change: impl FnOnce(&mut BudgetOptions)) -> Budget {
        let options = BudgetOptions::default().with(change);
        Budget::with_clock(options, self.store.clone(), agent, self.clock.clone())
    }

    fn serve(&self, agent: impl Agent) -> Service {
        let store: Arc<dyn Store> = self.store.clone();
        let card = AgentCard::new("A", "a");
        Service::with_clock(agent, store, card, Default::default(), self.clock.clone())
    }
}

/// An agent that works for a minute.
fn slow() -> BoxAgent {
    agent_fn(|turn: Turn| async move {
        turn.working("on it").await?;
        tokio::time::sleep(Duration::from_secs(60)).await;
        turn.complete().await
    })
    .boxed()
}

async fn send(service: &Service, name: &str) -> Result<Task, Error> {
    let owner = Owner { principal: Principal::named(name), ..Owner::default() };
    let caller = Caller { owner, ..Caller::default() };
    let request = SendMessageRequest { message: Message::user("m", "hi"), ..SendMessageRequest::default() };
    let reply = service.call(caller, Request::SendMessage(Box::new(request)), None).await?;
    let Reply::Sent(task, _) = reply else { panic!("not a task") };
    Ok(task.task().into_owned())
}

/// Lets tasks that were spawned run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_time_is_used_up_is_refused_until_the_next_period_and_others_are_not() {
    let world = World::new();
    let service =
        world.serve(world.budget("a", |budget| budget.time = Some(Duration::from_secs(90))).limit(slow()));
    assert_eq!(send(&service, "ann").await.unwrap().status.state, TaskState::Completed);
    settle().await;
    let second = send(&service, "ann").await.unwrap();
    assert_eq!(second.status.state, TaskState::Failed, "the second turn had half a minute");
    assert!(second.status.message.unwrap().text().contains("your budget for this agent is used up"));
    settle().await;
    let refused = send(&service, "ann").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
    assert!(refused.retry_after().is_some_and(|wait| wait <= Duration::from_secs(24 * 60 * 60)));
    assert_eq!(send(&service, "bob").await.unwrap().status.state, TaskState::Completed);
    world.clock.set(Timestamp::from_millis(20_001 * DAY));
    assert_eq!(send(&service, "ann").await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_renew_a_budget() {
    let world = World::new();
    let limited = || world.budget("a", |budget| budget.tokens = Some(10));
    for name in ["ann", "caller:anonymous"] {
        assert!(!limited().spend(&Principal::named(name), 10, Duration::ZERO).await.unwrap());
    }
    assert!(limited().spend(&Principal::named("bob"), 9, Duration::ZERO).await.unwrap());
    let budget = limited();
    budget.load().await.unwrap();
    let restarted = world.serve(budget.limit(slow()));
    for name in ["ann", "caller:anonymous"] {
        assert_eq!(send(&restarted, name).await.unwrap_err().kind(), ErrorKind::ResourceExhausted, "{name}");
    }
    assert_eq!(send(&restarted, "bob").await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_another_process_has_used_up_rejects_the_task() {
    let world = World::new();
    let limited = || world.budget("a", |budget| budget.tokens = Some(10));
    let service = world.serve(limited().limit(slow()));
    assert!(!limited().spend(&Principal::named("ann"), 10, Duration::ZERO).await.unwrap());
    assert_eq!(send(&service, "ann").await.unwrap().status.state, TaskState::Rejected);
    assert_eq!(send(&service, "ann").await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn turns_at_the_same_time_share_the_time_that_is_left() {
    let world = World::new();
    let service =
        world.serve(world.budget("a", |budget| budget.time = Some(Duration::from_secs(100))).limit(slow()));
    // Four turns of a minute each need four minutes together, and have 25 seconds each.
    let began = tokio::time::Instant::now();
    let four = futures::future::join_all((0..4).map(|_| send(&service, "ann"))).await;
    assert!(began.elapsed() < Duration::from_secs(26), "{:?}", began.elapsed());
    for task in four {
        let status = task.unwrap().status;
        assert_eq!(status.state, TaskState::Failed);
        assert!(status.message.unwrap().text().contains("your budget for this agent is used up"));
    }
    settle().await;
    assert_eq!(send(&service, "ann").await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
    // One turn has 100 seconds, a later one the rest while both run.
    let first = send(&service, "bob");
    let second = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        send(&service, "bob").await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().status.state, TaskState::Completed, "60 s and 30 s of the other one");
    assert_eq!(second.unwrap().status.state, TaskState::Failed, "it had 40 s");
}

#[tokio::test(start_paused = true)]
async fn all_turns_of_a_caller_end_when_one_of_them_uses_up_the_tokens() {
    let world = World::new();
    let budget = world.budget("a", |budget| budget.tokens = Some(10));
    let service = world.serve(budget.limit(slow()));
    let spends = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        budget.spend(&Principal::named("ann"), 11, Duration::ZERO).await.unwrap()
    };
    let (ann, bob, has_left) = tokio::join!(send(&service, "ann"), send(&service, "bob"), spends);
    assert!(!has_left);
    assert_eq!(ann.unwrap().status.state, TaskState::Failed);
    assert_eq!(bob.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn agents_have_separate_budgets_and_old_entries_are_removed() {
    let world = World::new();
    let ann = Principal::named("ann");
    let tokens = |agent: &str| world.budget(agent, |budget| budget.tokens = Some(10));
    assert!(!tokens("a").spend(&ann, 11, Duration::ZERO).await.unwrap());
    assert!(tokens("b").spend(&ann, 9, Duration::ZERO).await.unwrap());
    world.clock.set(Timestamp::from_millis(20_001 * DAY));
    let budget = tokens("a");
    for _ in 0..1_000 {
        budget.spend(&Principal::Anonymous, 0, Duration::ZERO).await.unwrap();
    }
    let keys = world.store.values().list("budget:a").await.unwrap();
    assert_eq!(keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["anonymous"]);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_canceled_turn_counts() {
    let world = World::new();
    let budget = world.budget("a", |budget| budget.time = Some(Duration::from_secs(10)));
    let forever = agent_fn(|turn: Turn| async move {
        turn.working("on it").await?;
        turn.cancelled().await;
        Ok(())
    });
    let service = world.serve(budget.limit(forever));
    assert_eq!(send(&service, "ann").await.unwrap().status.state, TaskState::Failed);
    settle().await;
    assert_eq!(send(&service, "ann").await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
}
