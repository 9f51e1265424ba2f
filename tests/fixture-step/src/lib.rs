//! A step that lives in tests only and makes every move there is, so that the runtime is proven before the families
//! come.
//!
//! In one namespace, the workshop, it
//! - makes a Gadget for each Widget that has none, and a `ConfigMap` that this Gadget owns (an owner made earlier in the
//!   chain), waits until the Gadget is Ready, and sets the Widget's phase;
//! - recreates the Gadgets that are labelled `recreate`, whose finalizer a controller serves;
//! - replaces the `ConfigMaps` labelled `replace` by new ones: make before break;
//! - scales the Deployments labelled `scale` to zero;
//! - gives the Widgets labelled `part` one part more, with an undo of its own;
//! - advances the Station from Closed to Opening, in a second phase;
//! - past the point of no return, advances it to Open and deletes the `ConfigMaps` labelled `leftover`.

use std::time::Duration;

use belay_runtime::{
    Chain, Common, Failure, Field, FieldPath, Finding, Item, Kind, Meta, Move, Needs, ObjectRef, Owner, Plan,
    Progress, Reader, Removal, Rule, Scope, Step, Test, Undo, kinds, object::text,
};
use serde_json::{Value, json};

const WIDGET: Kind = Kind::namespaced("fixture.belay.dev", "v1", "Widget", "widgets");
const GADGET: Kind = Kind::namespaced("fixture.belay.dev", "v1", "Gadget", "gadgets");
const STATION: Kind = Kind::cluster_wide("fixture.belay.dev", "v1", "Station", "stations");

/// Objects that the step changes bear this label; its value says how.
const LABEL: &str = "fixture";

/// How long a wait may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The step.
pub struct Fixture;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Namespace of the objects.
    #[arg(long)]
    pub workshop: String,
    /// Name of the Station.
    #[arg(long, default_value = "central")]
    pub station: String,
    /// Stay before the point of no return.
    #[arg(long)]
    pub reversible: bool,
}

/// What it read.
pub struct Snapshot {
    widgets: Vec<Item>,
    gadgets: Vec<Item>,
    config_maps: Vec<Item>,
    deployments: Vec<Item>,
    station: Item,
}

impl Step for Fixture {
    const META: Meta = Meta {
        name: "fixture",
        family: "fixture",
        family_steps: &["fixture"],
        purpose: "Makes every move there is",
        default_home: "default",
        deadline: Duration::from_secs(60),
        undo_reserve: Duration::from_secs(30),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let workshop = Some(args.workshop.as_str());
        Needs {
            sources: vec![WIDGET],
            targets: vec![GADGET, STATION],
            rules: vec![
                Rule::on(&WIDGET, workshop, &["get", "list", "watch", "patch"]),
                // patch: to give the fields of what is made again back to those whose they were.
                Rule::on(&GADGET, workshop, &["get", "list", "watch", "create", "delete", "patch"]),
                Rule::on(
                    &kinds::CONFIG_MAP,
                    workshop,
                    &["get", "list", "watch", "create", "delete", "patch"],
                ),
                Rule::on(&kinds::DEPLOYMENT, workshop, &["get", "list", "watch", "patch"]),
                Rule::on(&kinds::DEPLOYMENT, workshop, &["patch"]).subresource("scale"),
                Rule::on(&STATION, None, &["get", "patch"]),
            ],
            ..Needs::default()
        }
    }

    async fn snapshot(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
        let workshop = Some(args.workshop.as_str());
        Ok(Snapshot {
            widgets: reader.list(&WIDGET, workshop).await?,
            gadgets: reader.list(&GADGET, workshop).await?,
            config_maps: reader.list(&kinds::CONFIG_MAP, workshop).await?,
            deployments: reader.list(&kinds::DEPLOYMENT, workshop).await?,
            station: reader.get(&STATION.cluster_object(&args.station)).await?,
        })
    }

    fn plan(args: &Args, snapshot: &Snapshot) -> Plan {
        let mut plan = Plan::default();
        let mut first: Vec<Chain> = Vec::new();
        for widget in &snapshot.widgets {
            if is_marked(widget, "part") {
                first.push(one_part_more(widget));
            } else if text(&widget.origin(), "/spec/phase") != Some("Active") {
                match equip(widget, snapshot) {
                    Ok(chain) => first.push(chain),
                    Err(skip) => plan.findings.push(*skip),
                }
            }
        }
        // A Gadget does not show that it was recreated, so the Station's state before this step must tell.
        if text(&snapshot.station.origin(), "/spec/state") == Some("Closed") {
            first.extend(marked(&snapshot.gadgets, "recreate").map(recreate));
        }
        for old in marked(&snapshot.config_maps, "replace") {
            match replace(old, snapshot) {
                Ok(chain) => first.push(chain),
                Err(skip) => plan.findings.push(*skip),
            }
        }
        first.extend(marked(&snapshot.deployments, "scale").filter_map(scale_down));
        let Some(station) = snapshot.station.live() else {
            plan.findings.push(Finding::refuse(snapshot.station.object.clone(), "does not exist"));
            return plan;
        };
        let state = FieldPath::dotted("spec.state");
        let advance = |from: &[&str], to: &str| Move::advance(&snapshot.station, state.clone(), from, to);
        // A state says by itself how far it is: what it was before an earlier attempt does not matter.
        let now = text(&station, "/spec/state").unwrap_or_default();
        if now == "Closed" {
            let chain = Chain::new(snapshot.station.object.clone(), vec![advance(&["Closed"], "Opening")]);
            plan.phases = vec![first, vec![chain]];
        } else {
            plan.phases = vec![first];
        }
        if !args.reversible {
            let for_good = || Undo::None { reason: "an open Station has let passengers in".to_owned() };
            let leftovers = marked(&snapshot.config_maps, "leftover").map(|leftover| {
                let gone = Move::delete(leftover, Removal::within(PATIENCE)).undone_by(for_good());
                Chain::new(leftover.object.clone(), vec![gone])
            });
            plan.point_of_no_return.extend(leftovers);
            if now != "Open" {
                let open = advance(&["Opening"], "Open").undone_by(for_good());
                plan.point_of_no_return.push(Chain::new(snapshot.station.object.clone(), vec![open]));
            }
        }
        plan
    }
}

