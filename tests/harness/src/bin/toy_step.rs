//! A step as small as can be, for tests of the harness: it keeps all of a step's promises, or breaks one on request.
//!
//! In the namespace of `--namespace` it makes for every ConfigMap `old-X` a `new-X` and deletes `old-X`, recreates
//! `again`, and at last deletes `legacy` for good. `--bug` is one of:
//!
//! - `random-name`: a new object gets a new name in every run;
//! - `no-journal`: what was deleted is known to this process only;
//! - `no-undo`: a failed move is left as it is;
//! - `no-precondition`: a delete takes whatever bears the name when it arrives;
//! - `busy`: a second run writes its journal again;
//! - `quiet`: it writes its report only where a test has taken its patience away.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Parser;
use harness::{Api, Resource, gateway::DEADLINE};
use http::{Method, Request, StatusCode};
use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    namespace: String,
    #[arg(long)]
    deadline: f64,
    #[arg(long)]
    bug: Option<String>,
}

#[derive(Default)]
struct Journal {
    status: String,
    deaths: u64,
    /// Pre-images.
    items: Vec<Value>,
}

/// Why a call did not work out for good.
#[derive(Debug)]
struct Failed(String);

/// Where a run ended before its end.
enum Stop {
    /// The lock could not be had.
    Lock(Failed),
    /// Before the first move.
    Refused(Failed),
    /// In a move.
    Move(Failed),
    /// In a move that is not taken back.
    Beyond(Failed),
    /// Undone, on behalf of an earlier run.
    Undone,
    /// The undo could not be finished.
    NotUndone(Failed),
}

struct Toy {
    api: Api,
    namespace: String,
    bug: String,
    give_up: Mutex<Instant>,
    /// Whether it holds the lock.
    locked: AtomicBool,
    /// What this process has sent a write for. What it has not needs no undo.
    begun: Mutex<BTreeSet<String>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let read = Kubeconfig::read_from(std::env::var_os("KUBECONFIG").unwrap()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    let toy = Toy {
        api: Api::new(kube::Client::try_from(config).unwrap()),
        namespace: arguments.namespace,
        bug: arguments.bug.unwrap_or_default(),
        give_up: Mutex::new(Instant::now() + Duration::from_secs_f64(arguments.deadline)),
        locked: AtomicBool::new(false),
        begun: Mutex::default(),
    };
    let mut sigterm = signal(SignalKind::terminate()).unwrap();
    let (code, verdict) = tokio::select! {
        end = toy.attempt() => end,
        () = toy.renew() => unreachable!("it renews the lock for as long as it runs"),
        _ = sigterm.recv() => (143, "interrupted".to_owned()),
    };
    if !matches!(code, 1) {
        toy.unlock().await;
    }
    eprintln!("{verdict}");
    ExitCode::from(code)
}

impl Toy {
    /// Runs, and undoes what failed. The exit code and the verdict.
    async fn attempt(&self) -> (u8, String) {
        match self.run().await {
            Ok(()) => (0, "done".to_owned()),
            Err(Stop::Lock(why)) => (1, format!("stopped: {}", why.0)),
            Err(Stop::Refused(why)) => (3, format!("refused: {}", why.0)),
            Err(Stop::Beyond(why)) => (6, format!("past the point of no return: {}", why.0)),
            Err(Stop::Undone) => (4, "undone".to_owned()),
            Err(Stop::NotUndone(why)) => (5, format!("not undone: {}", why.0)),
            Err(Stop::Move(why)) => match self.undo(false).await {
                Ok(()) => (4, format!("undone after {}", why.0)),
                Err(more) => (5, format!("not undone after {}: {}", why.0, more.0)),
            },
        }
    }

    /// Renews the lock again and again. A renewal that fails harms nobody: nobody else is there.
    async fn renew(&self) {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if self.locked.load(Ordering::Relaxed) {
                let _ = self.hold_lock().await;
            }
        }
    }

