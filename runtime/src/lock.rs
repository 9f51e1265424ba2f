//! The lock: a Lease per family in its home. Two runs of one family never write at the same time.

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    cluster::{Answer, Cluster, Failure, Halt, Missed},
    object::{ObjectRef, kinds, text, uid},
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
    },
    /// A process outside the cluster.
    Process {
        /// On which host.
        host: String,
        /// Its process id.
        pid: u32,
        /// When it started, in the kernel's ticks: process ids come back.
        started: String,
    },
    /// Something that another version wrote.
    Unknown(String),
}

impl Holder {
    /// This process.
    #[must_use]
    pub fn me() -> Self {
        let env = |key| std::env::var(key).ok().filter(|value: &String| !value.is_empty());
        if let (Some(namespace), Some(name), Some(uid)) =
            (env("BELAY_POD_NAMESPACE"), env("BELAY_POD_NAME"), env("BELAY_POD_UID"))
        {
            return Self::Pod { namespace, name, uid };
        }
        let pid = std::process::id();
        Self::Process { host: host(), pid, started: started(pid).unwrap_or_default() }
    }

    fn parse(written: &str) -> Self {
        match written.split('/').collect::<Vec<_>>()[..] {
            ["pod", namespace, name, uid] => {
                Self::Pod { namespace: namespace.into(), name: name.into(), uid: uid.into() }
            }
            ["process", host, pid, started] => match pid.parse() {
                Ok(pid) => Self::Process { host: host.into(), pid, started: started.into() },
                Err(_) => Self::Unknown(written.to_owned()),
            },
            _ => Self::Unknown(written.to_owned()),
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod { namespace, name, uid } => write!(out, "pod/{namespace}/{name}/{uid}"),
            Self::Process { host, pid, started } => write!(out, "process/{host}/{pid}/{started}"),
            Self::Unknown(written) => out.write_str(written),
        }
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}

/// The start time of a process, field 22 of its stat; the name in field 2 may hold blanks and parentheses.
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace();
    // A zombie has ended: its parent only has not asked for the exit code yet.
    (fields.next()? != "Z").then(|| fields.nth(18).map(str::to_owned)).flatten()
}

/// What is known of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive,
    /// It has ended.
    Dead,
    /// Nothing can be known.
    Unknown,
}

