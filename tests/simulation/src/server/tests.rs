//! What the server answers, as a client sees it.

use futures::StreamExt as _;
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A client with a server of its own.
struct Client {
    server: Server,
    user: &'static str,
}

impl Client {
    fn new() -> Self {
        let mut server = Server::new(now());
        server.reconcile(now());
        let mut client = Self { server, user: "admin" };
        client.ok("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
        client
    }

    fn with_widgets() -> Self {
        let mut client = Self::new();
        let crds = standins::crds::crds(standins::Family::Fixture, None).unwrap();
        for crd in crds {
            client.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
        }
        client.settle();
        client
    }

    fn settle(&mut self) {
        for _ in 0..50 {
            if !self.server.reconcile(now()) {
                return;
            }
        }
        panic!("the controllers do not come to rest");
    }

    fn ask(&mut self, method: &str, uri: &str, body: &Value) -> Answer {
        let (method, content_type) = match method {
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "JSON" => ("PATCH", "application/json-patch+json"),
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            method => (method, "application/json"),
        };
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let request = Request {
            method: method.parse().unwrap(),
            path: path.to_owned(),
            query: query.to_owned(),
            content_type: content_type.to_owned(),
            body: if body.is_null() { Bytes::new() } else { body.to_string().into() },
            user: self.user.to_owned(),
            agent: "test".to_owned(),
        };
        self.server.handle(&request, now())
    }

    fn call(&mut self, method: &str, uri: &str, body: &Value) -> (u16, Value) {
        match self.ask(method, uri, body) {
            Answer::Whole { status, body } => (status, body),
            Answer::Watch { .. } => panic!("a watch"),
        }
    }

    fn ok(&mut self, method: &str, uri: &str, body: &Value) -> Value {
        let (status, answer) = self.call(method, uri, body);
        assert!((200..300).contains(&status), "{method} {uri}: {status} {answer}");
        answer
    }

    fn refused(&mut self, method: &str, uri: &str, body: &Value) -> (u16, String) {
        let (status, answer) = self.call(method, uri, body);
        (status, answer["message"].as_str().unwrap_or_else(|| answer.as_str().unwrap_or_default()).to_owned())
    }

    fn get(&mut self, uri: &str) -> Value {
        self.ok("GET", uri, &Value::Null)
    }

    fn watch(&mut self, uri: &str) -> UnboundedReceiver<Bytes> {
        match self.ask("GET", uri, &Value::Null) {
            Answer::Watch { events, .. } => events,
            Answer::Whole { status, body } => panic!("no watch: {status} {body}"),
        }
    }
}

/// What a watch has said so far; whether it has ended.
fn said(events: &mut UnboundedReceiver<Bytes>) -> (Vec<Value>, bool) {
    let mut lines = Vec::new();
    loop {
        let next = events.next();
        match futures::FutureExt::now_or_never(next) {
            Some(Some(line)) => lines.push(serde_json::from_slice(&line).unwrap()),
            Some(None) => return (lines, true),
            None => return (lines, false),
        }
    }
}

fn kinds_of(events: &[Value]) -> Vec<String> {
    let one = |event: &Value| {
        format!(
            "{} {}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["name"].as_str().unwrap_or("-")
        )
    };
    events.iter().map(one).collect()
}

const MAPS: &str = "/api/v1/namespaces/n/configmaps";
const WIDGETS: &str = "/apis/fixture.belay.dev/v1/namespaces/n/widgets";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 3},
    })
}

