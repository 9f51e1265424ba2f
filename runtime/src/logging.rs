//! Log lines, and the progress that a person watches.

use std::{io::Write as _, sync::OnceLock};

use env_logger::{Builder, Env, Target};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use tokio::time::Instant;

use crate::{args::LogFormat, clock::Clock};

/// Sets up logging. `RUST_LOG` narrows or widens it; the default is what an operator wants.
pub fn init(format: LogFormat) {
    let mut builder = Builder::from_env(Env::default().default_filter_or("info"));
    builder.target(Target::Stderr);
    match format {
        LogFormat::Text => builder.format(|out, record| {
            let time = wall().strftime("%H:%M:%S");
            writeln!(out, "{time} {:<5} {}", record.level(), record.args())
        }),
        LogFormat::Json => builder.format(|out, record| {
            let line = serde_json::json!({
                "time": wall().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
                "level": record.level().as_str().to_lowercase(),
                "message": record.args().to_string(),
            });
            writeln!(out, "{line}")
        }),
    };
    // A test binary may have set one up already.
    let _ = builder.try_init();
}

/// The logger is the process's and not a run's, so it has no run's clock.
fn wall() -> jiff::Timestamp {
    Clock::default().wall()
}

/// The progress of a phase: a bar on a terminal, else a line every few seconds.
pub struct Meter {
    bar: ProgressBar,
    clock: Clock,
    begun: Instant,
}

impl Meter {
    /// Counts up to `total` chains.
    #[must_use]
    pub fn new(total: usize, clock: &Clock) -> Self {
        static STYLE: OnceLock<ProgressStyle> = OnceLock::new();
        let style = STYLE.get_or_init(|| {
            ProgressStyle::with_template("{bar:30} {pos} of {len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar())
        });
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(4));
        bar.set_style(style.clone());
        Self { bar, clock: clock.clone(), begun: clock.now() }
    }

    /// One chain has ended.
    pub fn tick(&self) {
        self.bar.inc(1);
    }

    /// Says how far it is, at what rate, and what it waits for.
    pub fn say(&self, (waiting, more): (Vec<String>, usize)) {
        let (done, total) = (self.bar.position(), self.bar.length().unwrap_or_default());
        #[allow(clippy::cast_precision_loss)] // A rate for people.
        let rate = done as f64 / self.clock.since(self.begun).as_secs_f64().max(0.001);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let waits = if waiting.is_empty() {
            String::new()
        } else {
            format!(", waiting for {}{more}", waiting.join("; "))
        };
        if self.bar.is_hidden() {
            log::info!("progress: {done} of {total} chains, {rate:.0}/s{waits}");
        } else {
            self.bar.set_message(format!("{rate:.0}/s{waits}"));
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
