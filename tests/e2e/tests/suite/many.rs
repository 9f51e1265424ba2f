//! Many objects: lists come in pages, and all waits on a kind share one watch.

use std::time::Duration;

use e2e::{Told, World};
use futures::{StreamExt as _, stream};
use harness::{Call, Class, Outcome, Verb};
use standins::{Behaviour, kinds::HTTP_SOURCE};

/// More than two pages hold.
const MANY: usize = 520;

fn queries(run: &Outcome, verb: Verb, resource: &str) -> Vec<String> {
    let of_it = run.calls.iter().filter(|call| call.verb == verb && call.target.resource == resource);
    of_it.map(|call| call.query.clone()).collect()
}

#[tokio::test]
async fn a_list_comes_in_pages_and_all_waits_on_a_kind_share_one_watch() {
    let world = World::mesh(Behaviour { instant: true, ..Behaviour::default() }).await;
    let names: Vec<String> = (0..MANY).map(|number| format!("app-{number}")).collect();
    stream::iter(&names).for_each_concurrent(16, |name| world.applications(std::slice::from_ref(name))).await;
    let step = world.sources(&["--deadline", "200"]).bound(Duration::from_secs(300));
    let run = world.run(&step).await;
    run.exits(0).says(&format!("{MANY} created"));
    // And this executable is not even optimised.
    assert!(run.max_rss_kib < e2e::alone::MEMORY_KIB, "{} KiB at the most", run.max_rss_kib);
    assert_eq!(world.names(&HTTP_SOURCE).await.len(), MANY);
    let lists = queries(&run, Verb::List, "applications");
    assert!(lists.iter().all(|query| query.contains("limit=200")), "{lists:?}");
    // Once before it decides, and once when it looks again; each list has more pages than one.
    let more = lists.iter().filter(|query| query.contains("continue=")).count();
    assert_eq!(more, 2 * ((MANY - 1) / 200), "{lists:?}");
    for resource in ["httpsources", "channels", "services"] {
        // A watch that is begun anew, so that a dead one is noticed, goes on where the one before ended: only one that broke
        // lists once more.
        let begins = |call: &&Call| call.begins_watch() && call.target.resource == resource;
        let first_page = |call: &&Call| !call.query.contains("continue=");
        let begun = run.calls.iter().filter(begins).filter(first_page).count();
        assert!((1..=2).contains(&begun), "{begun} watches of {resource} were begun");
    }
    let reads = run.calls.iter().filter(|call| call.class == Class::Read && call.verb == Verb::Get).count();
    assert!(reads < 20, "{reads} objects were read one by one");
}
