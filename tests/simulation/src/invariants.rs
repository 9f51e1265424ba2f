//! What must hold at every moment, whatever goes wrong. What does not is told to [`World::violated`].
//!
//! - Of each call that a process sends: [`only_the_holder_writes`], [`only_what_a_server_takes`].
//! - Of each write that lands, whoever sent it: [`broken_by_writes`], and in [`World`] that no other process holds the lock.
//! - Of each process that has ended: [`no_secret_is_told`], [`all_say_the_same`].

use std::{
    collections::BTreeSet,
    io::Read as _,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use belay_runtime::{
    journal::{self, Journal},
    lock::{Holder, holder_of},
    report,
};
use flate2::read::MultiGzDecoder;
use harness::{Action, Call, Class, Fault, Name, Verb};
use k8s_openapi::ByteString;
use serde_json::Value;

use crate::{process::Process, secrets::SECRET, server::Server, world::World};

/// The most that etcd takes in one request, and so the largest object that there can be.
pub const LARGEST_OBJECT: usize = 1_572_864;
/// The most objects that a step may ask for at once.
const LARGEST_PAGE: usize = 200;

/// The writes that a process sent while it did not hold the lock.
#[derive(Clone, Default)]
pub struct Unlocked(Arc<Mutex<BTreeSet<Name>>>);

impl Unlocked {
    /// Reports those of a process's calls that had an effect. A machine may fall asleep between the last look at the lock and
    /// the call: what it asks for then is refused, since what it has read is not so any more.
    pub fn report(&self, world: &World, process: &Process, calls: &[Call]) {
        let unlocked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls.iter().filter(|call| call.succeeded() && unlocked.contains(&call.named())) {
            world.violated(format!("{process:?} made {call} without the lock"));
        }
    }
}

/// Looks at every write whether its sender holds the lock when it sends it.
pub fn only_the_holder_writes(world: &World, process: &Process) -> (Fault, Unlocked) {
    let (world, me, unlocked) = (world.clone(), Holder::me(process), Unlocked::default());
    let found = unlocked.clone();
    let look = Fault::hook(move |call| {
        if call.is_write() && matches!(call.class, Class::Move | Class::Journal) {
            let is_mine = |lease: &Value| holder_of(lease).is_some_and(|holder| holder == me);
            let holds =
                world.with_server(|server| server.objects("coordination.k8s.io", "leases").any(is_mine));
            if !holds {
                found.0.lock().unwrap_or_else(PoisonError::into_inner).insert(call.named());
            }
        }
        Action::Forward
    });
    (look, unlocked)
}

/// Looks at every call whether it asks for no more than a page, and sends no more than a real API server stores.
pub fn only_what_a_server_takes(world: &World, process: &Process) -> Fault {
    let (world, who) = (world.clone(), process.who());
    Fault::hook(move |call| {
        if call.verb == Verb::List
            && !limit(&call.query).is_some_and(|limit| (1..=LARGEST_PAGE).contains(&limit))
        {
            world.violated(format!("{who} asks for more than {LARGEST_PAGE} objects at once: {call}"));
        }
        if call.body_size() > LARGEST_OBJECT {
            world.violated(format!(
                "{who} sends more than a server stores: {} bytes, {call}",
                call.body_size()
            ));
        }
        Action::Forward
    })
}

fn limit(query: &str) -> Option<usize> {
    query.split('&').find_map(|part| part.strip_prefix("limit="))?.parse().ok()
}

/// What the writes since a revision have broken: each journal can be read at every moment, and what everybody may read tells
/// no secret.
#[must_use]
pub fn broken_by_writes(server: &Server, since: u64) -> Vec<String> {
    let is_own = |object: &&Value| name(object).starts_with("belay-");
    let secrets = server.written_since("", "secrets", since).filter(is_own);
    let heads: BTreeSet<(&str, &str)> =
        secrets.map(|secret| (namespace(secret), head_of(name(secret)))).collect();
    let unreadable = heads.into_iter().filter_map(|(home, head)| {
        let error = readable(server, home, head).err()?;
        Some(format!("the journal in {home}/{head} cannot be read: {error:#}"))
    });
    let public = [("", "configmaps"), ("coordination.k8s.io", "leases")];
    let public = public.into_iter().flat_map(|(group, plural)| server.written_since(group, plural, since));
    let events = server.written_since("", "events", since);
    let telling = public.filter(is_own).chain(events).filter_map(|object| {
        let told = lines_with_secret(object);
        let kind = object["kind"].as_str().unwrap_or_default();
        let place = format!("{kind} {}/{}", namespace(object), name(object));
        (!told.is_empty()).then(|| format!("{place} tells a secret:\n{}", told.join("\n")))
    });
    unreadable.chain(telling).collect()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// The head of the journals to which a Secret belongs: itself, or, of a chunk, the one whose name it goes on with.
fn head_of(secret: &str) -> &str {
    let is_number = |end: &str| end.len() == 2 && end.bytes().all(|letter| letter.is_ascii_digit());
    secret.rsplit_once('-').filter(|(_, end)| is_number(end)).map_or(secret, |(head, _)| head)
}

/// Whether every journal that a head names can be read: also one that is closed, since a person may restore it.
fn readable(server: &Server, home: &str, head: &str) -> Result<()> {
    // Chunks come first: without a head they are nobody's.
    let Some(secret) = server.object("", "secrets", home, head) else { return Ok(()) };
    journal::journals(secret)?.iter().try_for_each(|journal| {
        let read = entries(server, home, journal);
        read.with_context(|| format!("run {} ({:?})", journal.run, journal.status))
    })
}

fn entries(server: &Server, home: &str, journal: &Journal) -> Result<()> {
    let mut reader = journal::Reader::default();
    for chunk in &journal.chunks {
        let secret = server.object("", "secrets", home, &chunk.name);
        reader.read(chunk, secret).with_context(|| chunk.name.clone())?;
    }
    let (named, read) =
        (journal.chunks.iter().map(|chunk| chunk.entries).sum::<usize>(), reader.entries.len());
    ensure!(read == named, "the head names {named} entries, and there are {read}");
    Ok(())
}

/// The lines of an object's texts, packed or not, that tell a secret.
fn lines_with_secret(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => lines_of(text),
        Value::Array(items) => items.iter().flat_map(lines_with_secret).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(field, value)| match value {
                Value::Object(packed) if field == "binaryData" => {
                    packed.values().filter_map(unpacked).flat_map(|text| lines_of(&text)).collect()
                }
                value => lines_with_secret(value),
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().filter(|line| line.contains(SECRET)).map(str::to_owned).collect()
}

fn unpacked(value: &Value) -> Option<String> {
    let bytes: ByteString = serde_json::from_value(value.clone()).ok()?;
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes.0.as_slice()).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Looks whether a process that has ended has told a secret, in its log or in its last words.
pub fn no_secret_is_told(world: &World, process: &Process) {
    let (log, last_words) = (process.log(), process.last_words().unwrap_or_default());
    for (place, text) in [("log", log), ("termination message", last_words)] {
        for line in lines_of(&text) {
            world.violated(format!("the {place} of {process:?} tells a secret: {line}"));
        }
    }
}

/// Looks whether a process that has ended by itself says the same everywhere (in its log, its termination message, its report
/// and its Event), and whether that is what its exit code means.
pub fn all_say_the_same(world: &World, process: &Process, code: i32, calls: &[Call]) {
    let log = process.log();
    let (level, verdict) = log.lines().next_back().and_then(|line| line.split_once(' ')).unwrap_or_default();
    let verdict = verdict.trim_start();
    let wanted = match code {
        0 => "INFO",
        75 | 143 => "WARN",
        _ => "ERROR",
    };
    let differs = |what: &str, says: &str| {
        world.violated(format!("{process:?} ended with exit {code}, and its {what} says: {says}"));
    };
    if level != wanted {
        differs("log", &format!("{level} {verdict}"));
    }
    if let Some(said) = process.last_words().filter(|said| said != verdict) {
        differs("termination message", &said);
    }
    // An operator's program reports on the step that it is about, in other words.
    let is_own = |step: &Value| step.as_str().is_some_and(|step| verdict.starts_with(&format!("{step}: ")));
    for call in calls.iter().filter(|call| call.is_write() && call.succeeded()) {
        let body = call.json().unwrap_or_default();
        if let (Class::Report, Some(stored)) = (call.class, report::parse(&body)) {
            let is_same = !is_own(&stored.report.step.as_str().into()) || stored.report.verdict == verdict;
            if i32::from(stored.report.result.exit_code()) != code || !is_same {
                differs("report", &stored.report.summary());
            }
        }
        if call.class == Class::Event {
            let is_same = !is_own(&body["reportingInstance"]) || body["note"] == verdict;
            if (body["type"] == "Normal") != (code == 0) || !is_same {
                differs("Event", &body.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Duration};

    use crash_tests::Fixture;
    use flate2::{Compression, write::GzEncoder};
    use harness::{At, Exit, Scenario, Worker, call::Fate};
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::{explore::in_world, secrets::WithSecrets, server::Request};

    const HOME: &str = "home-crash";

    /// What is reported of a world in which the fixture step died after its first move, and then something else happened.
    fn found_after_death(then: impl FnOnce(&mut Server, jiff::Timestamp)) -> Vec<String> {
        let mut found = Vec::new();
        let story = async |world: &World, worker: Worker| {
            let scenario = WithSecrets(Fixture);
            scenario.setup(&worker).await?;
            let standins = scenario.standins(&worker);
            scenario.fill(&worker).await?;
            let first_move = At::first(|call| call.class == Class::Move);
            let command = scenario.command(&worker)?;
            let run = worker.runner.run(&command, vec![Fault::KillAfter(first_move)]).await?;
            assert_eq!((run.exit, world.violations()), (Exit::Signal(9), Vec::new()));
            world.with_server(|server| then(server, world.now()));
            found = world.violations();
            drop(standins);
            Ok(())
        };
        let ended = in_world(1, story);
        assert_eq!(ended.is_err(), !found.is_empty(), "{ended:?}");
        found
    }

    fn secret(server: &Server, name: &str) -> Value {
        server.object("", "secrets", HOME, name).cloned().expect("the Secret")
    }

    fn replace(server: &mut Server, secret: Value, now: jiff::Timestamp) {
        server.controller_update("", "secrets", secret, now).expect("it is stored");
    }

    /// Replaces a head by one with another text.
    fn change_head(server: &mut Server, now: jiff::Timestamp, change: impl FnOnce(&mut Value)) {
        let mut secret = secret(server, "belay-fixture");
        let bytes: ByteString = serde_json::from_value(secret["data"]["head"].take()).expect("base64");
        let mut head = serde_json::from_slice(&bytes.0).expect("JSON");
        change(&mut head);
        secret["data"]["head"] = json!(ByteString(head.to_string().into_bytes()));
        replace(server, secret, now);
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(text.as_bytes()).expect("written");
        packer.finish().expect("packed")
    }

    #[track_caller]
    fn one(found: &[String], what: &str) {
        assert!(matches!(found, [only] if only.contains(what)), "{found:#?}");
    }

    #[test]
    fn a_chunk_of_an_open_journal_that_somebody_changes_or_deletes_is_reported() {
        let found = found_after_death(|server, now| {
            let mut chunk = secret(server, "belay-fixture-00");
            chunk["data"]["entries"] = json!(ByteString(gzip("other")));
            replace(server, chunk, now);
        });
        one(&found, "home-crash/belay-fixture cannot be read");
        one(&found, "(Open): belay-fixture-00: is not what was written");
        let found = found_after_death(|server, now| {
            server.controller_delete("", "secrets", HOME, "belay-fixture-00", now).expect("deleted");
        });
        one(&found, "(Open): belay-fixture-00: is missing");
    }

    #[test]
    fn a_head_in_another_format_or_with_other_entries_than_there_are_is_reported() {
        one(
            &found_after_death(|server, now| change_head(server, now, |head| head["format"] = 2.into())),
            "has format 2",
        );
        let found = found_after_death(|server, now| {
            change_head(server, now, |head| head["journals"][0]["chunks"][0]["entries"] = 99.into());
        });
        one(&found, "the head names 99 entries, and there are ");
    }

    #[test]
    fn entries_that_are_as_they_were_written_and_mean_nothing_are_reported() {
        let found = found_after_death(|server, now| {
            let bytes = gzip("{}\n");
            let sha256 = Call::new(&Method::POST, "/", "", bytes.clone().into(), Duration::ZERO).body_sha;
            let mut chunk = secret(server, "belay-fixture-00");
            chunk["metadata"]["name"] = "belay-fixture-31".into();
            chunk["metadata"]
                .as_object_mut()
                .expect("metadata")
                .retain(|field, _| field == "name" || field == "namespace");
            chunk["data"]["entries"] = json!(ByteString(bytes));
            server.controller_create("", "secrets", chunk, now).expect("created");
            change_head(server, now, |head| {
                head["journals"][0]["chunks"] =
                    json!([{"name": "belay-fixture-31", "sha256": sha256, "entries": 1}]);
            });
        });
        one(&found, "belay-fixture-31: holds an entry that is not readable");
    }

    #[test]
    fn other_secrets_and_chunks_that_no_head_names_are_nobodys_journal() {
        let found = found_after_death(|server, now| {
            for name in ["belay-fixture-30", "users", "belay-other-00"] {
                let secret = json!({"metadata": {"name": name, "namespace": HOME}, "data": {"x": "eA=="}});
                server.controller_create("", "secrets", secret, now).expect("created");
            }
        });
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn a_users_secret_is_in_the_journal_and_may_be_nowhere_else() {
        let found = found_after_death(|server, now| {
            let journal = secret(server, "belay-fixture-00");
            let entries = unpacked(&journal["data"]["entries"]).expect("entries");
            assert!(entries.contains(SECRET), "{entries}");
            let told = format!("changed password ({SECRET} → other)");
            let report = json!({
                "metadata": {"name": "belay-report-other", "namespace": HOME}, "data": {"summary": format!("done\n{told}")},
            });
            server.controller_create("", "configmaps", report, now).expect("created");
            let packed = json!({
                "metadata": {"name": "belay-report-packed", "namespace": HOME},
                "binaryData": {"outcomes": ByteString(gzip(&told))},
            });
            server.controller_create("", "configmaps", packed, now).expect("created");
            let event = json!({
                "metadata": {"name": "e", "namespace": HOME}, "message": told,
                "involvedObject": {"kind": "Job", "name": "j", "namespace": HOME},
            });
            server.controller_create("", "events", event, now).expect("created");
            // Objects of users may.
            let theirs =
                json!({"metadata": {"name": "users", "namespace": HOME}, "data": {"password": SECRET}});
            server.controller_create("", "configmaps", theirs, now).expect("created");
        });
        let places: Vec<&str> = found.iter().filter_map(|what| what.split(" tells").next()).collect();
        let reports = ["ConfigMap home-crash/belay-report-other", "ConfigMap home-crash/belay-report-packed"];
        assert_eq!(places, [reports[0], reports[1], "Event home-crash/e"], "{found:#?}");
        assert!(found[0].ends_with(":\nchanged password (xyzzy-pa55w0rd → other)"), "{found:#?}");
    }

    #[test]
    fn a_process_that_logs_a_secret_or_leaves_it_as_its_last_words_is_reported() {
        let mut found = Vec::new();
        let story = async |world: &World, _| {
            let process = world.processes.start(&world.node, std::collections::BTreeMap::new(), 1);
            process.scoped(async { log::info!("all is well") }).await;
            no_secret_is_told(world, &process);
            assert_eq!(world.violations(), Vec::<String>::new());
            process.scoped(async { log::warn!("the password is {SECRET}") }).await;
            belay_runtime::Host::leave(&*process, &format!("it was {SECRET}"))?;
            no_secret_is_told(world, &process);
            found = world.violations();
            Ok(())
        };
        assert!(in_world(1, story).is_err());
        assert_eq!(
            found,
            [
                "the log of process 100 on node-a tells a secret: WARN  the password is xyzzy-pa55w0rd",
                "the termination message of process 100 on node-a tells a secret: it was xyzzy-pa55w0rd",
            ]
        );
    }

    #[test]
    fn whoever_asks_for_too_much_or_sends_too_much_is_reported() {
        let mut found = Vec::new();
        let story = async |world: &World, _| {
            let process = world.processes.start(&world.node, std::collections::BTreeMap::new(), 1);
            let Fault::Hook(mut look) = only_what_a_server_takes(world, &process) else { panic!("a hook") };
            let mut asks = |method: Method, path: &str, query: &str, bytes: usize| {
                look(&Call::new(&method, path, query, vec![b' '; bytes].into(), Duration::ZERO));
            };
            let collection = "/api/v1/namespaces/n/configmaps";
            asks(Method::GET, collection, "limit=200", 0);
            asks(Method::GET, "/api/v1/namespaces/n/configmaps/a", "", 0);
            asks(Method::GET, collection, "watch=true", 0);
            asks(Method::POST, collection, "", LARGEST_OBJECT);
            assert_eq!(world.violations(), Vec::<String>::new());
            asks(Method::GET, collection, "", 0);
            asks(Method::GET, collection, "limit=201", 0);
            asks(Method::GET, collection, "resourceVersion=0&limit=0", 0);
            asks(Method::POST, collection, "", LARGEST_OBJECT + 1);
            found = world.violations();
            Ok(())
        };
        assert!(in_world(1, story).is_err());
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(
            found[..3]
                .iter()
                .all(|what| what.starts_with("pid 100 asks for more than 200 objects at once: ")),
            "{found:#?}"
        );
        assert!(found[3].starts_with("pid 100 sends more than a server stores: 1572865 bytes"), "{found:#?}");
    }

    #[test]
    fn a_write_without_the_lock_is_reported_if_it_succeeds() {
        let mut found = Vec::new();
        let story = async |world: &World, _| {
            let process = world.processes.start(&world.node, std::collections::BTreeMap::new(), 1);
            let (look, unlocked) = only_the_holder_writes(world, &process);
            let Fault::Hook(mut look) = look else { panic!("a hook") };
            let path = "/api/v1/namespaces/default/configmaps/a";
            let mut call = Call::new(&Method::DELETE, path, "", bytes::Bytes::new(), Duration::ZERO);
            call.fate = Fate::Answered;
            look(&call);
            call.status = Some(409);
            unlocked.report(world, &process, std::slice::from_ref(&call));
            assert_eq!(world.violations(), Vec::<String>::new());
            call.status = Some(200);
            unlocked.report(world, &process, std::slice::from_ref(&call));
            found = world.violations();
            Ok(())
        };
        assert!(in_world(1, story).is_err());
        one(&found, "without the lock");
    }

    #[test]
    fn a_write_that_takes_effect_while_another_process_holds_the_lock_is_reported() {
        let mut found = Vec::new();
        let story = async |world: &World, _| {
            let [one, other] = [1, 2]
                .map(|seed| world.processes.start(&world.node, std::collections::BTreeMap::new(), seed));
            for process in [&one, &other] {
                world.meets(&process.who(), Holder::me(&**process));
            }
            let write = |name: &str| {
                let body = json!({"metadata": {"name": name}}).to_string().into();
                let path = "/api/v1/namespaces/default/configmaps";
                let request = Request { body, ..Request::new(Method::POST, path) };
                assert!(world.ask(&one.who(), request).is_some());
            };
            write("nobody-holds-it");
            let held = json!({
                "metadata": {"name": "belay-f", "namespace": "default"},
                "spec": {"holderIdentity": Holder::me(&*other).to_string()},
            });
            let now = world.now();
            let made = world
                .with_server(|server| server.controller_create("coordination.k8s.io", "leases", held, now));
            made.expect("a Lease");
            assert_eq!(world.violations(), Vec::<String>::new());
            write("while-another-holds-it");
            one.kill();
            write("by-one-that-is-dead");
            found = world.violations();
            Ok(())
        };
        assert!(in_world(1, story).is_err());
        one(&found, "while pid 101 held the lock");
    }

    #[test]
    fn a_process_whose_words_do_not_fit_its_exit_code_is_reported() {
        let mut found = Vec::new();
        let story = async |world: &World, _| {
            let process = world.processes.start(&world.node, std::collections::BTreeMap::new(), 1);
            process.scoped(async { log::error!("step: failed, and all is as it was") }).await;
            let event = |kind: &str, note: &str| {
                let body = json!({"type": kind, "note": note, "reportingInstance": "step"}).to_string();
                let path = "/apis/events.k8s.io/v1/namespaces/default/events";
                let mut call = Call::new(&Method::POST, path, "", body.into(), Duration::ZERO);
                (call.fate, call.status) = (Fate::Answered, Some(201));
                call
            };
            let fits = event("Warning", "step: failed, and all is as it was");
            all_say_the_same(world, &process, 4, &[fits]);
            assert_eq!(world.violations(), Vec::<String>::new());
            let calls = [
                event("Normal", "step: failed, and all is as it was"),
                event("Warning", "step: failed, and a person must look"),
            ];
            all_say_the_same(world, &process, 4, &calls);
            all_say_the_same(world, &process, 0, &[]);
            found = world.violations();
            Ok(())
        };
        assert!(in_world(1, story).is_err());
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found[2].contains("ended with exit 0, and its log says: ERROR"), "{found:#?}");
    }

    #[test]
    fn the_head_of_a_chunk_is_the_name_that_it_goes_on_with() {
        for (name, head) in
            [("belay-a-b", "belay-a-b"), ("belay-a-b-07", "belay-a-b"), ("belay-a-1", "belay-a-1")]
        {
            assert_eq!(head_of(name), head);
        }
    }
}
