//! The lock: a Lease per family in its home. Two runs of one family never write at the same time.

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use http::Method;
use serde_json::{Value, json};
use tokio::{task::AbortHandle, time::Instant};

use crate::{
    clock::Clock,
    cluster::{Answer, Cluster, Failure, Halt, Missed, Mode, Precondition},
    host::{Host, Life, Process},
    object::{ObjectRef, kinds, resource_version, text, uid},
    plan::Propagation,
    step::Meta,
};

/// How long a Lease counts after its last renewal.
const LASTS: Duration = Duration::from_secs(15);
/// How often it is renewed: three tries before it has run out.
const RENEWED: Duration = Duration::from_secs(4);
/// Without a renewal for this long, writes are held back until it is sure again whose the lock is.
const UNSURE: Duration = Duration::from_secs(10);
/// How long 403 on the Lease may last: Helm re-creates RBAC under a running pod, and that passes.
const FORBIDDEN_MAY_PASS: Duration = Duration::from_secs(15);
/// How long a run that made a home waits for another that made one at the same moment to give way.
const GIVES_WAY: Duration = Duration::from_secs(10);

/// Says whose Lease it is; a Lease without it makes no home.
const FAMILY: &str = "belay.dev/family";

/// Says on the Lease what its holder is doing: a step's name, or an operation's words.
const DOING: &str = "belay.dev/doing";

/// The Lease of a family.
#[must_use]
pub fn name(family: &str) -> String {
    format!("belay-{family}")
}

/// Who holds, or wants, the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid: names come back, uids do not.
        uid: String,
        /// Which process in it: whoever is let in by `kubectl exec` is another one. Older versions did not write it.
        process: Option<Box<Process>>,
    },
    /// A process outside the cluster.
    Process {
        /// On which host; only for people, since two machines may bear one name.
        host: String,
        /// Which one there.
        process: Process,
    },
    /// Something that another version wrote.
    Unknown(String),
}

impl Holder {
    /// This process.
    #[must_use]
    pub fn me(host: &dyn Host) -> Self {
        let process = host.process();
        let of_pod =
            ["BELAY_POD_NAMESPACE", "BELAY_POD_NAME", "BELAY_POD_UID"].map(|name| host.variable(name));
        match of_pod {
            [Some(namespace), Some(name), Some(uid)] => {
                Self::Pod { namespace, name, uid, process: Some(Box::new(process)) }
            }
            _ => Self::Process { host: host.name(), process },
        }
    }

    fn parse(written: &str) -> Self {
        let unknown = || Self::Unknown(written.to_owned());
        match written.split('/').collect::<Vec<_>>()[..] {
            ["pod", namespace, name, uid, ref process @ ..] => {
                let of = |process| Self::Pod {
                    namespace: namespace.into(),
                    name: name.into(),
                    uid: uid.into(),
                    process,
                };
                if process.is_empty() {
                    return of(None);
                }
                Process::parse(process).map_or_else(unknown, |process| of(Some(Box::new(process))))
            }
            ["process", host, ref process @ ..] => Process::parse(process)
                .map_or_else(unknown, |process| Self::Process { host: host.into(), process }),
            _ => unknown(),
        }
    }

    /// As it is written into the Lease: the same for no other process.
    fn written(&self) -> String {
        match self {
            Self::Pod { process: Some(process), .. } => format!("{self}/{process}"),
            _ => self.to_string(),
        }
    }

    /// Whether it is in the pod of this process, which then cannot tell by the pod whether it runs.
    fn is_in(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Pod { uid, .. }, Self::Pod { uid: other, .. }) if uid == other)
    }
}

/// For people: of a pod, its process says nothing to them.
impl std::fmt::Display for Holder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod { namespace, name, uid, .. } => write!(out, "pod/{namespace}/{name}/{uid}"),
            Self::Process { host, process } => write!(out, "process/{host}/{process}"),
            Self::Unknown(written) => out.write_str(written),
        }
    }
}

