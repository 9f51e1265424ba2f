use standins::fixtures;
use standins::kinds::{REPLICA_SET, STATEFUL_SET};

use super::*;

/// A server that keeps what it is given, in the order of names.
#[derive(Default)]
struct Store {
    objects: BTreeMap<(String, String), Arc<Value>>,
    made: u32,
}

impl Store {
    fn put(&mut self, resource: &str, object: Value) {
        self.objects.insert((resource.to_owned(), name(&object).to_owned()), Arc::new(object));
    }

    fn with(resource: &str, object: Value) -> Self {
        let mut store = Self::default();
        store.create("", resource, object, at(0));
        store
    }

    fn get(&self, resource: &str, name: &str) -> &Value {
        &self.objects[&(resource.to_owned(), name.to_owned())]
    }

    fn names(&self, resource: &str) -> Vec<String> {
        self.list("", resource).iter().map(|object| name(object).to_owned()).collect()
    }

    fn change(&mut self, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(resource, name).clone();
        change(&mut object);
        self.update("", resource, object, at(0));
    }

    fn settle(&mut self, second: i64) {
        for _ in 0..50 {
            if !reconcile(self, at(second)) {
                return;
            }
        }
        panic!("it never ends");
    }

    /// Says of every Pod that it runs.
    fn run_pods(&mut self) {
        for pod in self.list("", "pods") {
            let mut pod = (*pod).clone();
            let ready =
                json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            pod["status"] = json!({"phase": "Running", "conditions": [ready]});
            self.put("pods", pod);
        }
    }
}

impl Objects for Store {
    fn list(&self, _: &str, resource: &str) -> Vec<Arc<Value>> {
        let of_it = self.objects.iter().filter(|((kind, _), _)| kind == resource);
        of_it.map(|(_, object)| object.clone()).collect()
    }

    fn create(&mut self, _: &str, resource: &str, mut object: Value, now: Timestamp) {
        self.made += 1;
        object["metadata"]["uid"] = format!("uid-{}", self.made).into();
        object["metadata"]["generation"] = 1.into();
        object["metadata"]["creationTimestamp"] = time_text(now).into();
        self.put(resource, object);
    }

    fn update(&mut self, _: &str, resource: &str, mut object: Value, _: Timestamp) {
        let before = self.get(resource, name(&object));
        if before["spec"] != object["spec"] {
            object["metadata"]["generation"] = (number(before, "/metadata/generation") + 1).into();
        }
        self.put(resource, object);
    }

    fn update_status(&mut self, _: &str, resource: &str, object: Value, _: Timestamp) {
        self.put(resource, object);
    }

    fn delete(&mut self, _: &str, resource: &str, _: &str, name: &str, _: Timestamp) {
        self.objects.remove(&(resource.to_owned(), name.to_owned()));
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()
}

fn reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    condition(object, kind)["reason"].as_str().unwrap()
}

#[test]
fn a_deployment_makes_a_replica_set_and_that_makes_pods() {
    let mut store = Store::with("deployments", fixtures::deployment("web", "ns", 2, "a"));
    store.settle(0);
    let sets = store.list("", "replicasets");
    assert_eq!(sets.len(), 1);
    let hash = sets[0]["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    assert_eq!(name(&sets[0]), format!("web-{hash}"));
    assert_eq!(sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(sets[0]["spec"]["selector"]["matchLabels"]["pod-template-hash"], hash);
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-1", "controller": true,
        "blockOwnerDeletion": true,
    }]);
    assert_eq!(sets[0]["metadata"]["ownerReferences"], owner);
    let pods = store.list("", "pods");
    assert_eq!(pods.len(), 2);
    assert!(name(&pods[0]).starts_with(&format!("web-{hash}-")));
    assert_eq!(pods[0]["metadata"]["labels"], json!({"app": "web", "pod-template-hash": hash}));
    let web = store.get("deployments", "web");
    assert_eq!(web["status"]["replicas"], 2);
    assert_eq!(web["status"]["unavailableReplicas"], 2);
    assert_eq!(web["status"].get("availableReplicas"), None, "zero is left out");
    assert_eq!(reason(web, "Available"), "MinimumReplicasUnavailable");
    assert_eq!(reason(web, "Progressing"), "ReplicaSetUpdated");
}

#[test]
fn a_deployment_is_available_once_its_pods_are_ready() {
    let mut store = Store::with("deployments", fixtures::deployment("web", "ns", 2, "a"));
    store.settle(0);
    store.run_pods();
    store.settle(1);
    let web = store.get("deployments", "web");
    for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(web["status"][count], 2, "{count}");
    }
    assert_eq!(web["status"]["observedGeneration"], 1);
    assert_eq!(reason(web, "Available"), "MinimumReplicasAvailable");
    assert_eq!(reason(web, "Progressing"), "NewReplicaSetAvailable");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert!(!reconcile(&mut store, at(2)), "it is at rest");
}

#[test]
fn scaled_to_zero_it_has_no_pods_and_says_so() {
    let mut store = Store::with("deployments", fixtures::deployment("web", "ns", 2, "a"));
    store.settle(0);
    store.run_pods();
    store.settle(1);
    store.change("deployments", "web", |web| web["spec"]["replicas"] = 0.into());
    store.settle(2);
    assert!(store.names("pods").is_empty());
    let web = store.get("deployments", "web");
    assert_eq!(web["status"].get("replicas"), None);
    assert_eq!(web["status"]["observedGeneration"], 2);
    assert_eq!(reason(web, "Progressing"), "NewReplicaSetAvailable");
}