fn is_marked(item: &Item, value: &str) -> bool {
    item.origin().pointer("/metadata/labels").and_then(|labels| labels.get(LABEL)) == Some(&value.into())
}

fn marked<'a>(items: &'a [Item], value: &'a str) -> impl Iterator<Item = &'a Item> {
    items.iter().filter(move |item| is_marked(item, value) && !item.is_going())
}

fn ready() -> Test {
    Test::Condition("Ready".to_owned())
}

/// Whether an object is to be made; an error where another one bears its name.
fn is_missing(
    items: &[Item],
    wanted: &ObjectRef,
    is_it: impl Fn(&Value) -> bool,
) -> Result<bool, Box<Finding>> {
    let there = items.iter().find(|item| item.object == *wanted && item.is_there()).and_then(Item::live);
    match there {
        None => Ok(true),
        Some(live) if is_it(&live) => Ok(false),
        Some(_) => Err(Box::new(Finding::skip(wanted.clone(), "exists already and is another one"))),
    }
}

/// A Gadget and what it owns, then the Widget's phase.
fn equip(widget: &Item, snapshot: &Snapshot) -> Result<Chain, Box<Finding>> {
    let workshop = widget.object.namespace.clone().unwrap_or_default();
    let name = &widget.object.name;
    let gadget = GADGET.object(&workshop, name);
    let manual = kinds::CONFIG_MAP.object(&workshop, format!("{name}-manual"));
    let mut moves = Vec::new();
    if is_missing(&snapshot.gadgets, &gadget, |live| text(live, "/spec/widget") == Some(name))? {
        let mut body = gadget.manifest();
        body["spec"] = json!({"widget": name});
        moves.push(Move::create(gadget.clone(), &body, &["spec.widget"]));
    }
    if is_missing(&snapshot.config_maps, &manual, |live| text(live, "/data/about") == Some(name))? {
        let mut body = manual.manifest();
        body["data"] = json!({"about": name});
        let owner = Owner { object: gadget.clone(), controller: true, block_owner_deletion: true };
        moves.push(Move::create(manual, &body, &["data.about"]).owned_by(owner));
    }
    moves.push(Move::wait_for(gadget, ready(), PATIENCE));
    let phase = Field { path: FieldPath::dotted("spec.phase"), value: Some("Active".into()) };
    moves.push(Move::patch(widget, vec![phase]));
    moves.push(Move::wait_for(widget.object.clone(), ready(), PATIENCE));
    Ok(Chain::new(widget.object.clone(), moves))
}

fn recreate(gadget: &Item) -> Chain {
    let removal = Removal::within(PATIENCE).ready_when(ready());
    Chain::new(
        gadget.object.clone(),
        vec![Move::recreate(gadget, removal), Move::wait_for(gadget.object.clone(), ready(), PATIENCE)],
    )
}

/// The new one is there before the old one goes.
fn replace(old: &Item, snapshot: &Snapshot) -> Result<Chain, Box<Finding>> {
    let workshop = old.object.namespace.clone().unwrap_or_default();
    let new = kinds::CONFIG_MAP.object(workshop, format!("{}-new", old.object.name));
    let data = old.origin().get("data").cloned().unwrap_or_default();
    let mut moves = Vec::new();
    if is_missing(&snapshot.config_maps, &new, |live| live["data"] == data)? {
        let mut body = new.manifest();
        body["data"] = data;
        moves.push(Move::create(new, &body, &["data"]));
    }
    moves.push(Move::delete(old, Removal::within(PATIENCE)));
    Ok(Chain::new(old.object.clone(), moves))
}

fn scale_down(deployment: &Item) -> Option<Chain> {
    let replicas = deployment.origin().pointer("/spec/replicas").and_then(Value::as_i64)?;
    if replicas == 0 {
        return None;
    }
    let object = deployment.object.clone();
    let seen = object.clone();
    let wait = Move::wait_until(
        object.clone(),
        format!("{object} scaled down"),
        vec![Scope::of(&object)],
        PATIENCE,
        move |view| match view.get(&seen) {
            Some(live) if live.pointer("/status/replicas").and_then(Value::as_i64).unwrap_or(0) == 0 => {
                Progress::Done
            }
            _ => Progress::Pending("it still has replicas".to_owned()),
        },
    );
    Some(Chain::new(object, vec![Move::scale(deployment, 0), wait]))
}

/// One item more in a list whose other items belong to others, taken back by a patch that names it.
fn one_part_more(widget: &Item) -> Chain {
    let part = FieldPath::dotted("spec.parts").item("name", "handle");
    let set = |value: Option<Value>| vec![Field { path: part.clone(), value }];
    let back = Move::patch(widget, set(None));
    let more = Move::patch(widget, set(Some(json!({"name": "handle", "count": 1}))))
        .undone_by(Undo::Instead(vec![back, Move::wait_for(widget.object.clone(), ready(), PATIENCE)]));
    Chain::new(widget.object.clone(), vec![more, Move::wait_for(widget.object.clone(), ready(), PATIENCE)])
}
