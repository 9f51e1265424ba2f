//! A step with what no shipped step has yet: two source APIs, an optional one, and a done record.
//!
//! It writes a note for each Widget, once: whoever throws a note away does not get it again.

use std::{process::ExitCode, time::Duration};

use belay_runtime::{
    Chain, Common, Failure, Kind, Meta, Move, Needs, ObjectRef, Plan, Reader, Registered, Rule, Step,
    ThisMachine, kinds, program,
};
use serde_json::json;

const WIDGET: Kind = Kind::namespaced("fixture.belay.dev", "v1", "Widget", "widgets");
const GADGET: Kind = Kind::namespaced("fixture.belay.dev", "v1", "Gadget", "gadgets");
const STATION: Kind = Kind::cluster_wide("fixture.belay.dev", "v1", "Station", "stations");

struct Noted;

#[derive(clap::Args)]
struct Args {
    #[arg(long)]
    workshop: String,
}

struct Snapshot {
    /// Widgets that have no note and are not on record.
    widgets: Vec<ObjectRef>,
}

impl Step for Noted {
    const META: Meta = Meta {
        name: "noted",
        family: "noted",
        family_steps: &["noted"],
        purpose: "Writes a note for each Widget, once",
        default_home: "default",
        deadline: Duration::from_secs(60),
        undo_reserve: Duration::from_secs(30),
        keeps_done_record: true,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let workshop = Some(args.workshop.as_str());
        Needs {
            sources: vec![WIDGET, GADGET],
            optional: vec![STATION],
            rules: vec![
                Rule::on(&WIDGET, workshop, &["list"]),
                Rule::on(&kinds::CONFIG_MAP, workshop, &["get", "list", "watch", "create", "delete"]),
            ],
            ..Needs::default()
        }
    }

    async fn snapshot(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
        let notes = reader.list(&kinds::CONFIG_MAP, Some(&args.workshop)).await?;
        let widgets = reader.list(&WIDGET, Some(&args.workshop)).await?.into_iter().map(|item| item.object);
        let is_new = |widget: &ObjectRef| {
            let note = note_of(widget);
            reader.done_before(widget).is_none() && !notes.iter().any(|item| item.object == note)
        };
        Ok(Snapshot { widgets: widgets.filter(is_new).collect() })
    }

    fn plan(_: &Args, snapshot: &Snapshot) -> Plan {
        let chain = |widget: &ObjectRef| {
            let note = note_of(widget);
            let mut body = note.manifest();
            body["data"] = json!({"about": widget.name});
            Chain::new(widget.clone(), vec![Move::create(note, &body, &["data.about"])])
        };
        Plan { phases: vec![snapshot.widgets.iter().map(chain).collect()], ..Plan::default() }
    }
}

fn note_of(widget: &ObjectRef) -> ObjectRef {
    kinds::CONFIG_MAP.object(widget.namespace.clone().unwrap_or_default(), format!("{}-note", widget.name))
}

fn main() -> ExitCode {
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let step = Registered::of::<Noted>();
    if words.get(1).is_some_and(|word| word == "restore") {
        return operate::main(&[step]);
    }
    words[0] = step.meta.name.into();
    program::main(step.story(words, ThisMachine::host()))
}