/// Looks whether a holder still runs.
pub async fn life(cluster: &Cluster, holder: &Holder) -> Result<Life, Failure> {
    let host = cluster.host();
    match holder {
        // A second process in our own pod, or an earlier container of it.
        Holder::Pod { process: Some(process), .. } if holder.is_in(&Holder::me(host)) => {
            Ok(host.life(process))
        }
        Holder::Pod { namespace, name, uid: wanted, .. } => {
            match cluster.get(&kinds::POD.object(namespace, name)).await {
                Ok(None) => Ok(Life::Dead),
                Ok(Some(pod)) if uid(&pod) != wanted => Ok(Life::Dead),
                Ok(Some(pod)) => match text(&pod, "/status/phase") {
                    Some("Succeeded" | "Failed") => Ok(Life::Dead),
                    _ => Ok(Life::Alive),
                },
                Err(Failure::Refused { .. }) => Ok(Life::Unknown),
                Err(failure) => Err(failure),
            }
        }
        Holder::Process { process, .. } => Ok(host.life(process)),
        Holder::Unknown(_) => Ok(Life::Unknown),
    }
}

/// Why the lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum NotLocked {
    /// Somebody else has it.
    #[error("not now: {holder} holds the lock {lease} and is at work. Try again when it has finished")]
    Held {
        /// Who.
        holder: String,
        /// The Lease.
        lease: String,
    },
    /// It can't be had in this home: the family lives elsewhere, or there is no such namespace.
    #[error("{0}")]
    WrongHome(String),
    /// It could not be asked for.
    #[error(transparent)]
    Call(#[from] Failure),
}

/// The lock, held. Renewed in the background until it is released.
pub struct Lock {
    cluster: Arc<Cluster>,
    object: ObjectRef,
    me: String,
    renewal: AbortHandle,
    /// Whether it was taken from a run that died.
    pub from_the_dead: bool,
}

/// The Lease of a family as it stands.
#[must_use]
pub fn lease(meta_family: &str, home: &str) -> ObjectRef {
    kinds::LEASE.object(home, name(meta_family))
}

/// Whether a Lease says that its namespace is the home of a family.
fn makes_home(lease: &Value) -> bool {
    lease.pointer("/metadata/labels").is_some_and(|labels| labels.get(FAMILY).is_some())
}

/// Whether a namespace is the home of a family.
pub async fn is_home(cluster: &Cluster, family: &str, namespace: &str) -> Result<bool, Failure> {
    Ok(cluster.get(&lease(family, namespace)).await?.as_ref().is_some_and(makes_home))
}

/// Who holds a Lease, if anybody.
#[must_use]
pub fn holder_of(lease: &Value) -> Option<Holder> {
    text(lease, "/spec/holderIdentity").filter(|holder| !holder.is_empty()).map(Holder::parse)
}

/// Who is at work, as the Lease says.
#[derive(Clone, Debug)]
pub struct AtWork {
    /// Who.
    pub holder: Holder,
    /// Since when it has the lock.
    pub since: String,
    /// When it said last that it is there.
    pub renewed: String,
    /// What it does: a step's name, or an operation's words. Older versions did not say.
    pub doing: Option<String>,
    /// Whether it still runs.
    pub life: Life,
}

/// Looks who holds the lock of a family, and whether it lives.
pub async fn at_work(cluster: &Cluster, family: &str, home: &str) -> Result<Option<AtWork>, Failure> {
    let Some(found) = cluster.get(&lease(family, home)).await? else { return Ok(None) };
    let Some(holder) = holder_of(&found) else { return Ok(None) };
    let said = |pointer: &str| text(&found, pointer).unwrap_or_default().to_owned();
    let annotations = found.pointer("/metadata/annotations");
    Ok(Some(AtWork {
        life: life(cluster, &holder).await?,
        holder,
        since: said("/spec/acquireTime"),
        renewed: said("/spec/renewTime"),
        doing: annotations.and_then(|all| all.get(DOING)?.as_str()).map(str::to_owned),
    }))
}

/// What the lock is taken for.
#[derive(Clone, Debug)]
pub struct Errand {
    /// In a few words; a step says its name.
    pub doing: String,
    /// Until when to wait for it.
    pub until: Instant,
    /// Whether a holder that is alive is waited for too, or only one of which nothing can be known.
    pub waits_for_the_living: bool,
}

/// Refuses when the family has a home elsewhere on this cluster: two homes are two locks.
pub async fn refuse_second_home(cluster: &Cluster, meta: &Meta, home: &str) -> Result<(), NotLocked> {
    match other_homes(cluster, meta, home).await?.first() {
        None => Ok(()),
        Some(other) => Err(second_home(meta, other)),
    }
}

