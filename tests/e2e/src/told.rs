//! What a run said and did, as assertions that show the log when they fail.

use harness::{Call, Class, Exit, Outcome, call::writes_that_matter, run::Running};
use serde_json::Value;

/// Assertions on a run that has ended.
pub trait Told {
    /// It exited with this code.
    fn exits(&self, code: i32) -> &Self;
    /// It logged or printed this.
    fn says(&self, text: &str) -> &Self;
    /// It neither logged nor printed this.
    fn never_says(&self, text: &str) -> &Self;
    /// It wrote nothing but what every run writes: Lease, report, Event.
    fn changes_nothing(&self) -> &Self;
    /// It sent no write at all.
    fn writes_nothing(&self) -> &Self;
    /// Its moves that the server carried out, as `verb name`, in the order of arrival.
    fn moves(&self) -> Vec<String>;
    /// Its last log line without the time: the verdict.
    fn verdict(&self) -> String;
    /// What it printed, as JSON.
    fn json(&self) -> Value;
}

impl Told for Outcome {
    fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.exit, Exit::Code(code), "its log ends:\n{}", self.tail(40));
        self
    }

    fn says(&self, text: &str) -> &Self {
        let said = self.stderr.contains(text) || self.stdout.contains(text);
        assert!(said, "it does not say {text:?}; it says:\n{}\n{}", self.stdout, self.stderr);
        self
    }

    fn never_says(&self, text: &str) -> &Self {
        let said = self.stderr.contains(text) || self.stdout.contains(text);
        assert!(!said, "it says {text:?}:\n{}\n{}", self.stdout, self.stderr);
        self
    }

    fn changes_nothing(&self) -> &Self {
        let made: Vec<String> = writes_that_matter(&self.calls).iter().map(ToString::to_string).collect();
        assert!(made.is_empty(), "it wrote:\n{}\nits log:\n{}", made.join("\n"), self.stderr);
        self
    }

    fn writes_nothing(&self) -> &Self {
        let made: Vec<String> =
            self.calls.iter().filter(|call| call.is_write()).map(ToString::to_string).collect();
        assert!(made.is_empty(), "it wrote:\n{}\nits log:\n{}", made.join("\n"), self.stderr);
        self
    }

    fn moves(&self) -> Vec<String> {
        self.calls.iter().filter(|call| is_move(call) && call.succeeded()).map(move_of).collect()
    }

    fn verdict(&self) -> String {
        // 06:05:07 ERROR create-missing-sources: ...
        let last = self.stderr.lines().last().unwrap_or_default();
        last.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in:\n{}", self.stdout))
    }
}

/// What a run says while it is alive.
pub trait Telling {
    /// Waits until it has said this.
    fn until_it_says(&self, text: &str) -> impl Future<Output = ()>;
    /// Waits until it has sent a call of which this is true, whether or not that is answered.
    fn until_it_sends(&self, is_it: impl Fn(&Call) -> bool) -> impl Future<Output = ()>;
    /// Waits until it watches these resources: it has read all of them, and waits for something of them.
    fn until_it_watches(&self, resources: &[&str]) -> impl Future<Output = ()>;
}

impl Telling for Running {
    async fn until_it_says(&self, text: &str) {
        standins::cluster::wait_until(&format!("it says {text:?}"), crate::world::SOON, async || {
            Ok(self.stderr().contains(text))
        })
        .await
        .unwrap_or_else(|error| panic!("{error}; its log:\n{}", self.stderr()));
    }

    async fn until_it_sends(&self, is_it: impl Fn(&Call) -> bool) {
        standins::cluster::wait_until("the call is under way", crate::world::SOON, async || {
            Ok(self.proxy.calls().iter().any(&is_it))
        })
        .await
        .unwrap_or_else(|error| panic!("{error}; its log:\n{}", self.stderr()));
    }

    async fn until_it_watches(&self, resources: &[&str]) {
        for resource in resources {
            let watches = |call: &Call| call.class == Class::Watch && call.target.resource == *resource;
            self.proxy
                .when(watches, crate::world::SOON)
                .await
                .unwrap_or_else(|error| panic!("{error} of {resource}; its log:\n{}", self.stderr()));
        }
    }
}

/// Whether a call is a move's write.
#[must_use]
pub fn is_move(call: &Call) -> bool {
    call.class == Class::Move && call.is_write()
}

fn move_of(call: &Call) -> String {
    let part = call.target.subresource.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
    format!("{} {}{part}", call.verb, call.name.clone().unwrap_or_default())
}