#[test]
fn what_is_created_can_be_read_and_bears_what_the_server_adds() {
    let mut client = Client::new();
    let made = client.ok("POST", MAPS, &map("a"));
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["metadata"]["namespace"], "n");
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(client.get(&format!("{MAPS}/a")), made);
    assert_eq!(client.call("POST", MAPS, &map("b")).0, 201);
    let (status, answer) = client.call("POST", MAPS, &map("a"));
    assert_eq!((status, &answer["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(answer["message"], "configmaps \"a\" already exists");
    assert_eq!(answer["details"], json!({"name": "a", "kind": "configmaps"}));
    assert_eq!(
        client.refused("GET", &format!("{MAPS}/c"), &Value::Null),
        (404, "configmaps \"c\" not found".into())
    );
}

#[test]
fn a_name_can_be_left_to_the_server() {
    let mut client = Client::new();
    let body = json!({"metadata": {"generateName": "a-"}});
    let first = client.ok("POST", MAPS, &body);
    let second = client.ok("POST", MAPS, &body);
    assert!(first["metadata"]["name"].as_str().unwrap().starts_with("a-"));
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

#[test]
fn a_missing_namespace_and_a_terminating_one_are_told_apart() {
    let mut client = Client::new();
    let (status, answer) = client.call("POST", "/api/v1/namespaces/gone/configmaps", &map("a"));
    assert_eq!((status, answer["message"].as_str()), (404, Some("namespaces \"gone\" not found")));
    assert_eq!(answer["details"], json!({"name": "gone", "kind": "namespaces"}));
    client.ok("POST", MAPS, &json!({"metadata": {"name": "held", "finalizers": ["a/b"]}}));
    let going = client.ok("DELETE", "/api/v1/namespaces/n", &Value::Null);
    assert_eq!(going["status"]["phase"], "Terminating");
    let (status, answer) = client.call("POST", MAPS, &map("a"));
    assert_eq!(status, 403);
    assert_eq!(answer["details"]["causes"][0]["reason"], "NamespaceTerminating");
    client.settle();
    assert_eq!(client.get("/api/v1/namespaces/n")["spec"]["finalizers"], json!(["kubernetes"]));
    client.ok("MERGE", &format!("{MAPS}/held"), &json!({"metadata": {"finalizers": null}}));
    client.settle();
    assert_eq!(client.call("GET", "/api/v1/namespaces/n", &Value::Null).0, 404);
}

#[test]
fn an_update_of_what_was_changed_meanwhile_is_a_conflict() {
    let mut client = Client::with_widgets();
    let made = client.ok("POST", WIDGETS, &widget("a"));
    let uri = format!("{WIDGETS}/a");
    let mut newer = made.clone();
    newer["spec"]["size"] = 4.into();
    let newer = client.ok("PUT", &uri, &newer);
    assert_eq!(newer["metadata"]["generation"], 2);
    let (status, message) = client.refused("PUT", &uri, &made);
    assert_eq!(status, 409);
    assert_eq!(
        message,
        "Operation cannot be fulfilled on widgets.fixture.belay.dev \"a\": the object has been modified; please apply \
         your changes to the latest version and try again"
    );
    let mut without = newer;
    without["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let (status, message) = client.refused("PUT", &uri, &without);
    assert_eq!(status, 422);
    assert_eq!(
        message,
        "widgets.fixture.belay.dev \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for \
         an update"
    );
    let mut map_without = client.ok("POST", MAPS, &map("a"));
    map_without["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    map_without["data"]["a"] = "2".into();
    client.ok("PUT", &format!("{MAPS}/a"), &map_without);
}

#[test]
fn an_update_of_another_object_of_the_same_name_is_a_conflict() {
    let mut client = Client::with_widgets();
    let made = client.ok("POST", WIDGETS, &widget("a"));
    client.ok("DELETE", &format!("{WIDGETS}/a"), &Value::Null);
    client.ok("POST", WIDGETS, &widget("a"));
    let (status, message) = client.refused("PUT", &format!("{WIDGETS}/a"), &made);
    assert_eq!(status, 409);
    assert!(
        message.contains("Key: /registry/fixture.belay.dev/widgets/n/a, ResourceVersion: 0"),
        "{message}"
    );
    let patch = json!({"metadata": {"uid": made["metadata"]["uid"]}});
    let (status, message) = client.refused("MERGE", &format!("{WIDGETS}/a"), &patch);
    assert_eq!(status, 422);
    assert!(message.contains("metadata.uid: Invalid value: "), "{message}");
}

#[test]
fn a_write_that_changes_nothing_is_none() {
    let mut client = Client::new();
    let made = client.ok("POST", MAPS, &map("a"));
    let same = client.ok("MERGE", &format!("{MAPS}/a"), &json!({"data": {"a": "1"}}));
    assert_eq!(same, made);
    assert_eq!(client.ok("PUT", &format!("{MAPS}/a"), &made), made);
}

#[test]
fn a_dry_run_answers_and_stores_nothing() {
    let mut client = Client::new();
    let revision = client.server.revision();
    assert_eq!(client.call("POST", &format!("{MAPS}?dryRun=All"), &map("a")).0, 201);
    assert_eq!(client.server.revision(), revision);
    client.ok("POST", MAPS, &map("a"));
    let uri = format!("{MAPS}/a?dryRun=All");
    assert_eq!(client.ok("MERGE", &uri, &json!({"data": {"a": "2"}}))["data"]["a"], "2");
    let options = json!({"dryRun": ["All"]});
    assert_eq!(client.ok("DELETE", &format!("{MAPS}/a"), &options)["status"], "Success");
    assert_eq!(client.get(&format!("{MAPS}/a"))["data"]["a"], "1");
}

#[test]
fn a_delete_means_the_object_that_was_read() {
    let mut client = Client::with_widgets();
    let made = client.ok("POST", WIDGETS, &widget("a"));
    let uri = format!("{WIDGETS}/a");
    let (uid, version) = (made["metadata"]["uid"].as_str().unwrap(), "1");
    let (status, message) = client.refused("DELETE", &uri, &json!({"preconditions": {"uid": "other"}}));
    assert_eq!(status, 409);
    assert_eq!(
        message,
        format!(
            "Operation cannot be fulfilled on Widget.fixture.belay.dev \"a\": the UID in the precondition (other) does \
             not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    let wanted = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
    let (status, message) = client.refused("DELETE", &uri, &wanted);
    assert!(status == 409 && message.contains("the ResourceVersion in the precondition (1)"), "{message}");
    let gone = client.ok("DELETE", &uri, &json!({"preconditions": {"uid": uid}}));
    assert_eq!(gone["status"], "Success");
    assert_eq!(
        gone["details"],
        json!({"name": "a", "group": "fixture.belay.dev", "kind": "widgets", "uid": uid})
    );
}

#[test]
fn an_object_with_a_finalizer_terminates_until_that_is_taken_off() {
    let mut client = Client::with_widgets();
    let mut held = widget("a");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    client.ok("POST", WIDGETS, &held);
    let uri = format!("{WIDGETS}/a");
    let mut events = client.watch(&format!("{WIDGETS}?watch=true"));
    let going = client.ok("DELETE", &uri, &Value::Null);
    assert_eq!(going["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(going["metadata"]["generation"], 2);
    let (status, message) =
        client.refused("MERGE", &uri, &json!({"metadata": {"finalizers": ["x/y", "x/z"]}}));
    assert!(status == 422 && message.contains("no new finalizers can be added"), "{message}");
    let again = client.ok("DELETE", &uri, &Value::Null);
    assert_eq!(again["metadata"]["resourceVersion"], going["metadata"]["resourceVersion"]);
    client.ok("MERGE", &uri, &json!({"metadata": {"finalizers": []}}));
    assert_eq!(client.call("GET", &uri, &Value::Null).0, 404);
    let (events, _) = said(&mut events);
    assert_eq!(kinds_of(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
    assert_ne!(
        events[2]["object"]["metadata"]["resourceVersion"],
        events[1]["object"]["metadata"]["resourceVersion"]
    );
}

#[test]
fn status_is_written_by_its_own_way_only() {
    let mut client = Client::with_widgets();
    let mut body = widget("a");
    body["status"] = json!({"observedGeneration": 7});
    let made = client.ok("POST", WIDGETS, &body);
    assert!(made.get("status").is_none());
    let patch = json!({"spec": {"size": 9}, "status": {"observedGeneration": 1}});
    let by_status = client.ok("MERGE", &format!("{WIDGETS}/a/status"), &patch);
    assert_eq!(
        (&by_status["spec"]["size"], &by_status["status"]["observedGeneration"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(by_status["metadata"]["generation"], 1);
    let by_spec = client.ok("MERGE", &format!("{WIDGETS}/a"), &json!({"spec": {"size": 9}, "status": null}));
    assert_eq!((&by_spec["spec"]["size"], &by_spec["status"]["observedGeneration"]), (&json!(9), &json!(1)));
    assert_eq!(by_spec["metadata"]["generation"], 2);
}

#[test]
fn a_workload_is_scaled_through_its_scale() {
    let mut client = Client::new();
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    let deployment = standins::fixtures::deployment("d", "n", 2, "none");
    client.ok("POST", deployments, &deployment);
    let uri = format!("{deployments}/d/scale");
    assert_eq!(client.get(&uri)["spec"]["replicas"], 2);
    assert_eq!(client.get(&uri)["status"]["selector"], "app=d");
    let scaled = client.ok("MERGE", &uri, &json!({"spec": {"replicas": 0}}));
    assert_eq!((&scaled["kind"], &scaled["spec"]), (&json!("Scale"), &json!({})));
    let found = client.get(&format!("{deployments}/d"));
    assert_eq!((&found["spec"]["replicas"], &found["metadata"]["generation"]), (&json!(0), &json!(2)));
    let stale = json!({"metadata": {"resourceVersion": "3"}, "spec": {"replicas": 1}});
    assert_eq!(client.call("MERGE", &uri, &stale).0, 409);
}

#[test]
fn a_json_patch_that_does_not_fit_is_refused() {
    let mut client = Client::new();
    client.ok("POST", MAPS, &map("a"));
    let uri = format!("{MAPS}/a");
    let patch = |value: &str| {
        json!([
            {"op": "test", "path": "/data/a", "value": value}, {"op": "replace", "path": "/data/a", "value": "2"},
        ])
    };
    let (status, message) = client.refused("JSON", &uri, &patch("other"));
    assert_eq!(
        (status, message.as_str()),
        (422, "the server rejected our request due to an error in our request")
    );
    assert_eq!(client.ok("JSON", &uri, &patch("1"))["data"]["a"], "2");
}

#[test]
fn a_list_in_pages_shows_one_moment() {
    let mut client = Client::new();
    for name in ["a", "b", "c"] {
        client.ok("POST", MAPS, &map(name));
    }
    let first = client.get(&format!("{MAPS}?limit=2"));
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    assert!(first["items"][0].get("kind").is_none(), "the list tells the kind");
    client.ok("DELETE", &format!("{MAPS}/c"), &Value::Null);
    client.ok("POST", MAPS, &map("d"));
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = client.get(&format!("{MAPS}?limit=2&continue={token}"));
    assert_eq!(second["items"][0]["metadata"]["name"], "c");
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(second["metadata"].get("continue").is_none());
    client.server.expire_tokens();
    let (status, answer) = client.call("GET", &format!("{MAPS}?limit=2&continue={token}"), &Value::Null);
    assert_eq!((status, &answer["reason"]), (410, &json!("Expired")));
    let chosen = client.get("/api/v1/configmaps?limit=1&labelSelector=!none");
    assert!(chosen["metadata"].get("continue").is_some());
    assert!(chosen["metadata"].get("remainingItemCount").is_none(), "nobody counts what a selector chooses");
}

#[test]
fn a_watch_goes_on_from_where_a_list_was() {
    let mut client = Client::new();
    client.ok("POST", MAPS, &map("a"));
    let from = client.get(MAPS)["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    client.ok("POST", MAPS, &map("b"));
    let uri = format!("{MAPS}?watch=true&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=25");
    let mut events = client.watch(&uri);
    client.ok("DELETE", &format!("{MAPS}/a"), &Value::Null);
    client.server.bookmark();
    assert_eq!(kinds_of(&said(&mut events).0), ["ADDED b", "DELETED a", "BOOKMARK -"]);
    client.server.end_watches();
    assert!(said(&mut events).1);
    client.server.cut_history();
    let (events, ended) = said(&mut client.watch(&uri));
    assert!(ended && events.len() == 1);
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let expected = format!("too old resource version: {from} ({})", client.server.revision());
    assert_eq!(events[0]["object"]["message"], expected);
}

#[test]
fn an_object_that_leaves_a_selection_is_deleted_to_its_watch() {
    let mut client = Client::new();
    let mut events = client.watch(&format!("{MAPS}?watch=true&labelSelector=on%3Dyes"));
    client.ok("POST", MAPS, &map("a"));
    let label = |value: Value| json!({"metadata": {"labels": {"on": value}}});
    client.ok("MERGE", &format!("{MAPS}/a"), &label("yes".into()));
    client.ok("MERGE", &format!("{MAPS}/a"), &json!({"data": {"a": "2"}}));
    client.ok("MERGE", &format!("{MAPS}/a"), &label(Value::Null));
    assert_eq!(kinds_of(&said(&mut events).0), ["ADDED a", "MODIFIED a", "DELETED a"]);
}

#[test]
fn a_definition_makes_its_group_appear_and_vanish() {
    let mut client = Client::with_widgets();
    let group = "/apis/fixture.belay.dev";
    let listed = client.get(&format!("{group}/v1"));
    let names: Vec<&str> =
        listed["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["gadgets", "gadgets/status", "stations", "widgets", "widgets/status"]);
    client.ok("POST", WIDGETS, &widget("a"));
    for plural in ["widgets", "gadgets", "stations"] {
        let uri =
            format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.fixture.belay.dev");
        client.ok("DELETE", &uri, &Value::Null);
    }
    let (status, message) = client.refused("POST", WIDGETS, &widget("b"));
    assert!(status == 403 && message.contains("definition is terminating"), "{message}");
    client.settle();
    assert_eq!(client.refused("GET", group, &Value::Null), (404, "404 page not found\n".to_owned()));
    assert_eq!(client.refused("GET", WIDGETS, &Value::Null), (404, "404 page not found\n".to_owned()));
}

#[test]
fn all_versions_of_a_kind_show_the_same_objects() {
    let mut client = Client::new();
    let crds = standins::crds::crds(standins::Family::EventMesh, None).unwrap();
    let services = crds.iter().find(|crd| crd["metadata"]["name"] == "services.serving.knative.dev").unwrap();
    client.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", services);
    client.settle();
    let at = |version: &str| format!("/apis/serving.knative.dev/{version}/namespaces/n/services");
    let body = json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "a"}});
    let made = client.ok("POST", &at("v1"), &body);
    assert_eq!(made["apiVersion"], "serving.knative.dev/v1");
    let found = client.get(&format!("{}/a", at("v1alpha1")));
    assert_eq!(found["apiVersion"], "serving.knative.dev/v1alpha1");
    assert_eq!(found["metadata"]["uid"], made["metadata"]["uid"]);
    let group = client.get("/apis/serving.knative.dev");
    assert_eq!(group["preferredVersion"]["version"], "v1");
}

#[test]
fn dependents_follow_their_owner() {
    let mut client = Client::new();
    let owner = client.ok("POST", MAPS, &map("owner"));
    let dependent = |name: &str| {
        json!({"metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true,
        }]}})
    };
    client.ok("POST", MAPS, &dependent("a"));
    client.settle();
    client.ok("DELETE", &format!("{MAPS}/owner"), &json!({"propagationPolicy": "Orphan"}));
    client.settle();
    assert_eq!(client.call("GET", &format!("{MAPS}/owner"), &Value::Null).0, 404);
    assert!(client.get(&format!("{MAPS}/a"))["metadata"].get("ownerReferences").is_none());
    // One whose owner never was, or is another by now.
    client.ok("POST", MAPS, &map("owner"));
    client.ok("POST", MAPS, &dependent("b"));
    client.settle();
    assert_eq!(client.call("GET", &format!("{MAPS}/b"), &Value::Null).0, 404);
    assert_eq!(client.call("GET", &format!("{MAPS}/owner"), &Value::Null).0, 200);
}

#[test]
fn an_owner_that_is_deleted_in_the_foreground_goes_last() {
    let mut client = Client::new();
    let owner = client.ok("POST", MAPS, &map("owner"));
    let mut dependent = json!({"metadata": {"name": "a", "finalizers": ["x/y"], "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    }]}});
    client.ok("POST", MAPS, &dependent);
    let going = client.ok("DELETE", &format!("{MAPS}/owner"), &json!({"propagationPolicy": "Foreground"}));
    assert_eq!(going["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    client.settle();
    dependent = client.get(&format!("{MAPS}/a"));
    assert!(metadata::is_terminating(&dependent));
    client.get(&format!("{MAPS}/owner"));
    client.ok("MERGE", &format!("{MAPS}/a"), &json!({"metadata": {"finalizers": null}}));
    client.settle();
    let left = client.get(MAPS);
    let names: Vec<&str> =
        left["items"].as_array().unwrap().iter().map(|one| metadata::text(one, "name")).collect();
    assert_eq!(names, ["kube-root-ca.crt"], "every namespace has that");
}

#[test]
fn rbac_is_asked_once_it_is_enforced() {
    let mut client = Client::new();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    client.ok(
        "POST",
        &format!("{rbac}/namespaces/n/roles"),
        &json!({"metadata": {"name": "r"}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["get"]},
        ]}),
    );
    client.ok(
        "POST",
        &format!("{rbac}/namespaces/n/rolebindings"),
        &json!({
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "step", "namespace": "home"}],
        }),
    );
    client.user = "system:serviceaccount:home:step";
    client.get("/api/v1/secrets");
    client.server.enforce_rbac(true);
    client.get(MAPS);
    assert_eq!(
        client.refused("GET", "/api/v1/configmaps", &Value::Null),
        (
            403,
            "configmaps is forbidden: User \"system:serviceaccount:home:step\" cannot list resource \"configmaps\" in \
             API group \"\" at the cluster scope"
                .to_owned()
        )
    );
    let (status, message) = client.refused("POST", MAPS, &map("a"));
    assert_eq!(status, 403);
    assert!(
        message.ends_with("cannot create resource \"configmaps\" in API group \"\" in the namespace \"n\"")
    );
    let mut may = |verb: &str, resource: &str, name: &str| {
        let body = json!({"spec": {"resourceAttributes": {
            "namespace": "n", "verb": verb, "group": "", "resource": resource, "name": name,
        }}});
        let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        client.ok("POST", uri, &body)["status"]["allowed"] == true
    };
    assert!(may("get", "secrets", "s") && may("list", "configmaps", ""));
    assert!(!may("get", "secrets", "t") && !may("delete", "configmaps", "") && !may("*", "*", ""));
}

#[test]
fn the_policies_of_the_stand_ins_are_in_force_once_they_are_bound() {
    let mut client = Client::new();
    for crd in standins::crds::crds(standins::Family::EventMesh, None).unwrap() {
        client.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
    }
    client.settle();
    let triggers = "/apis/eventing.knative.dev/v1alpha1/namespaces/n/triggers";
    let bad = standins::fixtures::trigger("probe", "n", "shop", "order", "nowhere");
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["eventing.knative.dev"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["triggers"],
        }]},
        "validations": [{
            "expression": "has(object.spec.subscriber.ref) != (has(object.spec.subscriber.uri) && \
                isURL(object.spec.subscriber.uri) && url(object.spec.subscriber.uri).getHost() != '')",
            "message": "a ref or a uri",
        }],
    }});
    client.ok("POST", &format!("{policies}/validatingadmissionpolicies"), &policy);
    let dry = format!("{triggers}?dryRun=All");
    client.ok("POST", &dry, &bad);
    let binding =
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    client.ok("POST", &format!("{policies}/validatingadmissionpolicybindings"), &binding);
    let (status, answer) = client.call("POST", &dry, &bad);
    assert_eq!((status, &answer["reason"]), (422, &json!("Invalid")));
    assert_eq!(
        answer["message"],
        "triggers.eventing.knative.dev \"probe\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied \
         request: a ref or a uri"
    );
    let good = standins::fixtures::trigger("good", "n", "shop", "order", "http://a.b/");
    client.ok("POST", triggers, &good);
    let mut odd = policy;
    odd["spec"]["validations"][0]["expression"] = "true".into();
    odd["metadata"]["name"] = "odd".into();
    assert_eq!(client.call("POST", &format!("{policies}/validatingadmissionpolicies"), &odd).0, 501);
    assert_eq!(client.server.unknown().len(), 1);
}

#[test]
fn a_quota_counts_objects() {
    let mut client = Client::new();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1"}}});
    client.ok("POST", "/api/v1/namespaces/n/resourcequotas", &quota);
    client.ok("POST", MAPS, &map("a"));
    assert_eq!(
        client.refused("POST", MAPS, &map("b")),
        (
            403,
            "configmaps \"b\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: \
             count/configmaps=1, limited: count/configmaps=1"
                .to_owned()
        )
    );
}

#[test]
fn a_lease_is_updated_only_with_its_version_and_made_by_an_update() {
    let mut client = Client::new();
    let uri = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    assert_eq!(client.call("PUT", uri, &lease).0, 201);
    assert_eq!(client.call("PUT", uri, &lease).0, 422);
}

#[test]
fn events_are_the_same_in_both_groups() {
    let mut client = Client::new();
    let event = json!({
        "metadata": {"name": "e"}, "note": "done", "regarding": {"kind": "Pod", "name": "p"}, "reason": "Done",
        "type": "Normal", "action": "Run", "reportingController": "belay", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    client.ok("POST", "/apis/events.k8s.io/v1/namespaces/n/events", &event);
    let core = client.get("/api/v1/namespaces/n/events/e");
    assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("done"), &json!("p")));
    let new = client.get("/apis/events.k8s.io/v1/namespaces/n/events/e");
    assert_eq!((&new["apiVersion"], &new["note"]), (&json!("events.k8s.io/v1"), &json!("done")));
}

#[test]
fn what_is_not_known_is_refused_and_remembered() {
    let mut client = Client::new();
    for (method, uri) in [
        ("GET", "/api/v1/nodes"),
        ("GET", "/apis/networking.k8s.io/v1/ingresses"),
        ("GET", "/api/v1/configmaps?orphanDependents=true"),
        ("GET", "/api/v1/namespaces/n/pods/p/log"),
        ("GET", "/metrics"),
    ] {
        assert_eq!(client.call(method, uri, &Value::Null).0, 501, "{uri}");
    }
    let policy = json!({"orphanDependents": true});
    client.ok("POST", MAPS, &map("a"));
    assert_eq!(client.call("DELETE", &format!("{MAPS}/a"), &policy).0, 501);
    assert_eq!(client.server.unknown().len(), 6);
    assert_eq!(client.call("GET", "/apis/old.io/v1/olds", &Value::Null).0, 404);
    assert_eq!(client.server.unknown().len(), 6);
}

#[test]
fn a_clone_goes_its_own_way() {
    let mut client = Client::new();
    client.ok("POST", MAPS, &map("a"));
    let mut events = client.watch(&format!("{MAPS}?watch=true"));
    let mut copy = Client { server: client.server.clone(), user: "admin" };
    let mine = client.ok("POST", MAPS, &map("b"));
    let its = copy.ok("POST", MAPS, &map("b"));
    assert_eq!(mine, its, "the same calls give the same objects");
    copy.ok("POST", MAPS, &map("c"));
    assert_eq!(kinds_of(&said(&mut events).0), ["ADDED a", "ADDED b"]);
    assert_eq!(client.call("GET", &format!("{MAPS}/c"), &Value::Null).0, 404);
}

#[test]
fn apply_creates_and_then_changes() {
    let mut client = Client::with_widgets();
    let uri = format!("{WIDGETS}/a?fieldManager=me&force=true");
    assert_eq!(client.call("APPLY", &uri, &widget("a")).0, 201);
    let mut more = widget("a");
    more["spec"]["size"] = 4.into();
    assert_eq!(client.call("APPLY", &uri, &more).0, 200);
    let (status, message) = client.refused("APPLY", &format!("{WIDGETS}/a"), &more);
    assert_eq!(status, 422);
    assert_eq!(
        message,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
}