/// The namespaces besides this one in which the family has a Lease.
async fn other_homes(cluster: &Cluster, meta: &Meta, home: &str) -> Result<Vec<String>, Failure> {
    let mut elsewhere = Vec::new();
    let selector = format!("{FAMILY}={}", meta.family);
    cluster
        .list(&kinds::LEASE, None, Some(&selector), |lease| match lease {
            Some(lease) => elsewhere.extend(
                text(&lease, "/metadata/namespace").filter(|namespace| *namespace != home).map(str::to_owned),
            ),
            None => elsewhere.clear(),
        })
        .await?;
    Ok(elsewhere)
}

fn second_home(meta: &Meta, other: &str) -> NotLocked {
    NotLocked::WrongHome(format!(
        "the family {family} already has its home in namespace {other}: two homes would be two locks. Use --home \
         {other}, or, if nothing is left there to undo, remove the old home: kubectl -n {other} delete lease {lease}",
        family = meta.family,
        lease = name(meta.family),
    ))
}

impl Lock {
    /// Takes the lock for a run of a step, waiting until `until` for a live holder.
    pub async fn take(
        cluster: &Arc<Cluster>,
        meta: &Meta,
        home: &str,
        until: Instant,
    ) -> Result<Self, NotLocked> {
        let errand = Errand { doing: meta.name.to_owned(), until, waits_for_the_living: true };
        Self::take_for(cluster, meta, home, errand).await
    }