#[test]
fn a_new_template_replaces_the_old_pods_as_the_new_ones_become_ready() {
    let mut store = Store::with("deployments", fixtures::deployment("web", "ns", 1, "a"));
    store.settle(0);
    store.run_pods();
    store.settle(1);
    let before = store.names("pods");
    let image = "/spec/template/spec/containers/0/image";
    store.change("deployments", "web", |web| *web.pointer_mut(image).unwrap() = "b".into());
    store.settle(2);
    assert_eq!(store.names("replicasets").len(), 2);
    let during = store.names("pods");
    assert!(during.len() == 2 && during.contains(&before[0]), "the old one stays until the new one is ready");
    assert_eq!(reason(store.get("deployments", "web"), "Progressing"), "ReplicaSetUpdated");
    store.run_pods();
    store.settle(3);
    let after = store.list("", "pods");
    assert_eq!(after.len(), 1);
    assert_eq!(after[0]["spec"]["containers"][0]["image"], "b");
    let web = store.get("deployments", "web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    assert_eq!(web["status"]["updatedReplicas"], 1);
    assert_eq!(reason(web, "Progressing"), "NewReplicaSetAvailable");

    store.change("deployments", "web", |web| *web.pointer_mut(image).unwrap() = "a".into());
    store.settle(4);
    store.run_pods();
    store.settle(5);
    assert_eq!(store.names("replicasets").len(), 2, "a template that comes back has its ReplicaSet already");
    let web = store.get("deployments", "web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
}

#[test]
fn a_rollout_without_progress_fails_at_its_deadline() {
    let mut store = Store::with("deployments", fixtures::deployment("web", "ns", 1, "a"));
    store.settle(0);
    store.settle(599);
    assert_eq!(condition(store.get("deployments", "web"), "Progressing")["status"], "True");
    store.settle(600);
    let web = store.get("deployments", "web");
    assert_eq!(reason(web, "Progressing"), "ProgressDeadlineExceeded");
    assert_eq!(condition(web, "Progressing")["status"], "False");
}

#[test]
fn to_recreate_the_old_pods_go_first() {
    let mut web = fixtures::deployment("web", "ns", 1, "a");
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    let mut store = Store::with("deployments", web);
    store.settle(0);
    store.run_pods();
    store.settle(1);
    store.change("deployments", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = "b".into();
    });
    store.settle(2);
    let pods = store.list("", "pods");
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0]["spec"]["containers"][0]["image"], "b");
}

#[test]
fn a_bare_replica_set_replaces_a_pod_that_is_gone_under_another_name() {
    let mut store = Store::with("replicasets", fixtures::workload(&REPLICA_SET, "bare", "ns", 1, "a"));
    store.settle(0);
    let before = store.names("pods");
    store.delete("", "pods", "ns", &before[0], at(1));
    store.settle(1);
    let after = store.names("pods");
    assert!(after.len() == 1 && after != before);
}

#[test]
fn what_is_worth_least_is_deleted_first() {
    let mut store = Store::with("replicasets", fixtures::workload(&REPLICA_SET, "bare", "ns", 1, "a"));
    store.settle(0);
    store.run_pods();
    store.settle(1);
    let kept = store.names("pods");
    store.change("replicasets", "bare", |bare| bare["spec"]["replicas"] = 3.into());
    store.settle(2);
    store.change("replicasets", "bare", |bare| bare["spec"]["replicas"] = 1.into());
    store.settle(3);
    assert_eq!(store.names("pods"), kept);
    assert_eq!(store.get("replicasets", "bare")["status"]["readyReplicas"], 1);
}

#[test]
fn a_stateful_set_makes_its_pods_one_after_the_other() {
    let mut store = Store::with("statefulsets", fixtures::workload(&STATEFUL_SET, "db", "ns", 2, "a"));
    store.settle(0);
    assert_eq!(store.names("pods"), ["db-0"]);
    store.run_pods();
    store.settle(1);
    assert_eq!(store.names("pods"), ["db-0", "db-1"]);
    store.run_pods();
    store.settle(2);
    let status = &store.get("statefulsets", "db")["status"];
    for count in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(status[count], 2, "{count}");
    }
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    store.change("statefulsets", "db", |db| db["spec"]["replicas"] = 0.into());
    store.settle(3);
    assert!(store.names("pods").is_empty());
    assert_eq!(store.get("statefulsets", "db")["status"]["replicas"], 0);
}

#[test]
fn a_stateful_set_with_a_new_template_replaces_its_last_pod_first() {
    let mut store = Store::with("statefulsets", fixtures::workload(&STATEFUL_SET, "db", "ns", 2, "a"));
    for second in 0..3 {
        store.settle(second);
        store.run_pods();
    }
    store.settle(3);
    store.change("statefulsets", "db", |db| {
        db["spec"]["template"]["spec"]["containers"][0]["image"] = "b".into();
    });
    store.settle(4);
    let image = |store: &Store, pod: &str| store.get("pods", pod)["spec"]["containers"][0]["image"].clone();
    assert_eq!((image(&store, "db-0"), image(&store, "db-1")), ("a".into(), "b".into()));
    store.run_pods();
    store.settle(5);
    assert_eq!(image(&store, "db-0"), "b");
}

#[test]
fn what_is_terminating_is_left_alone() {
    let mut store = Store::with("deployments", fixtures::deployment("web", "ns", 2, "a"));
    store.change("deployments", "web", |web| {
        web["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    store.settle(0);
    assert!(store.names("replicasets").is_empty());
}

#[test]
fn a_pod_that_nobody_runs_is_gone_at_once() {
    assert!(is_removed_at_once(&json!({"status": {"phase": "Running"}})));
    let mut pod = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    assert!(!is_removed_at_once(&pod));
    pod["status"]["phase"] = "Failed".into();
    assert!(is_removed_at_once(&pod));
}
