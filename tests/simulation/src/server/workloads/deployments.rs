//! Deployments: a ReplicaSet for each template they had, the last one scaled up while the others are scaled down.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Objects, Pass, is_terminating, name, number, owned_by, put_count, replicas, template_hash, text,
    time_text, uid,
};

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
const HASH: &str = "pod-template-hash";

/// What a ReplicaSet does not take over from its Deployment.
const OWN_ANNOTATIONS: [&str; 5] = [
    REVISION,
    DESIRED,
    MOST,
    "deployment.kubernetes.io/revision-history",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// After how many seconds without progress a rollout has failed, if the Deployment does not say.
const PROGRESS_DEADLINE: i64 = 600;

pub(super) fn reconcile<O: Objects>(pass: &mut Pass<'_, O>) {
    let deployments = pass.list("deployments");
    if deployments.is_empty() {
        return;
    }
    let mut sets = pass.by_owner("replicasets");
    for deployment in deployments {
        let mut sets = sets.remove(uid(&deployment)).unwrap_or_default();
        if deployment["spec"]["paused"] == true {
            // One that was never rolled out makes nothing. Its status stays empty, where a real one says that it is paused.
            assert!(
                sets.is_empty(),
                "Deployment {}: nobody plays one that is paused later",
                name(&deployment)
            );
            continue;
        }
        sets.sort_by_key(|set| (revision(set), name(set).to_owned()));
        let rollout = Rollout::of(&deployment, &sets);
        if !is_terminating(&deployment) && rollout.advance(pass) {
            // What it has come to is seen in the next pass.
            continue;
        }
        let status = rollout.status(pass.now);
        pass.update_status("deployments", &deployment, status);
    }
}

fn revision(object: &Value) -> i64 {
    object["metadata"]["annotations"][REVISION]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

fn available(set: &Value) -> i64 {
    number(set, "/status/availableReplicas")
}

/// A Deployment and what it has made.
struct Rollout<'a> {
    deployment: &'a Value,
    hash: String,
    current: Option<&'a Value>,
    old: Vec<&'a Value>,
    desired: i64,
    max_surge: i64,
    max_unavailable: i64,
}

impl<'a> Rollout<'a> {
    fn of(deployment: &'a Value, sets: &'a [Arc<Value>]) -> Self {
        let hash = template_hash(deployment);
        let (current, old): (Vec<&Value>, Vec<&Value>) =
            sets.iter().map(Arc::as_ref).partition(|set| set["metadata"]["labels"][HASH] == hash.as_str());
        let desired = replicas(deployment);
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let is_recreate = deployment["spec"]["strategy"]["type"] == "Recreate";
        let share = |field: &str, rounds_up: bool| match &rolling[field] {
            _ if is_recreate => 0,
            Value::Number(count) => count.as_i64().unwrap_or_default(),
            Value::String(percent) => {
                let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or_default();
                (desired * percent + if rounds_up { 99 } else { 0 }) / 100
            }
            _ => (desired * 25 + if rounds_up { 99 } else { 0 }) / 100,
        };
        let max_surge = share("maxSurge", true);
        let max_unavailable = match share("maxUnavailable", false) {
            // Else it would never get on.
            0 if max_surge == 0 && !is_recreate => 1,
            count => count.min(desired),
        };
        Self { deployment, hash, current: current.first().copied(), old, desired, max_surge, max_unavailable }
    }

    fn is_recreate(&self) -> bool {
        self.deployment["spec"]["strategy"]["type"] == "Recreate"
    }

    fn all(&self) -> impl Iterator<Item = &'a Value> {
        self.old.iter().copied().chain(self.current)
    }

    fn total(&self) -> i64 {
        self.all().map(replicas).sum()
    }

    /// Does the next thing; returns whether there was one.
    fn advance<O: Objects>(&self, pass: &mut Pass<'_, O>) -> bool {
        if self.is_recreate() {
            let running: Vec<&Value> = self.old.iter().copied().filter(|set| replicas(set) > 0).collect();
            for set in &running {
                self.scale(pass, set, 0);
            }
            if !running.is_empty() {
                return true;
            }
            if self.old.iter().any(|set| number(set, "/status/replicas") > 0) {
                return false;
            }
        }
        let Some(current) = self.current else {
            self.create_set(pass);
            return true;
        };
        let last = self.old.iter().map(|set| revision(set)).max().unwrap_or_default();
        // A template that comes back is the newest again.
        let newest = if revision(current) > last { revision(current) } else { last + 1 };
        if self.mark(pass, current, newest) {
            return true;
        }
        self.scale_current(pass, current) || self.scale_old(pass, current)
    }

    /// How many replicas the current ReplicaSet may have now.
    fn room_for_current(&self, has: i64) -> i64 {
        if has >= self.desired || self.is_recreate() {
            return self.desired;
        }
        let room = (self.desired + self.max_surge - self.total()).max(0);
        has + room.min(self.desired - has)
    }

    fn scale_current<O: Objects>(&self, pass: &mut Pass<'_, O>, current: &Value) -> bool {
        let has = replicas(current);
        let wanted = self.room_for_current(has);
        if wanted != has {
            self.scale(pass, current, wanted);
        }
        wanted != has
    }

    /// Scales old `ReplicaSets` down as far as what is available allows; what is not available goes first.
    fn scale_old<O: Objects>(&self, pass: &mut Pass<'_, O>, current: &Value) -> bool {
        let least = self.desired - self.max_unavailable;
        let not_yet = replicas(current) - available(current);
        let mut budget = self.total() - least - not_yet;
        let mut spare = self.all().map(available).sum::<i64>() - least;
        let mut scaled = false;
        for set in self.old.iter().copied().filter(|set| replicas(set) > 0) {
            let has = replicas(set);
            let unhealthy = (has - available(set)).clamp(0, budget.max(0));
            let healthy = (has - unhealthy).min(available(set)).min(spare).min(budget - unhealthy).max(0);
            if unhealthy + healthy > 0 {
                budget -= unhealthy + healthy;
                spare -= healthy;
                self.scale(pass, set, has - unhealthy - healthy);
                scaled = true;
            }
        }
        scaled
    }

    fn sizes(&self) -> [(&'static str, String); 2] {
        [(DESIRED, self.desired.to_string()), (MOST, (self.desired + self.max_surge).to_string())]
    }

    fn scale<O: Objects>(&self, pass: &mut Pass<'_, O>, set: &Value, count: i64) {
        let mut set = set.clone();
        set["spec"]["replicas"] = count.into();
        for (key, value) in self.sizes() {
            set["metadata"]["annotations"][key] = value.into();
        }
        pass.update("replicasets", set);
    }

    /// Writes the revision to the ReplicaSet and to the Deployment, where it is not there yet.
    fn mark<O: Objects>(&self, pass: &mut Pass<'_, O>, current: &Value, newest: i64) -> bool {
        let mut marked = false;
        for (resource, object) in [("replicasets", current), ("deployments", self.deployment)] {
            if revision(object) != newest {
                let mut object = object.clone();
                object["metadata"]["annotations"][REVISION] = newest.to_string().into();
                if resource == "deployments" {
                    // As a status, so that the annotation is no new generation.
                    pass.annotate(resource, object);
                } else {
                    pass.update(resource, object);
                }
                marked = true;
            }
        }
        marked
    }

    fn create_set<O: Objects>(&self, pass: &mut Pass<'_, O>) {
        let mut template = self.deployment["spec"]["template"].clone();
        template["metadata"]["labels"][HASH] = self.hash.as_str().into();
        let mut selector = self.deployment["spec"]["selector"].clone();
        selector["matchLabels"][HASH] = self.hash.as_str().into();
        let mut annotations = self.deployment["metadata"]["annotations"].clone();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
        }
        let newest = self.old.iter().map(|set| revision(set)).max().unwrap_or_default() + 1;
        annotations[REVISION] = newest.to_string().into();
        for (key, value) in self.sizes() {
            annotations[key] = value.into();
        }
        let mut spec =
            json!({"replicas": self.room_for_current(0), "selector": selector, "template": template});
        if let Some(seconds) = self.deployment["spec"].get("minReadySeconds") {
            spec["minReadySeconds"] = seconds.clone();
        }
        let set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": format!("{}-{}", name(self.deployment), self.hash),
                "namespace": text(self.deployment, "/metadata/namespace"),
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": owned_by(self.deployment, "Deployment"),
            },
            "spec": spec,
        });
        pass.create("replicasets", set);
    }

    fn status(&self, now: Timestamp) -> Value {
        let sum = |pointer: &str| -> i64 { self.all().map(|set| number(set, pointer)).sum() };
        let (there, available) = (sum("/status/replicas"), sum("/status/availableReplicas"));
        let updated = self.current.map(|set| number(set, "/status/replicas")).unwrap_or_default();
        let mut status = json!({"observedGeneration": number(self.deployment, "/metadata/generation")});
        put_count(&mut status, "replicas", there);
        put_count(&mut status, "updatedReplicas", updated);
        put_count(&mut status, "readyReplicas", sum("/status/readyReplicas"));
        put_count(&mut status, "availableReplicas", available);
        put_count(&mut status, "unavailableReplicas", self.total() - available);
        // Nothing is said of it until all sets have said so.
        let terminating: Option<Vec<i64>> =
            self.all().map(|set| set.pointer("/status/terminatingReplicas")?.as_i64()).collect();
        if let Some(terminating) = terminating {
            status["terminatingReplicas"] = terminating.iter().sum::<i64>().into();
        }
        let (truth, reason, message) = if available >= self.desired - self.max_unavailable {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        let is_available = self.condition("Available", truth, reason, message, false, now);
        let progressing = self.progressing(&status, now);
        status["conditions"] = [Some(is_available), progressing].into_iter().flatten().collect();
        status
    }

    fn before(&self, kind: &str) -> Option<&'a Value> {
        let conditions = self.deployment.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == kind)
    }

    /// A condition as it shall be. One that says the same as before keeps its times, unless there is news.
    fn condition(
        &self,
        kind: &str,
        truth: &str,
        reason: &str,
        message: &str,
        is_news: bool,
        now: Timestamp,
    ) -> Value {
        let before = self.before(kind);
        let same = before.filter(|before| before["status"] == truth && before["reason"] == reason);
        if let Some(same) = same.filter(|_| !is_news) {
            return same.clone();
        }
        let now = time_text(now);
        let since = before.filter(|before| before["status"] == truth);
        let since = since.map_or_else(|| now.clone().into(), |before| before["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": truth, "reason": reason, "message": message,
            "lastUpdateTime": now, "lastTransitionTime": since,
        })
    }

    fn progressing(&self, status: &Value, now: Timestamp) -> Option<Value> {
        let before = self.before("Progressing");
        let Some(current) = self.current else { return before.cloned() };
        let set = name(current);
        let count = |status: &Value, field: &str| number(status, &format!("/{field}"));
        let (there, updated) = (count(status, "replicas"), count(status, "updatedReplicas"));
        // What has been rolled out once stays so, whatever becomes of its Pods.
        if there == updated && before.is_some_and(|before| before["reason"] == "NewReplicaSetAvailable") {
            return before.cloned();
        }
        let is_complete = [there, updated, count(status, "availableReplicas")] == [self.desired; 3];
        if is_complete {
            let message = format!("ReplicaSet \"{set}\" has successfully progressed.");
            return Some(self.condition(
                "Progressing",
                "True",
                "NewReplicaSetAvailable",
                &message,
                false,
                now,
            ));
        }
        let last = &self.deployment["status"];
        let grew = |field: &str| count(status, field) > count(last, field);
        let old_shrank = there - updated < count(last, "replicas") - count(last, "updatedReplicas");
        // A rollout that was over and has begun again counts its time anew.
        let begins = before.is_some_and(|before| before["reason"] == "NewReplicaSetAvailable");
        if begins
            || old_shrank
            || ["updatedReplicas", "readyReplicas", "availableReplicas"].into_iter().any(grew)
        {
            let message = format!("ReplicaSet \"{set}\" is progressing.");
            return Some(self.condition("Progressing", "True", "ReplicaSetUpdated", &message, true, now));
        }
        let Some(before) = before else {
            let message = format!("Created new replica set \"{set}\"");
            return Some(self.condition("Progressing", "True", "NewReplicaSetCreated", &message, false, now));
        };
        let updated_at = before["lastUpdateTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let deadline =
            self.deployment["spec"]["progressDeadlineSeconds"].as_i64().unwrap_or(PROGRESS_DEADLINE);
        if updated_at.is_some_and(|at| at.as_second() + deadline <= now.as_second()) {
            let message = format!("ReplicaSet \"{set}\" has timed out progressing.");
            let reason = "ProgressDeadlineExceeded";
            return Some(self.condition("Progressing", "False", reason, &message, false, now));
        }
        Some(before.clone())
    }
}
