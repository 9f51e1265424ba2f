//! What the controllers that hold a finalizer have in common: put it on, and take it off some time after deletion.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;

use crate::behaviour::{Behaviour, names};
use crate::engine::{Action, Failed, Shared, going, key};
use crate::kinds::Kind;

/// What to do with the object after its finalizer was looked after.
pub enum Next {
    /// It lives and has its finalizer: go on with this.
    Live(Arc<DynamicObject>),
    /// It is on its way out: that is all for now.
    Leaving(Action),
}

/// Puts the finalizer on a living object; takes it off a deleted one some time after.
pub async fn look(
    shared: &Shared,
    behaviour: &Behaviour,
    kind: &Kind,
    finalizer: &str,
    after: Duration,
    object: Arc<DynamicObject>,
) -> Result<Next, Failed> {
    let (namespace, name) = key(&object);
    let has = object.finalizers().iter().any(|f| f == finalizer);
    if !going(&object) {
        if has {
            return Ok(Next::Live(object));
        }
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(finalizer.to_owned());
        return Ok(Next::Live(shared.write_finalizers(kind, &object, &finalizers).await?));
    }
    if !has || names(&behaviour.hold_finalizer, kind, &namespace, &name) {
        return Ok(Next::Leaving(Action::await_change()));
    }
    if let Some(rest) = shared.remaining(&object, "finalizer", after) {
        return Ok(Next::Leaving(Action::requeue(rest)));
    }
    release(shared, kind, finalizer, &object).await?;
    Ok(Next::Leaving(Action::await_change()))
}

/// Takes the finalizer off; that the object is gone already is no error.
pub async fn release(
    shared: &Shared,
    kind: &Kind,
    finalizer: &str,
    object: &DynamicObject,
) -> Result<(), Failed> {
    let finalizers: Vec<String> = object.finalizers().iter().filter(|f| *f != finalizer).cloned().collect();
    match shared.write_finalizers(kind, object, &finalizers).await {
        Err(Failed::Call(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}
