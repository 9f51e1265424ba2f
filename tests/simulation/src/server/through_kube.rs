//! The server behind a real client: what kube and the stand-ins send must all be known to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use kube::client::Body;
use standins::{Behaviour, Controller, Family, Standins, cluster, crds, fixtures, kinds, policies};

use super::{Answer, Request, Server};

fn client(server: &Arc<Mutex<Server>>) -> kube::Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let header =
                |name| parts.headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
            let request = Request {
                method: parts.method.clone(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                content_type: header(http::header::CONTENT_TYPE).unwrap_or_default().to_owned(),
                body: body.collect_bytes().await?,
                user: "admin".to_owned(),
                agent: "test".to_owned(),
            };
            let answer = server.lock().unwrap().handle(&request, Timestamp::now());
            let (status, body): (u16, UnsyncBoxBody<Bytes, std::convert::Infallible>) = match answer {
                Answer::Whole { status, body } => {
                    let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                    (status, Full::new(Bytes::from(text)).boxed_unsync())
                }
                Answer::Watch { events, timeout } => {
                    let end = tokio::time::sleep(Duration::from_secs(timeout.unwrap_or(300).into()));
                    let lines = events.take_until(Box::pin(end));
                    let frames = lines.filter_map(|line| async { Full::new(line).frame().await });
                    (200, StreamBody::new(frames).boxed_unsync())
                }
            };
            let response = http::Response::builder().status(status).body(body)?;
            Ok::<_, tower::BoxError>(response)
        }
    });
    kube::Client::new(service, "default")
}

/// Runs the cluster's own controllers as long as the test does.
fn reconcile(server: &Arc<Mutex<Server>>) -> tokio::task::JoinHandle<()> {
    let server = server.clone();
    tokio::spawn(async move {
        loop {
            server.lock().unwrap().reconcile(Timestamp::now());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
}

#[tokio::test]
async fn the_stand_ins_ask_for_nothing_that_is_not_known() {
    let server = Arc::new(Mutex::new(Server::new(Timestamp::now())));
    let controllers = reconcile(&server);
    let client = client(&server);
    for family in [Family::Fixture, Family::EventMesh] {
        crds::install_crds(&client, family, None).await.unwrap();
    }
    policies::install(&client).await.unwrap();
    cluster::ensure_namespace(&client, "n").await.unwrap();
    let behaviour =
        Behaviour { controllers: vec![Controller::Widget, Controller::Gadget], ..Behaviour::default() };
    let standins = Standins::start(&client, behaviour);
    cluster::create(&client, &fixtures::widget("w", "n", 3)).await.unwrap();
    cluster::create(&client, &fixtures::gadget("g", "n", "w")).await.unwrap();
    let patience = Duration::from_secs(10);
    cluster::wait_ready(&client, &kinds::WIDGET, "n", "w", patience).await.unwrap();
    cluster::wait_ready(&client, &kinds::GADGET, "n", "g", patience).await.unwrap();
    cluster::delete(&client, &kinds::GADGET, "n", "g").await.unwrap();
    cluster::wait_until("the gadget is gone", patience, async || {
        Ok(cluster::get(&client, &kinds::GADGET, "n", "g").await?.is_none())
    })
    .await
    .unwrap();
    policies::remove(&client).await.unwrap();
    drop(standins);
    crds::remove_crds(&client, Family::Fixture).await.unwrap();
    controllers.abort();
    assert_eq!(server.lock().unwrap().unknown(), [] as [String; 0]);
}