/// Looks whether a holder still runs.
pub async fn life(cluster: &Cluster, holder: &Holder) -> Result<Life, Failure> {
    match holder {
        Holder::Pod { namespace, name, uid: wanted } => {
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
        Holder::Process { host: where_, pid, started: when } if *where_ == host() => {
            Ok(if started(*pid).as_deref() == Some(when) { Life::Alive } else { Life::Dead })
        }
        Holder::Process { .. } | Holder::Unknown(_) => Ok(Life::Unknown),
    }
}

/// Why the lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum NotLocked {
    /// Somebody else has it.
    #[error("{0}")]
    Held(String),
    /// Another home has it.
    #[error("{0}")]
    SecondHome(String),
    /// It could not be asked for.
    #[error(transparent)]
    Call(#[from] Failure),
}

/// The lock, held. Renewed in the background until it is released.
pub struct Lock {
    cluster: Arc<Cluster>,
    object: ObjectRef,
    me: String,
    renewal: JoinHandle<()>,
    /// Whether it was taken from a run that died.
    pub from_the_dead: bool,
}

/// The Lease of a family as it stands.
#[must_use]
pub fn lease(meta_family: &str, home: &str) -> ObjectRef {
    kinds::LEASE.object(home, name(meta_family))
}

/// Who holds a Lease, if anybody.
#[must_use]
pub fn holder_of(lease: &Value) -> Option<Holder> {
    text(lease, "/spec/holderIdentity").filter(|holder| !holder.is_empty()).map(Holder::parse)
}

/// Refuses when the family has a home elsewhere on this cluster: two homes are two locks.
pub async fn refuse_second_home(cluster: &Cluster, meta: &Meta, home: &str) -> Result<(), NotLocked> {
    let mut elsewhere = Vec::new();
    let selector = format!("belay.dev/family={}", meta.family);
    cluster
        .list(&kinds::LEASE, None, Some(&selector), |lease| match lease {
            Some(lease) => elsewhere.extend(
                text(&lease, "/metadata/namespace").filter(|namespace| *namespace != home).map(str::to_owned),
            ),
            None => elsewhere.clear(),
        })
        .await?;
    match elsewhere.first() {
        None => Ok(()),
        Some(other) => Err(NotLocked::SecondHome(format!(
            "the family {family} already has its home in namespace {other}: two homes would be two locks. Use --home \
             {other}, or, if nothing is left there to undo, remove the old home: kubectl -n {other} delete lease {lease}",
            family = meta.family,
            lease = name(meta.family),
        ))),
    }
}

impl Lock {
    /// Takes the lock, waiting until `until` for a live holder.
    pub async fn take(
        cluster: &Arc<Cluster>,
        meta: &Meta,
        home: &str,
        until: Instant,
    ) -> Result<Self, NotLocked> {
        let object = lease(meta.family, home);
        let me = Holder::me();
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
            let version = found.as_ref().map(crate::object::resource_version).unwrap_or_default().to_owned();
            let expired = match &unchanged {
                Some((seen, since)) if *seen == version => since.elapsed() >= LASTS,
                _ => {
                    unchanged = Some((version, Instant::now()));
                    false
                }
            };
            if life == Life::Dead || (life == Life::Unknown && expired) {
                match write(cluster, &object, meta.family, &me.to_string(), found.as_ref()).await {
                    Ok(_) => {
                        let from_the_dead = holder.as_ref().is_some_and(|holder| *holder != me);
                        if let (true, Some(holder)) = (from_the_dead, &holder) {
                            log::warn!(
                                "took the lock over from {holder}, which has ended without releasing it"
                            );
                        }
                        let renewal =
                            tokio::spawn(renew(cluster.clone(), object.clone(), meta.family, me.to_string()));
                        return Ok(Self {
                            cluster: cluster.clone(),
                            object,
                            me: me.to_string(),
                            renewal,
                            from_the_dead,
                        });
                    }
                    Err(failure) if failure.is_conflict() || failure.is_already_exists() => continue,
                    Err(failure) => return Err(failure.into()),
                }
            }
            let holder = holder.map(|holder| holder.to_string()).unwrap_or_default();
            if !said {
                log::info!("waiting for the lock {object}: {holder} holds it");
                said = true;
            }
            if Instant::now() >= until {
                return Err(NotLocked::Held(format!(
                    "not now: {holder} holds the lock {object} and is at work. Try again when it has finished"
                )));
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                halt = cluster.wait_halted() => return Err(Failure::Halted(halt).into()),
            }
        }
    }

    /// Gives the lock back. Later runs see that nobody died.
    pub async fn release(self) -> Result<(), Failure> {
        self.renewal.abort();
        for _ in 0..3 {
            let Some(found) = read(&self.cluster, &self.object).await? else { return Ok(()) };
            if text(&found, "/spec/holderIdentity") != Some(&self.me) {
                return Ok(());
            }
            let mut body = found;
            body["spec"]["holderIdentity"] = "".into();
            match once(&self.cluster, Method::PUT, self.object.path(), Some(&body)).await {
                Err(failure) if failure.is_conflict() => {}
                other => return other.map(|_| ()),
            }
        }
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

async fn renew(cluster: Arc<Cluster>, object: ObjectRef, family: &'static str, me: String) {
    let mut renewed = Instant::now();
    let mut forbidden: Option<Instant> = None;
    loop {
        tokio::time::sleep(if renewed.elapsed() > RENEWED { Duration::from_secs(1) } else { RENEWED }).await;
        let asked = Instant::now();
        let result = async {
            let found = cluster.unguarded(Method::GET, object.path(), None).await?;
            if text(&found, "/spec/holderIdentity") != Some(me.as_str()) {
                let now = text(&found, "/spec/holderIdentity").unwrap_or_default();
                return Ok(Some(format!("{object} is now held by '{now}'")));
            }
            let body = body(&object, family, &me, Some(&found));
            cluster.unguarded(Method::PUT, object.path(), Some(&body)).await.map(|_| None)
        }
        .await;
        match result {
            Ok(None) => {
                renewed = asked;
                forbidden = None;
                cluster.pause(false);
            }
            Ok(Some(lost)) => return cluster.halt(Halt::LockLost(lost)),
            Err(Missed::Answered(answer)) if answer.code == 401 => {
                return cluster.halt(Halt::Unauthorized(answer.message));
            }
            // Somebody wrote between our read and our write: the next read tells who.
            Err(Missed::Answered(answer)) if answer.code == 409 => {}
            Err(Missed::Answered(answer)) if lasting(&answer, &mut forbidden) => {
                return cluster.halt(Halt::LockLost(format!("{object} cannot be renewed: {answer}")));
            }
            Err(missed) => log::debug!("the lock {object} was not renewed: {missed:?}"),
        }
        if renewed.elapsed() >= UNSURE {
            cluster.pause(true);
        }
    }
}

/// Whether an answer to a Lease call means that it will not get better.
fn lasting(answer: &Answer, forbidden: &mut Option<Instant>) -> bool {
    match answer.code {
        403 => forbidden.get_or_insert_with(Instant::now).elapsed() >= FORBIDDEN_MAY_PASS,
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
    let until = cluster.deadline().max(Instant::now() + Duration::from_secs(5));
    loop {
        tries += 1;
        let last = match cluster.unguarded(method.clone(), path.clone(), body).await {
            Ok(value) => return Ok(value),
            Err(Missed::Answered(answer)) if answer.code == 401 => {
                return Err(Failure::Halted(Halt::Unauthorized(answer.message)));
            }
            Err(Missed::Answered(answer)) if lasting(&answer, &mut forbidden) => {
                return Err(Failure::Refused { call, answer });
            }
            Err(Missed::Answered(answer)) => answer.to_string(),
            Err(Missed::Lost(error)) => error,
        };
        if Instant::now() + Duration::from_secs(1) >= until {
            return Err(Failure::OutOfTime { call, tries, last });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
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
    family: &str,
    holder: &str,
    found: Option<&Value>,
) -> Result<Value, Failure> {
    let body = body(object, family, holder, found);
    if found.is_some() {
        once(cluster, Method::PUT, object.path(), Some(&body)).await
    } else {
        let path = object.kind.collection_path(object.namespace.as_deref());
        once(cluster, Method::POST, path, Some(&body)).await
    }
}

fn body(object: &ObjectRef, family: &str, holder: &str, found: Option<&Value>) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let same = found.and_then(|lease| text(lease, "/spec/holderIdentity")) == Some(holder);
    let acquired = found.and_then(|lease| text(lease, "/spec/acquireTime")).filter(|_| same).unwrap_or(&now);
    let transitions = found
        .and_then(|lease| lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64))
        .map_or(0, |times| if same { times } else { times + 1 });
    let mut body = object.manifest();
    body["metadata"]["labels"] = json!({"belay.dev/family": family});
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

    #[test]
    fn a_holder_reads_back_as_it_was_written() {
        for holder in [
            Holder::Pod { namespace: "ns".into(), name: "p-1".into(), uid: "u".into() },
            Holder::Process { host: "h".into(), pid: 7, started: "99".into() },
            Holder::Unknown("somebody".into()),
        ] {
            assert_eq!(Holder::parse(&holder.to_string()), holder);
        }
    }

    #[test]
    fn this_process_has_a_start_time_and_no_process_has_none() {
        assert!(started(std::process::id()).is_some());
        assert!(started(u32::MAX).is_none());
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_a_takeover_counts() {
        let object = lease("f", "ns");
        let found = json!({"spec": {"holderIdentity": "a", "acquireTime": "then", "leaseTransitions": 3}});
        let renewal = body(&object, "f", "a", Some(&found));
        assert_eq!(
            (&renewal["spec"]["acquireTime"], &renewal["spec"]["leaseTransitions"]),
            (&json!("then"), &json!(3))
        );
        let takeover = body(&object, "f", "b", Some(&found));
        assert_eq!(takeover["spec"]["leaseTransitions"], 4);
        assert_ne!(takeover["spec"]["acquireTime"], "then");
    }
}
