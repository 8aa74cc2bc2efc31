//! Isolation: a task does not exist for other owners.

use attache_core::{ListQuery, Owner, Principal, Retention};
use attache_protocol::{ContextId, TaskState};

use crate::support::{TestStore, at, id, ids, status, task};

fn owner(tenant: Option<&str>, principal: Option<&str>) -> Owner {
    Owner {
        agent: None,
        tenant: tenant.map(Into::into),
        principal: principal.map_or(Principal::Anonymous, Principal::named),
    }
}

/// Owners that a faulty store could confuse.
fn owners() -> Vec<Owner> {
    vec![
        owner(None, None),
        owner(None, Some("")),
        owner(None, Some("anonymous")),
        owner(Some(""), None),
        owner(Some(""), Some("")),
        owner(Some("a"), None),
        owner(None, Some("a")),
        owner(Some("a"), Some("a")),
        owner(Some("a"), Some("b")),
        owner(Some("b"), Some("a")),
        owner(Some("A"), Some("a")),
        owner(Some("a/b"), Some("c")),
        owner(Some("a"), Some("b/c")),
        owner(Some("a\0"), Some("b")),
        owner(Some("a"), Some("\0b")),
        owner(None, Some("null")),
        owner(Some("null"), None),
    ]
}

pub async fn a_task_exists_for_its_owner_only(store: TestStore) {
    let (mine, other) = (owner(Some("x"), Some("ann")), owner(Some("x"), Some("bob")));
    store.make(task("t").of(&mine).key("k", 1)).await;
    for stranger in [&other, &owner(None, Some("ann")), &owner(Some("y"), Some("ann")), &Owner::default()] {
        assert!(store.load(stranger, &id("t")).await.unwrap().is_none());
        assert!(store.find_key(stranger, "k").await.unwrap().is_none());
        let (tasks, next, total) =
            store.page(stranger, &ListQuery { limit: 9, ..ListQuery::default() }).await;
        assert_eq!((tasks.len(), next, total), (0, None, 0));
    }
    assert!(store.load(&mine, &id("t")).await.unwrap().is_some());
}

pub async fn owners_are_compared_exactly_by_principal_and_tenant(store: TestStore) {
    for (number, owner) in owners().iter().enumerate() {
        store.make(task(&number.to_string()).of(owner).key("k", number as u8).lease(0)).await;
    }
    for (number, owner) in owners().iter().enumerate() {
        for other in 0..owners().len() {
            let found = store.load(owner, &id(&other.to_string())).await.unwrap();
            assert_eq!(found.is_some(), number == other, "{owner:?} {:?}", owners()[other]);
        }
        let (tasks, _, total) = store.page(owner, &ListQuery { limit: 99, ..ListQuery::default() }).await;
        assert_eq!((ids(&tasks), total), (vec![number.to_string()], 1), "{owner:?}");
        assert_eq!(store.find_key(owner, "k").await.unwrap().unwrap().task, id(&number.to_string()));
    }
    let abandoned = store.abandoned(None, at(0), 99).await.unwrap();
    assert_eq!(abandoned.len(), owners().len());
    for left in abandoned {
        let number: usize = left.task.task().id.as_str().parse().unwrap();
        assert_eq!(left.owner, owners()[number]);
    }
}

pub async fn agents_of_one_server_have_separate_tasks(store: TestStore) {
    let of = |agent: Option<&str>| Owner { agent: agent.map(Into::into), ..owner(None, Some("ann")) };
    let agents = [None, Some(""), Some("a"), Some("ann")];
    for (number, agent) in agents.into_iter().enumerate() {
        store.make(task(&number.to_string()).of(&of(agent)).key("k", number as u8).lease(0)).await;
    }
    for (number, agent) in agents.into_iter().enumerate() {
        let own = number.to_string();
        for other in 0..agents.len() {
            let found = store.load(&of(agent), &id(&other.to_string())).await.unwrap();
            assert_eq!(found.is_some(), number == other, "{agent:?}");
        }
        assert_eq!(ids(&store.walk(&of(agent), &ListQuery::default(), 9).await), [own.as_str()]);
        assert_eq!(store.find_key(&of(agent), "k").await.unwrap().unwrap().task, id(&own));
        // One that has many abandoned tasks does not hide those of another.
        let abandoned = store.abandoned(agent, at(0), 1).await.unwrap();
        let found: Vec<_> = abandoned.iter().map(|left| (left.task.task().id.clone(), &left.owner)).collect();
        assert_eq!(found, [(id(&own), &of(agent))]);
    }
}

pub async fn contexts_of_the_same_name_are_separate_for_each_owner(store: TestStore) {
    let (ann, bob) = (owner(None, Some("ann")), owner(Some("ann"), None));
    for (name, owner) in [("a1", &ann), ("b1", &bob), ("a2", &ann)] {
        store.make(task(name).of(owner).since(name.len() as i64)).await;
    }
    for (owner, count) in [(&ann, 2), (&bob, 1), (&Owner::default(), 0)] {
        let context = Some(ContextId::from("c"));
        let (tasks, _, total) =
            store.page(owner, &ListQuery { context, limit: 9, ..ListQuery::default() }).await;
        assert_eq!((tasks.len(), total), (count, count));
    }
}

pub async fn the_task_limit_applies_to_each_owner_separately(store: TestStore) {
    let (ann, bob) = (owner(None, Some("ann")), owner(Some("x"), Some("ann")));
    for number in 0..5 {
        let name = format!("a{number}");
        store.make(task(&name).of(&ann).then(status(&name, TaskState::Completed, number))).await;
    }
    store.make(task("b").of(&bob).then(status("b", TaskState::Completed, -9))).await;
    let retention = Retention::default().max_tasks(2);
    assert_eq!(store.prune(&retention, at(9), 99).await.unwrap(), 3);
    assert_eq!(ids(&store.walk(&ann, &ListQuery::default(), 9).await), ["a4", "a3"]);
    assert_eq!(ids(&store.walk(&bob, &ListQuery::default(), 9).await), ["b"]);
}
