//! Whether the API server in memory answers as a real one does: one table of requests that is run on both.
//!
//! A *case* is a short story: some requests, one after the other, in a namespace of its own. Each *row* says what is sent,
//! with which status it is answered, and whatever of the answer matters to a reader. That alone would leave room for
//! differences that nobody thought of, so the whole answer counts as well: what a real API server answered to each row is
//! kept beside the table ([`recorded`]), with everything taken out that differs from run to run ([`normal`]).
//!
//! - [`table`]: the cases, by subject.
//! - [`row`]: what a row is made of.
//! - [`side`]: the two servers that the table is run on.
//! - [`run`]: runs a subject and says what differs.
//! - [`shape`]: which sorts of calls the table covers.
//! - [`runs`]: whether whole runs of steps go alike on both.
//!
//! The answers are recorded anew by a run with `BELAY_WRITE_CONFORMANCE=1` and `BELAY_TEST_KUBECONFIG`.

pub mod normal;
pub mod pattern;
pub mod recorded;
pub mod row;
pub mod run;
pub mod runs;
pub mod shape;
pub mod side;
pub mod table;

pub use row::{Case, Row};
pub use shape::{Shape, covers};
