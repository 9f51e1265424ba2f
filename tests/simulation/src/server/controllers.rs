//! The controllers that every cluster has: garbage collection, and the end of namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::{FOREGROUND, ORPHAN, Options, Propagation};
use super::kinds::{Resource, TableKey};
use super::store::Key;
use super::{Server, metadata};

/// One object that is there, as the garbage collector sees it.
struct Node {
    table: TableKey,
    key: Key,
    object: Arc<Value>,
}

/// What is left of an owner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Solid,
    /// It waits until its dependents are gone.
    Waiting,
    Absent,
    /// Its kind is not served: nobody can tell.
    Unknown,
}

fn owners(object: &Value) -> &[Value] {
    let list = object.get("metadata").and_then(|all| all.get("ownerReferences")).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    metadata::finalizers(object).contains(&name)
}

impl Server {
    /// One pass of garbage collection.
    pub(crate) fn collect_garbage(&mut self, now: Timestamp) -> bool {
        let mut nodes = Vec::new();
        let mut by_uid: BTreeMap<String, usize> = BTreeMap::new();
        let mut dependents: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (table, content) in self.store.tables() {
            for (key, object) in &content.objects {
                let index = nodes.len();
                by_uid.insert(metadata::text(object, "uid").to_owned(), index);
                for owner in owners(object) {
                    let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
                    dependents.entry(uid).or_default().push(index);
                }
                nodes.push(Node { table: table.clone(), key: key.clone(), object: object.clone() });
            }
        }
        let mut changed = false;
        for node in &nodes {
            let of = dependents.get(metadata::text(&node.object, "uid"));
            let own: Vec<&Node> = of.into_iter().flatten().map(|index| &nodes[*index]).collect();
            if metadata::is_terminating(&node.object) {
                changed |= self.release_owner(node, &own, now);
            } else if !owners(&node.object).is_empty() {
                changed |= self.collect(node, !own.is_empty(), &nodes, &by_uid, now);
            }
        }
        changed
    }

    /// Takes the collector's own finalizers off an owner whose dependents hold it no more.
    fn release_owner(&mut self, owner: &Node, dependents: &[&Node], now: Timestamp) -> bool {
        if has_finalizer(&owner.object, ORPHAN) {
            let uid = metadata::text(&owner.object, "uid");
            for dependent in dependents {
                self.drop_owners(dependent, |one| one["uid"] != uid, now);
            }
            return self.drop_finalizer(owner, ORPHAN, now);
        }
        if has_finalizer(&owner.object, FOREGROUND) {
            let uid = metadata::text(&owner.object, "uid");
            let blocks = |dependent: &&&Node| {
                owners(&dependent.object)
                    .iter()
                    .any(|one| one["uid"] == uid && one["blockOwnerDeletion"] == true)
            };
            if dependents.iter().find(blocks).is_none() {
                return self.drop_finalizer(owner, FOREGROUND, now);
            }
        }
        false
    }