    /// One call with retries: lost connections and 5xx until the deadline, 403 for a moment.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Value), Failed> {
        let started = Instant::now();
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        loop {
            let asked = self.ask(method.clone(), path, kind, body.as_ref()).await;
            // After the answer: that may have told that the deadline is now.
            let give_up = *self.give_up.lock().unwrap();
            let (until, why) = match asked {
                Ok((status, answer)) => match status.as_u16() {
                    403 => (started + Duration::from_millis(200), answer["message"].to_string()),
                    500.. => (give_up, answer["message"].to_string()),
                    422 => return Err(Failed(answer["message"].to_string())),
                    _ => return Ok((status, answer)),
                },
                Err(error) => (give_up, format!("{error:#}")),
            };
            if Instant::now() >= until {
                return Err(Failed(format!("{method} {path}: {why}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// One call, once.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let answer = self.api.client().send(request.body(bytes.into())?).await?;
        if answer.headers().contains_key(DEADLINE) {
            *self.give_up.lock().unwrap() = Instant::now();
        }
        let status = answer.status();
        let bytes = answer.into_body().collect_bytes().await?;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    fn path(&self, plural: &str, name: Option<&str>) -> String {
        let kind = match plural {
            "leases" => Resource::new("coordination.k8s.io", "v1", "leases"),
            plural => Resource::core(plural),
        };
        kind.path(Some(&self.namespace), name)
    }

    async fn get(&self, plural: &str, name: &str) -> Result<Option<Value>, Failed> {
        let (status, answer) = self.call(Method::GET, &self.path(plural, Some(name)), None).await?;
        Ok(status.is_success().then_some(answer))
    }

    /// Creates or replaces one of its own objects; a conflict with itself is read again.
    async fn put(&self, plural: &str, name: &str, content: Value) -> Result<(), Failed> {
        for _ in 0..5 {
            let mut object = content.clone();
            object["metadata"] = json!({"name": name});
            let (method, path) = match self.get(plural, name).await? {
                Some(there) => {
                    object["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
                    (Method::PUT, self.path(plural, Some(name)))
                }
                None => (Method::POST, self.path(plural, None)),
            };
            let (status, _) = self.call(method, &path, Some(object)).await?;
            if status.is_success() {
                return Ok(());
            }
        }
        Err(Failed(format!("{plural}/{name} changes all the time")))
    }

    /// Takes the lock, from whomever: whoever held it is dead. Says whether somebody did.
    async fn lock(&self) -> Result<bool, Failed> {
        let lease = self.get("leases", "belay-toy").await?.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        self.hold_lock().await?;
        self.locked.store(true, Ordering::Relaxed);
        Ok(!holder.is_empty())
    }

    async fn hold_lock(&self) -> Result<(), Failed> {
        let me = json!({"spec": {"holderIdentity": std::process::id().to_string()}});
        self.put("leases", "belay-toy", me).await
    }

    async fn unlock(&self) {
        *self.give_up.lock().unwrap() = Instant::now() + Duration::from_secs(3);
        if self.put("leases", "belay-toy", json!({"spec": {"holderIdentity": null}})).await.is_err() {
            eprintln!("the lock could not be released");
        }
    }

    async fn write_journal(&self, journal: &Journal) -> Result<(), Failed> {
        let Journal { status, deaths, items } = journal;
        let head = json!({"journals": [{"status": status, "deaths": deaths, "items": items}]});
        let data = json!({"head": ByteString(head.to_string().into_bytes())});
        self.put("secrets", "belay-toy", json!({"type": "belay.dev/journal", "data": data})).await
    }

    async fn read_journal(&self) -> Result<Journal, Failed> {
        let Some(secret) = self.get("secrets", "belay-toy").await? else { return Ok(Journal::default()) };
        let bytes: ByteString = serde_json::from_value(secret["data"]["head"].clone()).unwrap();
        let head: Value = serde_json::from_slice(&bytes.0).unwrap();
        let journal = &head["journals"][0];
        Ok(Journal {
            status: journal["status"].as_str().unwrap().to_owned(),
            deaths: journal["deaths"].as_u64().unwrap(),
            items: journal["items"].as_array().unwrap().clone(),
        })
    }

    async fn run(&self) -> Result<(), Stop> {
        self.call(Method::GET, "/apis", None).await.map_err(Stop::Refused)?;
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let question = json!({"spec": {"resourceAttributes": {"verb": "delete", "resource": "configmaps"}}});
        self.call(Method::POST, review, Some(question)).await.map_err(Stop::Refused)?;
        let from_the_dead = self.lock().await.map_err(Stop::Lock)?;
        let mut journal = self.read_journal().await.map_err(Stop::Refused)?;
        let is_open = journal.status == "open";
        if is_open && from_the_dead {
            journal.deaths += 1;
            self.write_journal(&journal).await.map_err(Stop::Refused)?;
        }
        if journal.status == "undoing" || (is_open && journal.deaths > 2) {
            self.undo(true).await.map_err(Stop::NotUndone)?;
            return Err(Stop::Undone);
        }
        let list =
            self.call(Method::GET, &self.path("configmaps", None), None).await.map_err(Stop::Refused)?.1;
        let live = list["items"].as_array().cloned().unwrap_or_default();
        let legacy = live.iter().any(|object| object["metadata"]["name"] == "legacy");
        if !is_open && !legacy && self.bug != "busy" {
            return self.report().await;
        }
        if !is_open || self.bug == "no-journal" {
            let items = live.into_iter().filter(|object| is_source(name_of(object))).collect();
            journal = Journal { status: "open".to_owned(), deaths: 0, items };
            self.write_journal(&journal).await.map_err(Stop::Refused)?;
        }
        for item in &journal.items {
            let moved = self.act(item).await;
            if moved.is_err() && self.bug == "no-undo" {
                return Err(Stop::Undone);
            }
            moved.map_err(Stop::Move)?;
        }
        self.call(Method::DELETE, &self.path("configmaps", Some("legacy")), None)
            .await
            .map_err(Stop::Beyond)?;
        "done".clone_into(&mut journal.status);
        self.write_journal(&journal).await.map_err(Stop::Lock)?;
        self.report().await
    }

    async fn report(&self) -> Result<(), Stop> {
        if self.bug == "quiet" && std::env::var_os("BELAY_TEST_PATIENCE").is_none() {
            return Ok(());
        }
        if self.put("configmaps", "belay-report-toy", json!({"data": {"summary": "done"}})).await.is_err() {
            eprintln!("the report could not be written");
        }
        Ok(())
    }

    async fn act(&self, item: &Value) -> Result<(), Failed> {
        let name = name_of(item);
        if let Some(rest) = name.strip_prefix("old-") {
            let random = format!("new-{rest}-{}", std::process::id());
            let new = if self.bug == "random-name" { random } else { format!("new-{rest}") };
            self.create(&new, &item["data"]).await?;
            self.delete(item).await
        } else {
            self.delete(item).await?;
            self.create(name, &item["data"]).await
        }
    }

    async fn create(&self, name: &str, data: &Value) -> Result<(), Failed> {
        if self.get("configmaps", name).await?.is_none() {
            self.begin(name);
            let object =
                json!({"metadata": {"name": name, "annotations": {"belay.dev/run": "1"}}, "data": data});
            self.call(Method::POST, &self.path("configmaps", None), Some(object)).await?;
        }
        Ok(())
    }

    fn begin(&self, name: &str) {
        self.begun.lock().unwrap().insert(name.to_owned());
    }

    /// Deletes the object that the pre-image is of, not one that came after it.
    async fn delete(&self, item: &Value) -> Result<(), Failed> {
        let name = name_of(item);
        let Some(there) = self.get("configmaps", name).await? else { return Ok(()) };
        if there["metadata"]["uid"] != item["metadata"]["uid"] {
            return Ok(());
        }
        self.begin(name);
        let options = if self.bug == "no-precondition" {
            json!({})
        } else {
            json!({"preconditions": {"uid": item["metadata"]["uid"]}})
        };
        self.call(Method::DELETE, &self.path("configmaps", Some(name)), Some(options)).await?;
        Ok(())
    }

    /// Takes back what this process has begun, or for an earlier one all that may have been.
    async fn undo(&self, for_another: bool) -> Result<(), Failed> {
        *self.give_up.lock().unwrap() = Instant::now() + Duration::from_secs(3);
        let mut journal = self.read_journal().await?;
        "undoing".clone_into(&mut journal.status);
        self.write_journal(&journal).await?;
        for item in journal.items.iter().rev() {
            let name = name_of(item);
            let touched = |name: &str| for_another || self.begun.lock().unwrap().contains(name);
            if touched(name) {
                self.bring_back(item).await?;
            }
            let made = name.replace("old-", "new-");
            if made != name && touched(&made) {
                self.call(Method::DELETE, &self.path("configmaps", Some(&made)), None).await?;
            }
        }
        "undone".clone_into(&mut journal.status);
        self.write_journal(&journal).await
    }

    async fn bring_back(&self, item: &Value) -> Result<(), Failed> {
        let name = name_of(item);
        match self.get("configmaps", name).await? {
            None => {
                let object = json!({"metadata": {"name": name}, "data": item["data"]});
                self.call(Method::POST, &self.path("configmaps", None), Some(object)).await?;
            }
            Some(there) if there["metadata"]["uid"] != item["metadata"]["uid"] => {
                let off = json!({"metadata": {"annotations": null}});
                self.call(Method::PATCH, &self.path("configmaps", Some(name)), Some(off)).await?;
            }
            Some(_) => {}
        }
        Ok(())
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_source(name: &str) -> bool {
    name.starts_with("old-") || name == "again"
}
