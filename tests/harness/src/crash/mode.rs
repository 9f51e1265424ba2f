//! The ways in which things go wrong at a call.

use std::{fmt, time::Duration};

use crate::{
    call::{Call, Class},
    fault::{At, Fault, Landing, Scope, Until},
};

/// How long an API server is gone: longer than a first retry takes.
const OUTAGE: Duration = Duration::from_millis(700);

/// A way in which things go wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Killed before the call is sent.
    KillBefore,
    /// Killed after it is answered.
    KillAfter,
    /// The answer is lost.
    LoseAnswer,
    /// Killed; the call lands while the next run is under way. Only for writes: a read that nobody waits for
    /// changes nothing.
    LandLate(Landing),
    /// The API server is gone from this call on, for a moment.
    Outage,
    /// Interrupted by SIGTERM. That is not a death: the lock is released, and the next run resumes.
    Terminate,
    /// Killed before its first move, and again in each resume: at last it is undone.
    DieBefore,
    /// Killed after its first move, and again after the first move of each resume.
    DieAfter,
    /// It fails for good with this status; with 500 until the deadline.
    Fail(u16),
    /// Killed before a call of an undo is sent.
    KillBeforeInUndo,
    /// Killed after a call of an undo is answered.
    KillAfterInUndo,
    /// The answer to a call of an undo is lost.
    LoseAnswerInUndo,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::KillBefore,
        Self::KillAfter,
        Self::LoseAnswer,
        Self::LandLate(Landing::BeforeFirstMove),
        Self::LandLate(Landing::BeforeRelease),
        Self::Outage,
        Self::Terminate,
        Self::DieBefore,
        Self::DieAfter,
        Self::Fail(403),
        Self::Fail(422),
        Self::Fail(500),
        Self::KillBeforeInUndo,
        Self::KillAfterInUndo,
        Self::LoseAnswerInUndo,
    ];

    pub(super) fn is_repeated(self) -> bool {
        matches!(self, Self::DieBefore | Self::DieAfter)
    }

    /// Whether it strikes while a run undoes.
    #[must_use]
    pub fn in_undo(self) -> bool {
        matches!(self, Self::KillBeforeInUndo | Self::KillAfterInUndo | Self::LoseAnswerInUndo)
    }

    /// Whether it ends with the moment that it strikes, so that only the writes made until then matter.
    pub(super) fn kills(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillAfter | Self::KillBeforeInUndo | Self::KillAfterInUndo)
    }

    /// Whether a run waits for as long as it would in earnest: a call lands late within that time.
    pub(super) fn needs_patience(self) -> bool {
        matches!(self, Self::LandLate(_))
    }

    /// Whether a call is worth a point in this mode.
    pub(super) fn suits(self, call: &Call) -> bool {
        match self {
            Self::LandLate(_) => call.is_write(),
            // After a watch has begun is before the next call; and there is nothing invalid in a watch.
            Self::KillAfter | Self::KillAfterInUndo | Self::Terminate | Self::Fail(422) => {
                call.class != Class::Watch
            }
            _ => true,
        }
    }

    /// Whether a renewal of the lock is worth a point in this mode: where the run must go on without an answer, or dies.
    pub(super) fn suits_renewal(self) -> bool {
        let killed = matches!(self, Self::KillBefore | Self::KillBeforeInUndo);
        killed || matches!(self, Self::LoseAnswer | Self::LoseAnswerInUndo | Self::Fail(403 | 500))
    }

    pub(super) fn fault(self, at: At) -> Fault {
        match self {
            Self::KillBefore | Self::DieBefore | Self::KillBeforeInUndo => Fault::KillBefore(at),
            Self::KillAfter | Self::DieAfter | Self::KillAfterInUndo => Fault::KillAfter(at),
            Self::LoseAnswer | Self::LoseAnswerInUndo => Fault::LoseAnswer(at),
            Self::LandLate(_) => Fault::KillAndLandLate(at),
            Self::Outage => Fault::Refuse { at, lasting: OUTAGE },
            Self::Terminate => Fault::Terminate(at),
            Self::Fail(status) => Fault::FailForGood {
                at,
                status,
                // What is invalid is this object; what is forbidden is to do this at all.
                scope: if status == 422 { Scope::Body } else { Scope::Target },
                until: (status >= 500).then_some(Until::Deadline),
            },
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillBefore => out.write_str("kill-before"),
            Self::KillAfter => out.write_str("kill-after"),
            Self::LoseAnswer => out.write_str("lose-answer"),
            Self::LandLate(Landing::BeforeFirstMove) => out.write_str("land-late"),
            Self::LandLate(Landing::WithinJournal) => out.write_str("land-in-journal"),
            Self::LandLate(Landing::BeforeRelease) => out.write_str("land-last"),
            Self::Outage => out.write_str("outage"),
            Self::Terminate => out.write_str("terminate"),
            Self::DieBefore => out.write_str("die-before"),
            Self::DieAfter => out.write_str("die-after"),
            Self::Fail(status) => write!(out, "fail-{status}"),
            Self::KillBeforeInUndo => out.write_str("undo-kill-before"),
            Self::KillAfterInUndo => out.write_str("undo-kill-after"),
            Self::LoseAnswerInUndo => out.write_str("undo-lose-answer"),
        }
    }
}