    /// Takes the lock.
    pub async fn take_for(
        cluster: &Arc<Cluster>,
        meta: &Meta,
        home: &str,
        errand: Errand,
    ) -> Result<Self, NotLocked> {
        let clock = cluster.clock();
        let object = lease(meta.family, home);
        let me = Holder::me(cluster.host());
        let mine = Claim { family: meta.family, holder: me.written(), doing: errand.doing };
        let mut unchanged: Option<(String, Instant)> = None;
        let mut said = false;
        loop {
            let found = read(cluster, &object).await?;
            let holder = found.as_ref().and_then(holder_of);
            let life = match &holder {
                None => Life::Dead,
                Some(holder) if *holder == me => Life::Dead,
                Some(holder) => life(cluster, holder).await?,
            };
            // With nothing known of the holder, only our own clock counts: its clock may be wrong.
            let version = found.as_ref().map(resource_version).unwrap_or_default().to_owned();
            let expired = match &unchanged {
                Some((seen, since)) if *seen == version => clock.since(*since) >= LASTS,
                _ => {
                    unchanged = Some((version, clock.now()));
                    false
                }
            };
            if life == Life::Dead || (life == Life::Unknown && expired) {
                // Others count from when it landed, which may have been long before its answer came.
                let asked = clock.since_boot();
                match write(cluster, &object, &mine, found.as_ref()).await {
                    Ok(_) => {
                        let from_the_dead = holder.as_ref().is_some_and(|holder| *holder != me);
                        if let (true, Some(holder)) = (from_the_dead, &holder) {
                            log::warn!(
                                "took the lock over from {holder}, which has ended without releasing it"
                            );
                        }
                        let me = mine.holder.clone();
                        let renewal =
                            cluster.host().spawn(renew(cluster.clone(), object.clone(), mine, asked).boxed());
                        let lock = Self { cluster: cluster.clone(), object, me, renewal, from_the_dead };
                        let was_home = found.as_ref().is_some_and(makes_home);
                        return if was_home { Ok(lock) } else { lock.in_the_only_home(meta, home).await };
                    }
                    Err(failure) if failure.is_conflict() || failure.is_already_exists() => continue,
                    Err(failure) if failure.is_not_found(home) => {
                        return Err(NotLocked::WrongHome(format!(
                            "the family's home, namespace {home}, does not exist: create it, or name another with \
                             --home"
                        )));
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
            let holder = holder.map(|holder| holder.to_string()).unwrap_or_default();
            let waits = life == Life::Unknown || errand.waits_for_the_living;
            if !waits || clock.now() >= errand.until {
                return Err(NotLocked::Held { holder, lease: object.to_string() });
            }
            if !said {
                log::info!("waiting for the lock {object}: {holder} holds it");
                said = true;
            }
            tokio::select! {
                biased;
                halt = cluster.wait_halted() => return Err(Failure::Halted(halt).into()),
                () = clock.sleep(clock.patience(Duration::from_secs(1))) => {}
            }
        }
    }

    /// Two first runs with two homes may both have looked for another before either had made its own. So whoever made one
    /// looks again. Of two, the home whose name comes later gives way at once, and the other goes on when it has. One that
    /// does not give way has looked before ours was there, and is at work: then we do.
    async fn in_the_only_home(self, meta: &Meta, home: &str) -> Result<Self, NotLocked> {
        let clock = self.cluster.clock().clone();
        let until = clock.now() + GIVES_WAY;
        loop {
            let why_not = match other_homes(&self.cluster, meta, home).await {
                Ok(others) => match others.first() {
                    None => return Ok(self),
                    Some(other) if other.as_str() > home && clock.now() < until => None,
                    Some(other) => Some(second_home(meta, other)),
                },
                // Nobody with this account could look before, either, and it went on.
                Err(failure) if failure.is_forbidden() => return Ok(self),
                Err(failure) => Some(failure.into()),
            };
            if let Some(why_not) = why_not {
                if let Err(failure) = self.give_back(false).await {
                    log::warn!("the lock in namespace {home} could not be given back: {failure}");
                }
                return Err(why_not);
            }
            // A halt is met by the next look.
            clock.sleep(clock.patience(Duration::from_millis(500))).await;
        }
    }

    /// Gives the lock back. Later runs see that nobody died.
    pub async fn release(self) -> Result<(), Failure> {
        self.give_back(true).await
    }

    async fn give_back(self, stays_home: bool) -> Result<(), Failure> {
        self.renewal.abort();
        for _ in 0..3 {
            let Some(mut found) = self.held().await? else { return Ok(()) };
            found["spec"]["holderIdentity"] = "".into();
            if !stays_home {
                found["metadata"]["labels"] = json!({});
            }
            match once(&self.cluster, Method::PUT, self.object.path(), Some(&found)).await {
                Err(failure) if failure.is_conflict() => {}
                other => return other.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Gives the lock back for good, and takes its Lease away. Returns whether that is so: somebody may have it by now.
    pub async fn remove(self) -> Result<bool, Failure> {
        self.renewal.abort();
        for _ in 0..3 {
            let Some(found) = self.held().await? else { return Ok(false) };
            let precondition = Precondition {
                uid: uid(&found).to_owned(),
                resource_version: Some(resource_version(&found).to_owned()),
            };
            let gone = self.cluster.delete(&self.object, &precondition, Propagation::Background, Mode::Real);
            match gone.await {
                Err(failure) if failure.is_conflict() => {}
                Err(failure) if failure.is_not_found(&self.object.name) => return Ok(false),
                other => return other.map(|_| true),
            }
        }
        Ok(false)
    }

    /// The Lease, while it is ours.
    async fn held(&self) -> Result<Option<Value>, Failure> {
        let found = read(&self.cluster, &self.object).await?;
        Ok(found.filter(|found| text(found, "/spec/holderIdentity") == Some(&self.me)))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// What this process writes into the Lease.
struct Claim {
    family: &'static str,
    holder: String,
    doing: String,
}

async fn renew(cluster: Arc<Cluster>, object: ObjectRef, mine: Claim, mut renewed: Duration) {
    let clock = cluster.clock();
    cluster.sure_until(Some(renewed + UNSURE));
    let mut forbidden: Option<Instant> = None;
    loop {
        let is_late = clock.since_boot().saturating_sub(renewed) > RENEWED;
        clock.sleep(if is_late { Duration::from_secs(1) } else { RENEWED }).await;
        let asked = clock.since_boot();
        let result = async {
            let found = cluster.unguarded(Method::GET, object.path(), None).await?;
            if text(&found, "/spec/holderIdentity") != Some(mine.holder.as_str()) {
                let now = text(&found, "/spec/holderIdentity").unwrap_or_default();
                return Ok(Some(format!("{object} is now held by '{now}'")));
            }
            let body = body(clock, &object, &mine, Some(&found));
            cluster.unguarded(Method::PUT, object.path(), Some(&body)).await.map(|_| None)
        }
        .await;
        match result {
            Ok(None) => {
                renewed = asked;
                forbidden = None;
                cluster.sure_until(Some(renewed + UNSURE));
                cluster.pause(false);
            }
            Ok(Some(lost)) => return cluster.halt(Halt::LockLost(lost)),
            Err(Missed::Answered(answer)) if answer.code == 401 => {
                return cluster.halt(Halt::Unauthorized(answer.message));
            }
            // Somebody wrote between our read and our write: the next read tells who.
            Err(Missed::Answered(answer)) if answer.code == 409 => {}
            Err(Missed::Answered(answer)) if lasting(clock, &answer, &mut forbidden) => {
                return cluster.halt(Halt::LockLost(format!("{object} cannot be renewed: {answer}")));
            }
            Err(missed) => log::debug!("the lock {object} was not renewed: {missed:?}"),
        }
        if clock.since_boot().saturating_sub(renewed) >= UNSURE {
            cluster.pause(true);
        }
    }
}

/// Whether an answer to a Lease call means that it will not get better.
fn lasting(clock: &Clock, answer: &Answer, forbidden: &mut Option<Instant>) -> bool {
    match answer.code {
        403 => {
            let since = *forbidden.get_or_insert_with(|| clock.now());
            clock.since(since) >= clock.patience(FORBIDDEN_MAY_PASS)
        }
        408 | 429 | 500..=504 => false,
        _ => true,
    }
}

/// A Lease call with retries of its own: the lock must get through when other calls may not, and its failure is not
/// a failure of the step.
async fn once(
    cluster: &Cluster,
    method: Method,
    path: String,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    let call = format!("{method} {path}");
    let mut forbidden = None;
    let mut tries = 0;
    // After the deadline a release still deserves a moment, not more.
    let clock = cluster.clock();
    let until = cluster.deadline().max(clock.now() + Duration::from_secs(5));
    loop {
        tries += 1;
        let last = match cluster.unguarded(method.clone(), path.clone(), body).await {
            Ok(value) => return Ok(value),
            Err(Missed::Answered(answer)) if answer.code == 401 => {
                return Err(Failure::Halted(Halt::Unauthorized(answer.message)));
            }
            Err(Missed::Answered(answer)) if lasting(clock, &answer, &mut forbidden) => {
                return Err(Failure::Refused { call, answer });
            }
            Err(Missed::Answered(answer)) => answer.to_string(),
            Err(Missed::Lost(error)) => error,
        };
        if clock.now() + Duration::from_secs(1) >= until {
            return Err(Failure::OutOfTime { call, tries, last });
        }
        clock.sleep(clock.patience(Duration::from_millis(500))).await;
    }
}

async fn read(cluster: &Cluster, object: &ObjectRef) -> Result<Option<Value>, Failure> {
    match once(cluster, Method::GET, object.path(), None).await {
        Ok(lease) => Ok(Some(lease)),
        Err(failure) if failure.is_not_found(&object.name) => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn write(
    cluster: &Cluster,
    object: &ObjectRef,
    mine: &Claim,
    found: Option<&Value>,
) -> Result<Value, Failure> {
    let body = body(cluster.clock(), object, mine, found);
    if found.is_some() {
        once(cluster, Method::PUT, object.path(), Some(&body)).await
    } else {
        let path = object.kind.collection_path(object.namespace.as_deref());
        once(cluster, Method::POST, path, Some(&body)).await
    }
}

fn body(clock: &Clock, object: &ObjectRef, mine: &Claim, found: Option<&Value>) -> Value {
    let holder = mine.holder.as_str();
    let now = clock.timestamp_micros();
    let same = found.and_then(|lease| text(lease, "/spec/holderIdentity")) == Some(holder);
    let acquired = found.and_then(|lease| text(lease, "/spec/acquireTime")).filter(|_| same).unwrap_or(&now);
    let transitions = found
        .and_then(|lease| lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64))
        .map_or(0, |times| if same { times } else { times + 1 });
    let mut body = object.manifest();
    body["metadata"]["labels"] = json!({ FAMILY: mine.family });
    body["metadata"]["annotations"] = json!({ DOING: mine.doing });
    if let Some(version) = found.and_then(|lease| text(lease, "/metadata/resourceVersion")) {
        body["metadata"]["resourceVersion"] = version.into();
    }
    body["spec"] = json!({
        "holderIdentity": holder, "leaseDurationSeconds": LASTS.as_secs(), "leaseTransitions": transitions,
        "acquireTime": acquired, "renewTime": now,
    });
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisMachine;

    #[test]
    fn a_holder_reads_back_as_it_was_written() {
        let host = ThisMachine::host();
        for holder in [
            pod("u", None),
            pod("u", Some(host.process())),
            Holder::Process {
                host: "h".into(),
                process: Process { pid: 7, started: "99".into(), place: None },
            },
            Holder::me(&*host),
            Holder::Unknown("somebody".into()),
            Holder::Unknown("process/h/7/99/boot".into()),
            Holder::Unknown("pod/ns/p-1/u/7".into()),
        ] {
            assert_eq!(Holder::parse(&holder.written()), holder);
        }
        assert_eq!(pod("u", Some(host.process())).to_string(), "pod/ns/p-1/u", "people are told the pod");
    }

    fn pod(uid: &str, process: Option<Process>) -> Holder {
        let process = process.map(Box::new);
        Holder::Pod { namespace: "ns".into(), name: "p-1".into(), uid: uid.into(), process }
    }

    #[tokio::test]
    async fn the_lease_tells_who_is_at_work_on_what() {
        let of = |holder: &'static str| {
            crate::fake::Fake::new(move |_, path| match path {
                "/apis/coordination.k8s.io/v1/namespaces/home/leases/belay-f" => (
                    200,
                    json!({
                        "metadata": {"annotations": {DOING: "some-step"}},
                        "spec": {"holderIdentity": holder, "acquireTime": "then", "renewTime": "now"},
                    }),
                ),
                _ => (403, json!({})),
            })
        };
        let asked =
            |holder| async move { at_work(&of(holder).cluster(1).impatient(), "f", "home").await.unwrap() };
        assert!(asked("").await.is_none());
        // The right to look at its pod is missing: then nothing is known of it.
        let found = asked("pod/ns/p/u").await.unwrap();
        assert_eq!((found.life, found.doing.as_deref()), (Life::Unknown, Some("some-step")));
        assert_eq!((found.since.as_str(), found.renewed.as_str()), ("then", "now"));
    }

    /// What becomes of a run that made a home, when the list of Leases shows these others, one answer after the other.
    async fn makes_a_home(others: &'static [Option<&'static str>]) -> (Result<Lock, NotLocked>, Vec<String>) {
        const META: Meta = Meta {
            name: "s",
            family: "f",
            family_steps: &["s"],
            purpose: "",
            default_home: "m",
            deadline: LASTS,
            undo_reserve: LASTS,
            keeps_done_record: false,
            read_only: false,
        };
        let (lists, made) = (std::sync::Mutex::new(others.iter()), std::sync::Mutex::new(false));
        let fake = crate::fake::Fake::new(move |method, path| {
            let named = path.ends_with("/belay-f");
            let there = std::mem::replace(&mut *crate::cluster::lock(&made), true);
            let lease = json!({
                "metadata": {"name": "belay-f", "namespace": "m", "uid": "u", "resourceVersion": "1"},
                "spec": {"holderIdentity": Holder::me(&*ThisMachine::host()).written()},
            });
            match method {
                "GET" if !named => {
                    let other = crate::cluster::lock(&lists).next().copied().flatten();
                    let items: Vec<Value> =
                        other.iter().map(|other| json!({"metadata": {"namespace": other}})).collect();
                    (200, json!({"items": items, "metadata": {}}))
                }
                "GET" if !there => (404, json!({"code": 404, "details": {"name": "belay-f"}})),
                _ => (200, lease),
            }
        });
        let cluster = Arc::new(fake.cluster(1));
        let taken = Lock::take(&cluster, &META, "m", Instant::now()).await;
        (taken, fake.seen().into_iter().map(|(method, _)| method).filter(|method| method != "GET").collect())
    }

    #[tokio::test]
    async fn of_two_homes_made_at_once_one_stays() {
        let (taken, writes) = makes_a_home(&[None]).await;
        assert!(taken.is_ok() && writes == ["POST"], "{writes:?}");
        // The other one comes first.
        let (taken, writes) = makes_a_home(&[Some("a")]).await;
        let Err(NotLocked::WrongHome(why)) = taken else { panic!("it has the lock") };
        assert!(why.contains("already has its home in namespace a") && writes == ["POST", "PUT"], "{why}");
        // This one comes first, and the other gives way.
        let (taken, writes) = makes_a_home(&[Some("z"), Some("z"), None]).await;
        assert!(taken.is_ok() && writes == ["POST"], "{writes:?}");
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_a_takeover_counts() {
        let object = lease("f", "ns");
        let found = json!({"spec": {"holderIdentity": "a", "acquireTime": "then", "leaseTransitions": 3}});
        let by = |holder: &str| Claim { family: "f", holder: holder.into(), doing: "step".into() };
        let renewal = body(&Clock::default(), &object, &by("a"), Some(&found));
        assert_eq!(
            (&renewal["spec"]["acquireTime"], &renewal["spec"]["leaseTransitions"]),
            (&json!("then"), &json!(3))
        );
        let takeover = body(&Clock::default(), &object, &by("b"), Some(&found));
        assert_eq!(takeover["spec"]["leaseTransitions"], 4);
        assert_ne!(takeover["spec"]["acquireTime"], "then");
    }
}
