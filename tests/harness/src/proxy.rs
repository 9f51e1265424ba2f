//! A [`Gateway`] that a step reaches over plain HTTP: credentials and TLS towards the API server are kube's own, from a
//! kubeconfig.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    call::Call,
    fault::Fault,
    gateway::{Cut, Gateway, KillSwitch, Message, ProxyBody, Record, Shared, Upstream, serve},
};

/// The API server takes no larger bodies either.
const BODY_LIMIT: usize = 8 << 20;

/// The proxy of one run.
pub struct Proxy {
    address: SocketAddr,
    gateway: Gateway,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy on a free port of the loopback interface. Without a kill switch nothing can be killed, and
    /// faults that kill only cut the connection.
    pub async fn start(upstream: &Upstream, faults: Vec<Fault>, kill: Option<KillSwitch>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let gateway = Gateway::new(upstream, faults, kill);
        let accepting = tokio::spawn(accept(listener, address, gateway.shared.clone()));
        Ok(Self { address, gateway, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig that leads to the proxy.
    ///
    /// It names certificate authorities although there is no TLS: without any, every start of a client would read
    /// all of the system's, which takes longer than the rest of a small run.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let cluster = serde_json::json!({
            "server": format!("http://{}", self.address),
            "certificate-authority-data": self.gateway.shared.upstream.authorities,
        });
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        })
        .to_string()
    }

    /// What it has seen so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.gateway.calls()
    }

    /// Waits until a call of which this is true has been dealt with.
    pub async fn when(&self, matcher: impl Fn(&Call) -> bool, within: Duration) -> Result<Call> {
        self.gateway.when(matcher, within).await
    }

    /// Cuts all connections and accepts no new one for a while.
    pub fn refuse(&self, lasting: Duration) {
        self.gateway.refuse(lasting);
    }

    /// Waits for the calls under way, sends what should have landed late and has not, and stops.
    pub async fn stop(self) -> Record {
        let record = self.gateway.stop().await;
        self.accepting.abort();
        record
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Accepts connections until the task is aborted; while connections are refused the port is closed.
async fn accept(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut refuse = shared.refuse.subscribe();
    let mut listener = Some(listener);
    // Connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Some(open) = &listener else {
            let until = *refuse.borrow_and_update();
            if let Some(until) = until {
                tokio::time::sleep_until(until).await;
            }
            match TcpListener::bind(address).await {
                Ok(again) => listener = Some(again),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            continue;
        };
        tokio::select! {
            _ = refuse.changed() => {
                listener = None;
                connections.abort_all();
            }
            accepted = open.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                let shared = shared.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| receive(shared.clone(), request));
                    // An error here is a cut connection, by the step's end or on purpose.
                    let _ = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn receive(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<ProxyBody>, Cut> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_LIMIT).collect().await.map_err(|_| Cut)?.to_bytes();
    serve(shared, Message::new(parts, body)).await
}
