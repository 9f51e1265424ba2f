//! The objects, one revision counter for all of them, and what happened to them: for watches and for lists in pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::kinds::TableKey;

/// Namespace and name; the namespace of cluster-scoped objects is empty.
pub(crate) type Key = (String, String);

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub revision: u64,
    pub key: Key,
    /// What was there before.
    pub old: Option<Arc<Value>>,
    /// What is there since. Of a deleted object its last state, at the revision of the deletion.
    pub new: Arc<Value>,
    pub deleted: bool,
}

/// All objects of one resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub objects: BTreeMap<Key, Arc<Value>>,
    /// The writes since the history was cut.
    pub history: Vec<Event>,
}

impl Table {
    /// The objects as they were at a revision that the history still covers.
    pub fn at(&self, revision: u64) -> BTreeMap<Key, Arc<Value>> {
        let mut objects = self.objects.clone();
        for event in self.history.iter().rev().take_while(|event| event.revision > revision) {
            match &event.old {
                Some(old) => objects.insert(event.key.clone(), old.clone()),
                None => objects.remove(&event.key),
            };
        }
        objects
    }

    /// The writes after a revision.
    pub fn since(&self, revision: u64) -> &[Event] {
        let first = self.history.partition_point(|event| event.revision <= revision);
        &self.history[first..]
    }
}

/// The store. Clones share tables until one of them writes.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    tables: BTreeMap<TableKey, Arc<Table>>,
    revision: u64,
    /// Nothing before this revision is known any more.
    compacted: u64,
    uids: u64,
    names: u64,
}

impl Default for Store {
    fn default() -> Self {
        // Revision 0 means "any" to the API, and 1 is an empty etcd.
        Self { tables: BTreeMap::new(), revision: 1, compacted: 1, uids: 0, names: 0 }
    }
}

impl Store {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    pub fn table(&self, table: &TableKey) -> Option<&Table> {
        self.tables.get(table).map(|table| &**table)
    }

    pub fn tables(&self) -> impl Iterator<Item = (&TableKey, &Table)> {
        self.tables.iter().map(|(key, table)| (key, &**table))
    }

    pub fn get(&self, table: &TableKey, key: &Key) -> Option<&Arc<Value>> {
        self.table(table)?.objects.get(key)
    }

    /// Stores an object at the next revision, which it is given.
    pub fn put(&mut self, table: &TableKey, key: &Key, mut object: Value) -> Event {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let new = Arc::new(object);
        let old = self.table_mut(table).objects.insert(key.clone(), new.clone());
        self.note(table, Event { revision: self.revision, key: key.clone(), old, new, deleted: false })
    }

    /// Removes an object; `last` is its last state.
    pub fn remove(&mut self, table: &TableKey, key: &Key, mut last: Value) -> Event {
        self.revision += 1;
        last["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let old = self.table_mut(table).objects.remove(key);
        let new = Arc::new(last);
        self.note(table, Event { revision: self.revision, key: key.clone(), old, new, deleted: true })
    }

    fn note(&mut self, table: &TableKey, event: Event) -> Event {
        self.table_mut(table).history.push(event.clone());
        event
    }

    fn table_mut(&mut self, table: &TableKey) -> &mut Table {
        if !self.tables.contains_key(table) {
            self.tables.insert(table.clone(), Arc::default());
        }
        Arc::make_mut(self.tables.get_mut(table).expect("it was just put there"))
    }

    /// The next revision, at which nothing is written that anybody here can see.
    pub fn skip_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Forgets all that happened so far.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        for table in self.tables.values_mut() {
            if !table.history.is_empty() {
                Arc::make_mut(table).history.clear();
            }
        }
    }

    /// The next uid: always the same ones in the same order.
    pub fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// The end of the next generated name, in the letters that the real server takes: no vowels, so no words.
    pub fn next_suffix(&mut self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        self.names += 1;
        let mut rest = self.names;
        let mut suffix = [b'b'; 5];
        for letter in suffix.iter_mut().rev() {
            let digit = usize::try_from(rest % 27).unwrap_or_default();
            *letter = LETTERS[digit];
            rest /= 27;
        }
        suffix.iter().map(|letter| char::from(*letter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_past_can_be_read_until_it_is_cut() {
        let mut store = Store::default();
        let table = (String::new(), "configmaps".to_owned());
        let key = |name: &str| ("n".to_owned(), name.to_owned());
        store.put(&table, &key("a"), json!({"metadata": {}, "data": 1}));
        let then = store.revision();
        store.put(&table, &key("a"), json!({"metadata": {}, "data": 2}));
        store.put(&table, &key("b"), json!({"metadata": {}}));
        store.remove(&table, &key("a"), json!({"metadata": {}, "data": 2}));
        let past = store.table(&table).unwrap().at(then);
        assert_eq!(past.len(), 1);
        assert_eq!(past[&key("a")]["data"], 1);
        assert_eq!(store.table(&table).unwrap().since(then).len(), 3);
        let copy = store.clone();
        store.compact();
        assert!(store.table(&table).unwrap().since(then).is_empty());
        assert_eq!(copy.table(&table).unwrap().since(then).len(), 3, "a clone keeps its own");
    }

    #[test]
    fn uids_and_generated_names_do_not_repeat() {
        let mut store = Store::default();
        assert_ne!(store.next_uid(), store.next_uid());
        assert_ne!(store.next_suffix(), store.next_suffix());
        assert_eq!(store.next_suffix().len(), 5);
    }
}
