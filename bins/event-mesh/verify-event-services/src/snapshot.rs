//! What the step reads before it waits.

use std::collections::{BTreeMap, BTreeSet};

use belay_runtime::{Failure, Reader, kinds, object::text};
use event_mesh_kinds::{
    APPLICATION,
    event_service::{Installation, application_of},
};

use crate::Args;

/// All that the step read before it decided.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The Applications, by their names.
    pub applications: BTreeMap<String, Installation>,
    /// The Applications, or what would be their names, that have an event-service.
    pub services: BTreeSet<String>,
    /// The images that event-services must run; else why nobody says so.
    pub images: Result<Vec<String>, String>,
    /// That the operator, which alone updates event-services, does not run.
    pub operator_down: Option<String>,
}

pub(crate) async fn read(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
    let applications = reader
        .scan(&APPLICATION, None, |object| {
            Some((text(object, "/metadata/name")?.to_owned(), Installation::of(object)))
        })
        .await?;
    let services = reader
        .scan(&kinds::DEPLOYMENT, Some(&args.expected.integration_namespace), |object| {
            application_of(text(object, "/metadata/name")?).map(str::to_owned)
        })
        .await?;
    // With the image given, the operator need not be readable.
    let operator = if args.expected.images.is_empty() {
        reader.get(&args.expected.application_operator).await?.live()
    } else {
        None
    };
    Ok(Snapshot {
        applications: applications.into_iter().collect(),
        services: services.into_iter().collect(),
        images: args.expected.images(operator.as_ref()),
        operator_down: args.expected.operator_down(operator.as_ref()),
    })
}