    /// Deletes a dependent whose owners are gone, or takes those off that are.
    fn collect(
        &mut self,
        node: &Node,
        has_dependents: bool,
        nodes: &[Node],
        by_uid: &BTreeMap<String, usize>,
        now: Timestamp,
    ) -> bool {
        let states: Vec<Owner> =
            owners(&node.object).iter().map(|owner| self.state(owner, &node.key, nodes, by_uid)).collect();
        if states.contains(&Owner::Unknown) {
            return false;
        }
        if states.contains(&Owner::Solid) {
            if states.iter().all(|state| *state == Owner::Solid) {
                return false;
            }
            let solid: Vec<&Value> = owners(&node.object)
                .iter()
                .zip(&states)
                .filter(|(_, state)| **state == Owner::Solid)
                .map(|(owner, _)| &owner["uid"])
                .collect();
            return self.drop_owners(node, |one| solid.contains(&&one["uid"]), now);
        }
        let propagation = if states.contains(&Owner::Waiting) && has_dependents {
            Propagation::Foreground
        } else if has_finalizer(&node.object, ORPHAN) {
            Propagation::Orphan
        } else if has_finalizer(&node.object, FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        let options = Options {
            uid: Some(metadata::text(&node.object, "uid").to_owned()),
            propagation,
            ..Options::default()
        };
        let Some(resource) = self.resource_of(&node.table) else { return false };
        self.delete_object(&resource, &node.key, &options, now).is_ok()
    }

    fn state(
        &self,
        owner: &Value,
        dependent: &Key,
        nodes: &[Node],
        by_uid: &BTreeMap<String, usize>,
    ) -> Owner {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let kind = self
            .served
            .values()
            .find(|one| one.group == group && one.version == version && one.kind == text("kind"));
        let Some(kind) = kind else { return Owner::Unknown };
        let place =
            (if kind.namespaced { dependent.0.clone() } else { String::new() }, text("name").to_owned());
        let found = by_uid.get(text("uid")).map(|index| &nodes[*index]);
        match found.filter(|found| found.key == place && found.table == kind.table) {
            None => Owner::Absent,
            Some(found)
                if metadata::is_terminating(&found.object) && has_finalizer(&found.object, FOREGROUND) =>
            {
                Owner::Waiting
            }
            Some(_) => Owner::Solid,
        }
    }

    /// Any version of what is stored in a table.
    pub(crate) fn resource_of(&self, table: &TableKey) -> Option<Arc<Resource>> {
        let by_group = |one: &&Arc<Resource>| one.table == *table && one.group == table.0;
        self.served.values().find(by_group).cloned()
    }

    fn drop_owners(&mut self, node: &Node, stays: impl Fn(&Value) -> bool, now: Timestamp) -> bool {
        let mut new = Value::clone(&node.object);
        let left: Vec<Value> = owners(&new).iter().filter(|one| stays(one)).cloned().collect();
        if left.is_empty() {
            metadata::unset(&mut new, "ownerReferences");
        } else {
            metadata::set(&mut new, "ownerReferences", left);
        }
        self.write_back(&node.table, new, now)
    }

    fn drop_finalizer(&mut self, node: &Node, name: &str, now: Timestamp) -> bool {
        let mut new = Value::clone(&node.object);
        let left = metadata::finalizers(&node.object).into_iter().filter(|one| *one != name);
        let left: Vec<String> = left.map(str::to_owned).collect();
        metadata::set_finalizers(&mut new, &left);
        self.write_back(&node.table, new, now)
    }

    /// Whether it worked: after a conflict the next pass sees what is there then.
    fn write_back(&mut self, table: &TableKey, new: Value, now: Timestamp) -> bool {
        self.resource_of(table).is_some_and(|resource| {
            self.controller_update(&resource.group.clone(), &resource.plural.clone(), new, now).is_ok()
        })
    }

    /// Gives each namespace what every namespace has.
    pub(crate) fn furnish_namespaces(&mut self, now: Timestamp) -> bool {
        let namespaces = self.store.table(&(String::new(), "namespaces".to_owned()));
        let active: Vec<String> = namespaces
            .into_iter()
            .flat_map(|table| &table.objects)
            .filter(|(_, namespace)| !metadata::is_terminating(namespace))
            .map(|((_, name), _)| name.clone())
            .collect();
        let mut changed = false;
        for namespace in active {
            let about = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed \
                across distributions of Kubernetes clusters.";
            let bundle = json!({
                "metadata": {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": about}},
                "data": {"ca.crt": "simulated"},
            });
            let account = json!({"metadata": {"name": "default"}});
            for (plural, mut object) in [("configmaps", bundle), ("serviceaccounts", account)] {
                if self.get_raw("", plural, &namespace, metadata::text(&object, "name")).is_none() {
                    metadata::set(&mut object, "namespace", namespace.as_str());
                    changed |= self.controller_create("", plural, object, now).is_ok();
                }
            }
        }
        changed
    }

    /// Empties namespaces that are being deleted, and lets them go when they are empty.
    pub(crate) fn reconcile_namespaces(&mut self, now: Timestamp) -> bool {
        let table = (String::new(), "namespaces".to_owned());
        let going: Vec<(Key, Arc<Value>)> = self
            .store
            .table(&table)
            .into_iter()
            .flat_map(|table| &table.objects)
            .filter(|(_, namespace)| metadata::is_terminating(namespace))
            .map(|(key, namespace)| (key.clone(), namespace.clone()))
            .collect();
        let mut changed = false;
        for (key, namespace) in going {
            let kept = namespace["spec"]["finalizers"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one == "kubernetes"));
            if !kept {
                continue;
            }
            let content: Vec<(TableKey, Key, bool)> = self
                .store
                .tables()
                .flat_map(|(table, content)| {
                    let inside = content.objects.iter().filter(|((home, _), _)| *home == key.1);
                    inside.map(|(key, object)| (table.clone(), key.clone(), metadata::is_terminating(object)))
                })
                .collect();
            if content.is_empty() {
                let mut new = Value::clone(&namespace);
                if let Some(all) = new["spec"]["finalizers"].as_array_mut() {
                    all.retain(|one| one != "kubernetes");
                }
                let is_last = new["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
                if is_last && let Value::Object(spec) = &mut new["spec"] {
                    spec.remove("finalizers");
                }
                if is_last && metadata::finalizers(&new).is_empty() {
                    self.remove(&table, &key, Value::clone(&namespace));
                } else {
                    self.commit(&table, &key, new);
                }
                changed = true;
            }
            let options = Options { propagation: Propagation::Background, ..Options::default() };
            for (table, key, _) in content.into_iter().filter(|(_, _, going)| !going) {
                if let Some(resource) = self.resource_of(&table) {
                    changed |= self.delete_object(&resource, &key, &options, now).is_ok();
                }
            }
        }
        changed
    }
}
